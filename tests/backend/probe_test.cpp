#include "backend/probe.hpp"

#include <csignal>
#include <cstdlib>
#include <stdexcept>

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fakes/crashing_drivers.hpp"
#include "fakes/temporary_folder.hpp"

namespace kiln {
namespace {

const DeviceTraits traits = {"Nobody", "none_1", 16, 3, true, true};

std::vector<DeviceInfo> list_one(const Log&) {
  return {{.name = "fake:0",
           .identity = {"fake", "Kiln \xff", "nothing", "1.0", "2.0", {1, 7}},
           .label = "Nothing 9000",
           .language = Language::hip,
           .limits = {{1, 2, 3}, {4, 5, 6}, 7, 8},
           .traits = traits,
           .software = true,
           .lanes = 5}};
}
std::vector<DeviceInfo> crash(const Log&) {
  raise(SIGSEGV);
  return {};
}
std::vector<DeviceInfo> end(const Log&) { _exit(0); }
std::vector<DeviceInfo> throw_up(const Log&) { throw std::runtime_error("no memory"); }

TEST(Probe, TellsWhatTheChildWasTold) {
  const auto devices = backend::Probe("fake", list_one).answer();
  ASSERT_EQ(devices.size(), 1U);
  const DeviceInfo& info = devices[0];
  EXPECT_EQ(info.name, "fake:0");
  EXPECT_EQ(info.label, "Nothing 9000");
  EXPECT_EQ(info.identity.device, "nothing");
  EXPECT_EQ(info.identity.formats, (std::vector<std::uint32_t>{1, 7}));
  EXPECT_EQ(info.language, Language::hip);
  EXPECT_EQ(info.limits.max_group_size[2], 6U);
  EXPECT_EQ(info.limits.shared_bytes, 8U);
  EXPECT_EQ(info.traits, traits);
  EXPECT_TRUE(info.software);
  EXPECT_EQ(info.lanes, 5U);
  EXPECT_TRUE(info.problem.empty());
}

TEST(Probe, ADriverThatCrashesOrEndsTheProcessIsAProblemOfItsOwn) {
  const auto crashed = backend::Probe("fake", crash).answer();
  ASSERT_EQ(crashed.size(), 1U);
  EXPECT_NE(crashed[0].problem.find("crashed when it was loaded"), std::string::npos) << crashed[0].problem;
  const auto ended = backend::Probe("fake", end).answer();
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_NE(ended[0].problem.find("ended the process"), std::string::npos) << ended[0].problem;
}

TEST(Probe, TheApplicationsHandlersOfCrashesDoNotRun) {
  const auto before = std::signal(SIGSEGV, [](int) { _exit(0); });
  const auto crashed = backend::Probe("fake", crash).answer();
  std::signal(SIGSEGV, before);
  ASSERT_EQ(crashed.size(), 1U);
  EXPECT_NE(crashed[0].problem.find("crashed when it was loaded"), std::string::npos) << crashed[0].problem;
}

TEST(Probe, AListingThatThrowsEndsInTheChild) {
  const pid_t self = getpid();
  std::vector<DeviceInfo> devices;
  try {
    devices = backend::Probe("fake", throw_up).answer();
  } catch (const std::runtime_error&) {
    // The parent sees by this that the child came so far.
    if (getpid() != self) raise(SIGKILL);
    FAIL() << "the exception came out in this process";
  }
  ASSERT_EQ(devices.size(), 1U);
  EXPECT_EQ(devices[0].name, "fake");
  EXPECT_NE(devices[0].problem.find("ended the process"), std::string::npos) << devices[0].problem;
}

TEST(Probe, ThatIsNotWaitedForEndsItsChild) {
  const auto sleep = [](const Log&) -> std::vector<DeviceInfo> {
    for (;;) pause();
  };
  { const backend::Probe probe("fake", sleep); }
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "there is a child left";
}

/// What the machine lists where the drivers of OpenCL and Vulkan are ones that crash.
int list_with_crashing_drivers() {
  const fakes::TemporaryFolder folder;
  for (const auto& [name, value] : fakes::crashing_drivers(folder.path(), KILN_CRASHING_DRIVER))
    setenv(name.c_str(), value.c_str(), 1);
  int crashed = 0;
  for (const DeviceInfo& info : list_devices())
    if (info.problem.find("crashed when it was loaded") != std::string::npos) ++crashed;
  if (crashed != 2) return 2;
  const auto best = open_device();
  return best ? 0 : 3;
}

TEST(Probe, DriversThatCrashWhenLoadedLeaveTheOthersUsable) {
  // In a process of its own, into which no driver has been loaded yet.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(_exit(list_with_crashing_drivers()), testing::ExitedWithCode(0), "");
}

/// How often a listing forks in a process that has a library already; 255 where there is no such library.
int forks_beside(const char* library) {
  static int forks = 0;
  pthread_atfork(
      nullptr, [] { ++forks; }, nullptr);
  if (library != nullptr && dlopen(library, RTLD_NOW | RTLD_LOCAL) == nullptr) return 255;
  list_devices();
  return forks;
}

TEST(Probe, ForksNoProcessThatUsesADriverAlready) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto none_or_no_library = [](int status) {
    return WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 255);
  };
  for (const char* library : {"libcuda.so.1", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5",
                              "libvulkan.so.1", "libEGL.so.1", "libGLX.so.0", "libGL.so.1", "libOpenCL.so.1"})
    EXPECT_EXIT(_exit(forks_beside(library)), none_or_no_library, "") << library;
  EXPECT_EXIT(_exit(forks_beside(nullptr)), testing::ExitedWithCode(5), "");
}

/// What is opened where OpenGL's devices are listed, but do not open.
int open_where_opengl_is_only_listed() {
  setenv("__EGL_VENDOR_LIBRARY_FILENAMES", "/nonexistent.json", 1);
  // Devices are listed in child processes.
  pthread_atfork(nullptr, nullptr, [] { unsetenv("__EGL_VENDOR_LIBRARY_FILENAMES"); });
  const auto best = open_device();
  if (!best) return best.error().message().find("opengl:0") != std::string::npos ? 0 : 2;
  return (*best)->identity().api != "opengl" ? 0 : 3;
}

TEST(Probe, ADeviceThatIsListedButDoesNotOpenLeavesTheOthersUsable) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(_exit(open_where_opengl_is_only_listed()), testing::ExitedWithCode(0), "");
}

/// Whether opening the API fails with an error that says `text`.
bool refuses(const char* api, std::string_view text) {
  const auto device = open_device(api);
  return !device && device.error().message().find(text) != std::string::npos;
}

TEST(Probe, LibrariesThatLackAFunctionAreNamedWithIt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  // Heeded by the process of the death test, which begins anew.
  const char* before = std::getenv("LD_LIBRARY_PATH");
  const std::string folders = before != nullptr ? ":" + std::string(before) : "";
  setenv("LD_LIBRARY_PATH", (KILN_HOLLOW_LIBRARIES + folders).c_str(), 1);
  EXPECT_EXIT(
      _exit(refuses("vulkan", "libvulkan.so.1 has no vkGetInstanceProcAddr: it is no Vulkan loader") ? 0 : 1),
      testing::ExitedWithCode(0), "");
  EXPECT_EXIT(_exit(refuses("opencl", "libOpenCL.so.1 has no clGetPlatformIDs; Kiln needs OpenCL 1.2") ? 0 : 1),
              testing::ExitedWithCode(0), "");
  folders.empty() ? unsetenv("LD_LIBRARY_PATH") : setenv("LD_LIBRARY_PATH", folders.c_str() + 1, 1);
}

}  // namespace
}  // namespace kiln
