#include "backend/offline.hpp"

#include <string>

#include <fmt/format.h>

#include <kiln/cuda.hpp>
#include <kiln/hip.hpp>

#include "backend/compile_workers.hpp"
#include "backend/cuda/cuda.hpp"
#include "backend/cuda/image.hpp"
#include "backend/hip/hip.hpp"
#include "backend/vulkan/shaderc.hpp"
#include "backend/vulkan/spirv_program.hpp"
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

/// Compiles for one target.
class OfflineBackend : public Backend {
 public:
  OfflineBackend(Identity identity, Log log) : log_(std::move(log)), identity_(std::move(identity)) {}

  const Identity& identity() const noexcept final { return identity_; }
  Result<Compiled> compile(const Request& request) final {
    auto binary = KILN_TRY(binary_of(request));
    auto module = KILN_TRY(load(binary));
    return Compiled{std::move(module), std::move(binary)};
  }
  Result<std::unique_ptr<Module>> load(const Binary& binary) final {
    return std::unique_ptr<Module>(std::make_unique<OfflineModule>(binary, KILN_TRY(entries_of(binary))));
  }

 protected:
  virtual Result<Binary> binary_of(const Request& request) const = 0;
  virtual Result<std::vector<std::string>> entries_of(const Binary& binary) const {
    const auto parts = KILN_TRY(cuda::parts_of(binary, static_cast<cuda::ImageKind>(identity_.formats.front())));
    std::vector<std::string> names;
    for (const cuda::EntryPoint& entry : parts.entries) names.push_back(entry.name);
    return names;
  }

  const Log log_;

 private:
  const Identity identity_;
};

class CudaCompiler final : public OfflineBackend {
 public:
  using OfflineBackend::OfflineBackend;
  std::unique_ptr<CompilePlace> wait_for_place(Urgency urgency) override { return places_->wait(urgency); }

 private:
  Result<Binary> binary_of(const Request& request) const override {
    return cuda::compile_for(request, identity().device, log_);
  }

  const std::shared_ptr<CompilePlaces> places_ = CompilePlaces::of_process();
};

/// hipcc is a process of its own, so there is no CompilePlace.
class HipCompiler final : public OfflineBackend {
 public:
  using OfflineBackend::OfflineBackend;

 private:
  Result<Binary> binary_of(const Request& request) const override {
    return hip::compile_for(request, identity().device, log_);
  }
};

class VulkanCompiler final : public OfflineBackend {
 public:
  VulkanCompiler(std::shared_ptr<const vulkan::Shaderc> shaderc, Log log)
      : OfflineBackend(vulkan::portable_identity(shaderc->version()), std::move(log)),
        shaderc_(std::move(shaderc)) {}

 private:
  Result<Binary> binary_of(const Request& request) const override {
    return vulkan::compile_portable(*shaderc_, request);
  }
  Result<std::vector<std::string>> entries_of(const Binary& binary) const override {
    const auto program = KILN_TRY(vulkan::portable_program(binary));
    std::vector<std::string> names;
    for (const vulkan::ShaderEntry& entry : program.module.entries) names.push_back(entry.name);
    return names;
  }

  const std::shared_ptr<const vulkan::Shaderc> shaderc_;
};

bool is_amd(std::string_view target) { return target.starts_with("gfx"); }

constexpr std::string_view vulkan_target = "vulkan";

}  // namespace

Result<std::shared_ptr<Backend>> open_offline(std::string_view target, const Log& log) {
  if (target == vulkan_target) {
    auto shaderc = vulkan::Shaderc::find();
    if (!shaderc) return Error(ErrorCode::unsupported, shaderc.error().message(), shaderc.error().log());
    return std::shared_ptr<Backend>(std::make_shared<VulkanCompiler>(std::move(*shaderc), log));
  }
  if (is_amd(target))
    return std::shared_ptr<Backend>(std::make_shared<HipCompiler>(KILN_TRY(hip::identity_for(target)), log));
  return std::shared_ptr<Backend>(std::make_shared<CudaCompiler>(KILN_TRY(cuda::identity_for(target)), log));
}

bool suits(const Request& request, std::string_view target) {
  const Language language = request.language();
  if (target == vulkan_target) return language == Language::vulkan_glsl || language == Language::spirv;
  if (is_amd(target)) return language == Language::hip && hip::selects_only(request, target);
  return language == Language::cuda && cuda::selects_only(request, target);
}

Result<std::vector<std::string>> cuda_architectures() {
  const auto rtc = KILN_TRY(cuda::find_nvrtc());
  std::vector<std::string> names;
  for (const int number : rtc->architectures()) names.push_back(fmt::format("sm_{}", number));
  return names;
}

std::vector<FoundCompiler> find_compilers() {
  std::vector<FoundCompiler> found;
  const auto add = [&found](std::string_view api, const auto& compiler, auto version_of) {
    found.push_back(compiler ? FoundCompiler{.api = api, .version = version_of(*compiler)}
                             : FoundCompiler{.api = api, .problem = compiler.error().message()});
  };
  const auto version_of = [](const auto& compiler) { return compiler->version(); };
  add("cuda", cuda::find_nvrtc(), version_of);
  add("hip", hip::find_hipcc(), [](const std::string& version) { return version; });
  add("vulkan", vulkan::Shaderc::find(), version_of);
  return found;
}

}  // namespace kiln::backend
