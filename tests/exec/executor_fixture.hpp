#pragma once

#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <kiln/executor.hpp>

#include "fakes/cache_fixture.hpp"
#include "fakes/fake_device.hpp"

namespace kiln {

/// The executor on a device that fails and hangs on demand; tests/contract has it on real ones.
class ExecutorTest : public testing::Test {
 protected:
  CacheOptions cache_options() {
    CacheOptions options;
    options.directory = folder_.path() / "cache";
    options.log = book_.log();
    return options;
  }
  std::unique_ptr<Executor> make(ExecutorOptions options = {}) {
    options.log = book_.log();
    return Executor::create(device_, cache_, options).value();
  }
  static Request program(const std::string& text) { return Request({.name = "p", .source = text}); }

  /// y = x + n, byte by byte.
  static Job add(int n, std::span<const unsigned char> x, std::span<unsigned char> y) {
    Job job{.name = "add_" + std::to_string(n)};
    job.memory = {{.upload = std::as_bytes(x)}, {.download = std::as_writable_bytes(y)}};
    job.steps = {
        {.request = program("add " + std::to_string(n)), .launch = {.arguments = {job_memory(0), job_memory(1)}}}};
    return job;
  }
  /// Runs until the gate is opened.
  static Job gate() { return {.name = "gate", .steps = {{.request = program("gate")}}}; }

  fakes::TemporaryFolder folder_;
  fakes::LogBook book_;
  std::shared_ptr<fakes::FakeDevice> device_ = std::make_shared<fakes::FakeDevice>();
  Cache cache_{device_, cache_options()};
  std::vector<unsigned char> x_ = [] {
    std::vector<unsigned char> values(1000);
    std::iota(values.begin(), values.end(), static_cast<unsigned char>(0));
    return values;
  }();
};

inline void expect_sum(std::span<const unsigned char> x, int n, std::span<const unsigned char> y) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < x.size(); ++i) wrong += y[i] != static_cast<unsigned char>(x[i] + n) ? 1 : 0;
  EXPECT_EQ(wrong, 0U);
}

}  // namespace kiln
