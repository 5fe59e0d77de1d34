#include <filesystem>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "backend/hip/hipcc.hpp"
#include "fakes/files.hpp"
#include "fakes/temporary_folder.hpp"

// Devices, caches, programs, executors, slots and buffers in static variables, by each API's own driver.
namespace kiln::contract {
namespace {

using Case = std::tuple<std::string, std::string>;

class ProcessEnd : public testing::TestWithParam<Case> {
 protected:
  /// How a process ended that held all of it in static variables.
  std::string end(const std::string& work) {
    const auto& [api, order] = GetParam();
    // Beside this program, also where that was copied to.
    const auto program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "held_by_statics";
    const auto output = folder_.path() / "out";
    const auto status = hip::run_process({program, api, order, work, folder_.path() / "cache"}, {}, output);
    const std::string told = fakes::read_file(output);
    if (status.value() == no_device) return "skipped: " + told;
    return *status == 0 && told == "held\n" ? "well" : told + "it ended with " + std::to_string(*status);
  }

  static constexpr int no_device = 77;
  fakes::TemporaryFolder folder_;
};

TEST_P(ProcessEnd, TakesWhatStaticVariablesHoldWithIt) {
  const std::string first = end("idle");
  if (first.starts_with("skipped")) GTEST_SKIP() << first;
  EXPECT_EQ(first, "well");
  EXPECT_EQ(end("idle"), "well") << "with a program from disk";
}

TEST_P(ProcessEnd, DoesNotWaitForAnExecutorInAStaticVariable) {
  const std::string ended = end("busy");
  if (ended.starts_with("skipped")) GTEST_SKIP() << ended;
  EXPECT_EQ(ended, "well");
}

INSTANTIATE_TEST_SUITE_P(Apis, ProcessEnd,
                         testing::Combine(testing::Values("opengl", "vulkan", "opencl", "cuda", "hip"),
                                          testing::Values("early", "late")),
                         [](const testing::TestParamInfo<Case>& of) {
                           return std::get<0>(of.param) + "_" + std::get<1>(of.param);
                         });

}  // namespace
}  // namespace kiln::contract
