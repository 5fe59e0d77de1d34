#include "backend/offline.hpp"

#include <string>

#include <kiln/cuda.hpp>
#include <kiln/hip.hpp>

#include "backend/compile_workers.hpp"
#include "backend/cuda/cuda.hpp"
#include "backend/cuda/image.hpp"
#include "backend/hip/hip.hpp"
#include "base/try.hpp"

namespace kiln::backend {

/// An entry point of an OfflineModule, which owns it.
class OfflineModule::Entry final : public Module {
 public:
  Entry(std::string name, std::size_t bytes) : name_(std::move(name)), bytes_(bytes) {}
  std::size_t bytes() const noexcept override { return bytes_; }
  std::vector<std::string> entries() const override { return {name_}; }
  Module* entry(std::string_view name) noexcept override { return name == name_ ? this : nullptr; }

 private:
  const std::string name_;
  const std::size_t bytes_;
};

OfflineModule::OfflineModule(Binary compiled, std::vector<std::string> entries)
    : binary(std::move(compiled)), names_(std::move(entries)) {
  if (names_.size() == 1) return;
  for (const std::string& name : names_) entries_.push_back(std::make_unique<Entry>(name, bytes()));
}

Module* OfflineModule::entry(std::string_view name) noexcept {
  for (std::size_t i = 0; i < names_.size(); ++i)
    if (names_[i] == name) return entries_.empty() ? this : entries_[i].get();
  return nullptr;
}

namespace {

class OfflineBackend final : public Backend {
 public:
  using Compile = Result<Binary>(const Request& request, std::string_view architecture, const Log& log);

  OfflineBackend(Identity identity, Compile* compiler, Log log, std::shared_ptr<CompilePlaces> places)
      : identity_(std::move(identity)), compiler_(compiler), log_(std::move(log)), places_(std::move(places)) {}

  const Identity& identity() const noexcept override { return identity_; }
  Result<Compiled> compile(const Request& request) override {
    auto binary = KILN_TRY(compiler_(request, identity_.device, log_));
    auto module = KILN_TRY(load(binary));
    return Compiled{std::move(module), std::move(binary)};
  }
  std::unique_ptr<CompilePlace> wait_for_place(Urgency urgency) override {
    return places_ != nullptr ? places_->wait(urgency) : nullptr;
  }
  Result<std::unique_ptr<Module>> load(const Binary& binary) override {
    const auto parts = KILN_TRY(cuda::parts_of(binary, static_cast<cuda::ImageKind>(identity_.formats.front())));
    std::vector<std::string> names;
    for (const cuda::EntryPoint& entry : parts.entries) names.push_back(entry.name);
    return std::unique_ptr<Module>(std::make_unique<OfflineModule>(binary, std::move(names)));
  }

 private:
  const Identity identity_;
  Compile* const compiler_;
  const Log log_;
  /// Null for hipcc, which is a process of its own.
  const std::shared_ptr<CompilePlaces> places_;
};

}  // namespace

Result<std::shared_ptr<Backend>> open_offline(std::string_view architecture, const Log& log) {
  const bool is_amd = architecture.starts_with("gfx");
  auto identity = KILN_TRY(is_amd ? hip::identity_for(architecture) : cuda::identity_for(architecture));
  return std::shared_ptr<Backend>(
      std::make_shared<OfflineBackend>(std::move(identity), is_amd ? hip::compile_for : cuda::compile_for, log,
                                       is_amd ? nullptr : CompilePlaces::of_process()));
}

}  // namespace kiln::backend
