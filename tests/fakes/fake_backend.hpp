#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <kiln/backend.hpp>

#include "base/sha256.hpp"

namespace kiln::fakes {

/// Module counts, separate from the backend because modules may outlive it.
struct ModuleCounts {
  std::atomic<int> alive{0};
  std::atomic<int> destroyed{0};
};

/// A program that holds its source and counts its destruction.
class FakeModule final : public Module {
 public:
  FakeModule(std::string text, std::size_t bytes, std::shared_ptr<ModuleCounts> counts)
      : text_(std::move(text)), bytes_(bytes), counts_(std::move(counts)) {
    ++counts_->alive;
  }
  ~FakeModule() override {
    text_ = "destroyed";
    --counts_->alive;
    ++counts_->destroyed;
  }

  const std::string& text() const noexcept { return text_; }
  std::size_t bytes() const noexcept override { return bytes_; }

 private:
  std::string text_;
  std::size_t bytes_;
  std::shared_ptr<ModuleCounts> counts_;
};

/// A backend without a GPU. Its "binary" is the source with a prefix, so that tests notice a wrong program.
class FakeBackend final : public Backend {
 public:
  explicit FakeBackend(Identity identity = {"fake", "Kiln", "nothing", "1.0", "1.0", {7}})
      : identity_(std::move(identity)) {}

  const Identity& identity() const noexcept override { return identity_; }

  Result<Compiled> compile(const Request& request) override {
    ++compiles;
    if (on_compile) on_compile(request);
    if (auto error = next_error(compile_errors)) return *std::move(error);
    if (request.source().find("does not compile") != std::string::npos)
      return Error(ErrorCode::compile_failed, request.name() + " does not compile", "log of " + request.name());
    Compiled compiled{std::make_unique<FakeModule>(request.source(), module_bytes, counts), {}};
    if (!identity_.formats.empty()) {
      const std::string text = "binary:" + request.source();
      compiled.binary = Binary{identity_.formats[0], {}};
      compiled.binary->bytes.resize(text.size());
      std::memcpy(compiled.binary->bytes.data(), text.data(), text.size());
    }
    return compiled;
  }

  Result<std::unique_ptr<Module>> load(const Binary& binary) override {
    ++loads;
    if (on_load) on_load();
    if (auto error = next_error(load_errors)) return *std::move(error);
    const std::string text(reinterpret_cast<const char*>(binary.bytes.data()), binary.bytes.size());
    if (refuse_loads || !text.starts_with("binary:"))
      return Error(ErrorCode::load_failed, "the fake refuses the binary");
    return std::unique_ptr<Module>(std::make_unique<FakeModule>(text.substr(7), module_bytes, counts));
  }

  unsigned accepts(const Identity& target) const override {
    return on_accepts ? on_accepts(target) : Backend::accepts(target);
  }
  /// Makes a binary of its own of that of another target.
  Result<Compiled> adapt(const Identity& target, const Binary& binary) override {
    auto module = load(binary);
    if (!module) return std::move(module).error();
    Compiled compiled{std::move(*module), {}};
    if (target.target_digest() != identity_.target_digest() && !identity_.formats.empty())
      compiled.binary = Binary{identity_.formats[0], binary.bytes};
    return compiled;
  }

  /// This many of the next calls fail with out_of_memory.
  std::atomic<int> compile_errors{0};
  std::atomic<int> load_errors{0};
  std::atomic<bool> refuse_loads{false};
  std::atomic<int> compiles{0};
  std::atomic<int> loads{0};
  std::size_t module_bytes = 100;
  std::function<void(const Request&)> on_compile;
  std::function<void()> on_load;
  std::function<unsigned(const Identity& target)> on_accepts;
  std::shared_ptr<ModuleCounts> counts = std::make_shared<ModuleCounts>();

 private:
  static std::optional<Error> next_error(std::atomic<int>& left) {
    int seen = left.load();
    while (seen > 0)
      if (left.compare_exchange_weak(seen, seen - 1))
        return Error(ErrorCode::out_of_memory, "the fake has no memory left");
    return std::nullopt;
  }

  Identity identity_;
};

/// A request with a different source for each number.
inline Request request(int number) {
  return Request(
      {.name = "program_" + std::to_string(number), .source = "source of program " + std::to_string(number)});
}

}  // namespace kiln::fakes
