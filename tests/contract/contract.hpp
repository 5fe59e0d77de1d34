#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include <kiln/cache.hpp>
#include <kiln/kernel.hpp>

#include "fakes/cache_fixture.hpp"

namespace kiln::contract {

/// What run_this_test_elsewhere() tells the other process in its environment.
inline constexpr const char* handed_down = "KILN_CONTRACT_FOLDER";

/// Runs this test again in a process of its own, which finds `folder` in its environment. What it returned.
int run_this_test_elsewhere(const std::filesystem::path& folder);

inline auto every_api() { return testing::Values("opengl", "vulkan", "opencl", "cuda", "hip"); }
inline std::string name_of(const testing::TestParamInfo<std::string>& api) { return api.param; }

/// A test that runs with every API; skipped by name where this machine has none.
class Contract : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override;

  CacheOptions options() const {
    CacheOptions options;
    options.directory = folder_.path() / "cache";
    options.log = book_.log();
    return options;
  }

  Request request(const Kernel& kernel) const { return kernel.request(*device_).value(); }

  /// Whether the module does what scale(factor) says, on memory of its own.
  static bool scales(Device& device, Module& module, int factor, float offset);

  fakes::TemporaryFolder folder_;
  mutable fakes::LogBook book_;
  /// For a test that needs the device to be gone when it lets go of it.
  void open_own_device() { device_ = open_device(GetParam(), book_.log()).value(); }

  /// Open until all tests of the process are over, unless it is the test's own: most drivers take long to start.
  std::shared_ptr<Device> device_;
};

}  // namespace kiln::contract
