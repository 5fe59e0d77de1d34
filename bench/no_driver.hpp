#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <kiln/backend.hpp>

namespace kiln::bench {

/// A backend whose compiler takes a set time and whose binaries cannot be compressed.
class NoDriver final : public Backend {
 public:
  explicit NoDriver(std::chrono::microseconds compile_time) : compile_time_(compile_time) {}
  const Identity& identity() const noexcept override { return identity_; }
  Result<Compiled> compile(const Request& request) override {
    std::this_thread::sleep_for(compile_time_);
    std::mt19937_64 random(std::hash<std::string>()(request.name()));
    Binary binary{identity_.formats[0], std::vector<std::byte>(10'000)};
    std::ranges::generate(binary.bytes, [&] { return static_cast<std::byte>(random()); });
    return Compiled{std::make_unique<Loaded>(), std::move(binary)};
  }
  Result<std::unique_ptr<Module>> load(const Binary&) override {
    return std::unique_ptr<Module>(std::make_unique<Loaded>());
  }

 private:
  class Loaded final : public Module {
   public:
    std::size_t bytes() const noexcept override { return 1; }
  };

  const std::chrono::microseconds compile_time_;
  const Identity identity_{"none", "Kiln", "no driver", "1.0", "1.0", {7}};
};

inline Request numbered_request(int number) {
  return Request({.name = "program_" + std::to_string(number), .source = "source " + std::to_string(number)});
}

}  // namespace kiln::bench
