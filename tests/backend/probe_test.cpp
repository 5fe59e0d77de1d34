#include "backend/probe.hpp"

#include <algorithm>
#include <atomic>
#include <clocale>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <thread>

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/device_info.hpp"
#include "base/process.hpp"
#include "fakes/cache_fixture.hpp"
#include "fakes/child.hpp"
#include "fakes/crashing_drivers.hpp"
#include "fakes/set_uid.hpp"
#include "fakes/temporary_folder.hpp"

namespace kiln {
namespace {

using std::chrono::milliseconds;

const DeviceTraits traits = {"Nobody", "none_1", 16, 3, true, true};

const DeviceInfo one = {.name = "fake:0",
                        .identity = {"fake", "Kiln \xff", "nothing", "1.0", "2.0", {1, 7}},
                        .label = "Nothing 9000",
                        .language = Language::hip,
                        .limits = {{1, 2, 3}, {4, 5, 6}, 7, 8},
                        .traits = traits,
                        .software = true,
                        .lanes = 5};

/// Sets a variable of the environment, and sets it back.
class Variable {
 public:
  Variable(std::string name, const std::string& value) : name_(std::move(name)) {
    if (const char* before = std::getenv(name_.c_str()); before != nullptr) before_ = before;
    setenv(name_.c_str(), value.c_str(), 1);
  }
  ~Variable() { before_ ? setenv(name_.c_str(), before_->c_str(), 1) : unsetenv(name_.c_str()); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  std::string name_;
  std::optional<std::string> before_;
};

class Probe : public testing::Test {
 protected:
  /// A program in the folder that the shell runs.
  std::string script(const std::string& name, const std::string& text) const {
    const auto path = folder_.path() / name;
    fakes::write_file(path, "#!/bin/sh\n" + text + "\n");
    chmod(path.c_str(), 0755);
    return path;
  }

  /// A helper that greets, and then does what the text says.
  std::string greeting_script(const std::string& name, const std::string& text) const {
    fakes::write_file(folder_.path() / "greeting", backend::helper_greeting());
    return script(name, fmt::format("cat '{}'\n{}", (folder_.path() / "greeting").string(), text));
  }

  std::string fifo(const std::string& name) const {
    const auto path = folder_.path() / name;
    EXPECT_EQ(mkfifo(path.c_str(), 0600), 0);
    return path;
  }

  /// The problem of OpenCL's devices where its driver is `library`.
  std::string problem_with_driver(const std::string& library, const std::string& behaviour) const {
    const Variable driver("OCL_ICD_VENDORS", folder_.path() / "driver.icd");
    const Variable trouble("KILN_STAND_IN", behaviour);
    fakes::write_file(folder_.path() / "driver.icd", library + "\n");
    const auto devices = backend::Probe("opencl", helper_).answer();
    if (!devices) return devices.error().message();
    return devices->size() == 1 && (*devices)[0].name == "opencl" ? (*devices)[0].problem : "there are devices";
  }

  fakes::TemporaryFolder folder_;
  std::string helper_ = backend::find_helper().value_or("there is no kiln-helper");
};

TEST_F(Probe, TellsWhatTheHelperTells) {
  fakes::write_file(folder_.path() / "list", backend::to_json_line({one}) + "\n");
  const auto devices =
      backend::Probe("fake", greeting_script("helper", fmt::format("cat '{}/list'", folder_.path().string())))
          .answer();
  ASSERT_TRUE(devices) << devices.error().message();
  ASSERT_EQ(devices->size(), 1U);
  const DeviceInfo& info = (*devices)[0];
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

TEST_F(Probe, ADriverThatCrashesOrEndsTheProcessIsAProblemOfItsOwn) {
  EXPECT_EQ(problem_with_driver(KILN_CRASHING_DRIVER, ""),
            "its driver crashed when it was loaded (Segmentation fault); remove or repair it");
  EXPECT_EQ(problem_with_driver(KILN_STAND_IN_LIBRARY, "end"),
            "its driver ended the process that listed its devices; remove or repair it");
}

TEST_F(Probe, ADriverThatPrintsToStandardOutputDoesNotDamageTheAnswer) {
  const std::string usual = problem_with_driver("/nonexistent.so", "");
  EXPECT_EQ(problem_with_driver(KILN_STAND_IN_LIBRARY, "print"), usual);
}

TEST_F(Probe, ADriverThatHangsIsAProblemOfItsOwn) {
  const std::string entered = fifo("entered");
  fifo("release");
  const Variable driver("OCL_ICD_VENDORS", folder_.path() / "driver.icd");
  const Variable trouble("KILN_STAND_IN", "block");
  const Variable folder("KILN_STAND_IN_FOLDER", folder_.path());
  fakes::write_file(folder_.path() / "driver.icd", KILN_STAND_IN_LIBRARY "\n");
  backend::Probe probe("opencl", helper_, milliseconds(1));
  const base::FileHandle hangs(open(entered.c_str(), O_RDONLY | O_CLOEXEC));
  const auto devices = probe.answer();
  ASSERT_TRUE(devices) << devices.error().message();
  ASSERT_EQ(devices->size(), 1U);
  EXPECT_EQ((*devices)[0].name, "opencl");
  EXPECT_TRUE((*devices)[0].problem.starts_with("its driver did not list its devices within 0.001 s"))
      << (*devices)[0].problem;
  char byte = 0;
  EXPECT_EQ(read(hangs.get(), &byte, 1), 0) << "the process is still there";
}

TEST_F(Probe, AKilledHelperIsNotBlamedOnTheDriver) {
  const auto devices = backend::Probe("fake", greeting_script("killed", "kill -TERM $$")).answer();
  ASSERT_TRUE(devices) << devices.error().message();
  EXPECT_EQ(devices->at(0).problem, "the process that listed its devices was killed by signal 15; try again");
}

TEST_F(Probe, ThatIsNotWaitedForEndsItsProcess) {
  { const backend::Probe probe("fake", script("helper", "exec sleep 1000")); }
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "there is a child left";
}

TEST_F(Probe, AHelperEndsWithTheProcessThatStartedIt) {
  const std::string entered = fifo("entered");
  fifo("release");
  fakes::write_file(folder_.path() / "driver.icd", KILN_STAND_IN_LIBRARY "\n");
  fakes::Child parent([&](const fakes::Child::Report&) {
    setenv("OCL_ICD_VENDORS", (folder_.path() / "driver.icd").c_str(), 1);
    setenv("KILN_STAND_IN", "block", 1);
    setenv("KILN_STAND_IN_FOLDER", folder_.path().c_str(), 1);
    static_cast<void>(backend::Probe("opencl", helper_).answer());
  });
  const base::FileHandle helper(open(entered.c_str(), O_RDONLY | O_CLOEXEC));
  parent.kill();
  pollfd waiting = {helper.get(), POLLIN, 0};
  EXPECT_EQ(poll(&waiting, 1, 10'000), 1) << "the helper is still there";
}

TEST_F(Probe, AHelperThatCannotBeUsedIsNamedWithTheReason) {
  fakes::write_file(folder_.path() / "text", "no program");
  const auto error = [](const std::string& helper, milliseconds patience = backend::probe_patience) {
    const auto devices = backend::Probe("fake", helper, patience).answer();
    return devices ? "it was used" : devices.error().message();
  };
  const auto starts_with = [](const std::string& text, const std::string& start) {
    return text.starts_with(start) ? testing::AssertionSuccess() : testing::AssertionFailure() << text;
  };
  EXPECT_EQ(error("/nonexistent"), "cannot start /nonexistent: No such file or directory");
  EXPECT_EQ(error(folder_.path() / "text"),
            "cannot start " + (folder_.path() / "text").string() + ": Permission denied");
  EXPECT_EQ(error(folder_.path()), "cannot start " + folder_.path().string() + ": Permission denied");
  const std::string crashes = script("crashes", "kill -SEGV $$");
  EXPECT_EQ(error(crashes), crashes + " exited without an answer");
  const std::string hangs = script("hangs", "exec sleep 1000");
  EXPECT_EQ(error(hangs, milliseconds(1)), hangs + " did not answer in time");
  const std::string old = script("old", "echo 'kiln-helper 0.0.1, protocol 0'; exec sleep 1000");
  EXPECT_TRUE(
      starts_with(error(old), old + " is not the helper of this version of Kiln: it says \"kiln-helper 0.0.1, "
                                    "protocol 0\", not \"kiln-helper "));
  const std::string garbage = script("garbage", "printf '\\033[31mno JSON'");
  EXPECT_TRUE(starts_with(error(garbage),
                          garbage + " is not the helper of this version of Kiln: it says \"?[31mno JSON\""));
  const std::string endless = script("endless", "exec yes");
  EXPECT_TRUE(starts_with(error(endless), endless + " is not the helper of this version of Kiln: it says \"y\""));
  const std::string other = greeting_script("other", "echo '[{\"name\": 7}]'");
  EXPECT_TRUE(starts_with(error(other), "kiln-helper sent a list of devices that this build"));
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "there is a child left";
}

TEST_F(Probe, TheHelperInheritsNoDescriptorOfTheApplications) {
  const base::FileHandle file(fcntl(STDIN_FILENO, F_DUPFD, 200));
  ASSERT_TRUE(file);
  const std::string helper =
      greeting_script("helper", fmt::format("[ -e /proc/$$/fd/{} ] && echo inherited || echo '[]'", file.get()));
  const long before = fakes::open_descriptors();
  const auto devices = backend::Probe("fake", helper).answer();
  ASSERT_TRUE(devices) << devices.error().message();
  EXPECT_TRUE(devices->empty());
  EXPECT_EQ(fakes::open_descriptors(), before);
}

TEST_F(Probe, SignalsThatTheApplicationBlocksOrIgnoresReachTheHelper) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  const auto crash_before = std::signal(SIGSEGV, SIG_IGN);
  const auto pipe_before = std::signal(SIGPIPE, SIG_IGN);
  const std::string problem = problem_with_driver(KILN_CRASHING_DRIVER, "");
  // Goes on if it is ignored.
  const auto end = backend::Probe("fake", greeting_script("helper", "kill -PIPE $$; echo '[]'")).answer();
  std::signal(SIGSEGV, crash_before);
  std::signal(SIGPIPE, pipe_before);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_EQ(problem, "its driver crashed when it was loaded (Segmentation fault); remove or repair it");
  EXPECT_EQ(end.value().at(0).problem, "the process that listed its devices was killed by signal 13; try again");
}

/// Each device and its problem, if any.
std::vector<std::string> described(const std::vector<DeviceInfo>& devices) {
  std::vector<std::string> texts;
  for (const DeviceInfo& info : devices) texts.push_back(info.name + ": " + info.problem);
  return texts;
}

/// 0 where `body` gets the devices that are there from a list made under its conditions, well before a driver would
/// be given up.
int lists_all(const std::function<std::vector<DeviceInfo>()>& body) {
  const auto expected = described(list_devices());
  // With its children.
  setpgid(0, 0);
  std::signal(SIGALRM, [](int) { kill(0, SIGKILL); });
  alarm(static_cast<unsigned>(backend::probe_patience / std::chrono::seconds(1)) - 2);
  const auto listed = described(body());
  alarm(0);
  for (const std::string& text : listed) std::cerr << text << '\n';
  return listed == expected ? 0 : 1;
}

/// Tests of listings, each in a process of its own, into which no driver has been loaded yet. A listing that hangs
/// ends that process.
class ListDevices : public Probe {
 protected:
  ListDevices() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  /// While another thread is inside dlopen().
  std::vector<DeviceInfo> list_during_dlopen() const {
    const std::string entered = fifo("entered");
    const std::string release = fifo("release");
    setenv("KILN_STAND_IN", "block", 1);
    setenv("KILN_STAND_IN_FOLDER", folder_.path().c_str(), 1);
    std::thread loader([] { dlopen(KILN_STAND_IN_LIBRARY, RTLD_NOW); });
    const base::FileHandle inside(open(entered.c_str(), O_RDONLY | O_CLOEXEC));
    auto devices = list_devices();
    close(open(release.c_str(), O_WRONLY));
    loader.join();
    return devices;
  }

  /// While another thread is inside setlocale(), which waits for a FIFO to be opened by a writer, too.
  std::vector<DeviceInfo> list_during_setlocale() const {
    std::filesystem::create_directory(folder_.path() / "kiln_TEST");
    const std::string file = fifo("kiln_TEST/LC_CTYPE");
    setenv("LOCPATH", folder_.path().c_str(), 1);
    std::atomic<pid_t> number = 0;
    std::thread setter([&number] {
      number = gettid();
      setlocale(LC_CTYPE, "kiln_TEST");
    });
    // The number of the system call that the thread waits in.
    const auto waits_in = [&number] {
      return fakes::read_file(fmt::format("/proc/self/task/{}/syscall", number.load()))
          .starts_with(fmt::format("{} ", SYS_openat));
    };
    while (!waits_in()) std::this_thread::yield();
    auto devices = list_devices();
    close(open(file.c_str(), O_WRONLY));
    setter.join();
    return devices;
  }

  /// While another thread calls setenv() again and again.
  static std::vector<DeviceInfo> list_beside_setenv() {
    const auto set = [](const char* value) { setenv("KILN_TEST_ENVIRONMENT", value, 1); };
    // The C library keeps what was set once, so the thread below allocates nothing that others read.
    for (const char* value : {"0", "1"}) set(value);
    std::atomic<bool> done = false;
    std::thread setter([&] {
      while (!done)
        for (const char* value : {"0", "1"}) set(value);
    });
    auto devices = list_devices();
    done = true;
    setter.join();
    return devices;
  }

  static std::vector<DeviceInfo> list_without_standard_streams() {
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO}) close(stream);
    const base::FileHandle errors(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10));
    close(STDERR_FILENO);
    auto devices = list_devices();
    dup2(errors.get(), STDERR_FILENO);
    return devices;
  }

  static std::vector<DeviceInfo> list_while_ends_of_children_are_ignored() {
    std::signal(SIGCHLD, SIG_IGN);
    return list_devices();
  }

  /// While another thread waits for every child there is.
  static std::vector<DeviceInfo> list_while_another_waits_for_children() {
    std::atomic<bool> done = false;
    std::thread waiter([&done] {
      while (!done)
        if (waitpid(-1, nullptr, 0) < 0) std::this_thread::yield();
    });
    auto devices = list_devices();
    done = true;
    waiter.join();
    return devices;
  }

  /// What the log says, and whether all devices are listed, with `helper` as KILN_HELPER.
  static std::string log_with_helper(const std::string& helper, const std::vector<std::string>& expected) {
    const Variable variable("KILN_HELPER", helper);
    fakes::LogBook book;
    if (described(list_devices(book.log(LogLevel::debug))) != expected) return "other devices";
    std::string text;
    for (const LogRecord& record : book.records())
      if (record.level == LogLevel::warning && record.message.find("to list their devices") != std::string::npos)
        text += record.message + "\n";
    return text;
  }

  int list_with_helpers_that_cannot_be_used() const {
    const auto expected = described(list_devices());
    for (const auto& helper : {std::string("/nonexistent"), script("crashes", "kill -SEGV $$"),
                               script("garbage", "echo garbage"), script("old", "echo 'kiln-helper 0.0.1'")}) {
      const std::string told = log_with_helper(helper, expected);
      std::cerr << told;
      if (!told.ends_with(": drivers are loaded into this process to list their devices\n")) return 1;
      if (told.find(helper) == std::string::npos || std::count(told.begin(), told.end(), '\n') != 1) return 2;
    }
    return 0;
  }
};

TEST_F(ListDevices, AnswersWhileAnotherThreadIsInsideDlopen) {
  EXPECT_EXIT(_exit(lists_all([this] { return list_during_dlopen(); })), testing::ExitedWithCode(0), "");
}

TEST_F(ListDevices, AnswersWhileAnotherThreadIsInsideSetlocale) {
  EXPECT_EXIT(_exit(lists_all([this] { return list_during_setlocale(); })), testing::ExitedWithCode(0), "");
}

TEST_F(ListDevices, AnswersWhileAnotherThreadCallsSetenv) {
  EXPECT_EXIT(_exit(lists_all(list_beside_setenv)), testing::ExitedWithCode(0), "");
}

TEST_F(ListDevices, AnswersWithoutStandardStreams) {
  EXPECT_EXIT(_exit(lists_all(list_without_standard_streams)), testing::ExitedWithCode(0), "");
}

TEST_F(ListDevices, AnswersWhereTheEndsOfChildrenAreIgnored) {
  EXPECT_EXIT(_exit(lists_all(list_while_ends_of_children_are_ignored)), testing::ExitedWithCode(0), "");
}

TEST_F(ListDevices, AnswersWhereAnotherThreadWaitsForAllChildren) {
  EXPECT_EXIT(_exit(lists_all(list_while_another_waits_for_children)), testing::ExitedWithCode(0), "");
}

TEST_F(ListDevices, AnswersManyThreadsAtOnce) {
  // A helper without drivers, of which 80 would not start in time on a small machine.
  DeviceInfo info = one;
  info.name = "API";
  fakes::write_file(folder_.path() / "list", backend::to_json_line({info}) + "\n");
  const Variable helper("KILN_HELPER", greeting_script("helper", fmt::format("sed \"s/API/$2/\" '{}/list'",
                                                                             folder_.path().string())));
  const long before = fakes::open_descriptors();
  std::vector<std::vector<DeviceInfo>> lists(16);
  std::vector<std::thread> threads;
  for (auto& list : lists) threads.emplace_back([&list] { list = list_devices(); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& list : lists)
    EXPECT_EQ(described(list), (std::vector<std::string>{"cuda: ", "hip: ", "vulkan: ", "opengl: ", "opencl: "}));
  EXPECT_EQ(fakes::open_descriptors(), before);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "there is a child left";
}

TEST_F(ListDevices, AWarningNamesTheGpuThatIsNotUsedBecauseItHasNoCompiler) {
  DeviceInfo gpu = one;
  gpu.name = "cuda:0";
  gpu.identity.api = "cuda";
  gpu.software = false;
  gpu.compiler_problem = "NVRTC is missing: install it";
  DeviceInfo cpu = one;
  cpu.name = "opengl:0";
  cpu.identity.api = "opengl";
  fakes::write_file(folder_.path() / "cuda", backend::to_json_line({gpu}) + "\n");
  fakes::write_file(folder_.path() / "opengl", backend::to_json_line({cpu}) + "\n");
  for (const char* api : {"hip", "vulkan", "opencl"})
    fakes::write_file(folder_.path() / api, backend::to_json_line({}) + "\n");
  const Variable helper("KILN_HELPER",
                        greeting_script("helper", fmt::format("cat '{}'/$2", folder_.path().string())));
  const std::string told = fakes::in_child([]() -> std::string {
    fakes::LogBook book;
    unsetenv("KILN_DEVICE");
    const auto device = open_device("", book.log());
    if (!device) return "skipped";
    std::string text = (*device)->identity().api;
    for (const LogRecord& record : book.records())
      if (record.level == LogLevel::warning) text += "; " + record.message;
    return text;
  });
  if (told == "skipped") GTEST_SKIP() << "there is no OpenGL";
  EXPECT_EQ(told,
            "opengl; Nothing 9000 (cuda:0) is not used, because it has no compiler: NVRTC is missing: install it. "
            "The CPU (opengl:0) is used. To run programs of bundles on the GPU, set KILN_DEVICE=cuda:0, or call "
            "open_device(\"cuda:0\")");
}

TEST_F(ListDevices, LoadsDriversItselfWhereTheHelperCannotBeUsed) {
  EXPECT_EXIT(_exit(list_with_helpers_that_cannot_be_used()), testing::ExitedWithCode(0), "");
}

TEST_F(Probe, ACrashIsToldAsSuchOrAsTheEndWhereTheEndsOfChildrenAreIgnored) {
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  const std::string problem = problem_with_driver(KILN_CRASHING_DRIVER, "");
  std::signal(SIGCHLD, before);
  EXPECT_EQ(problem, "its driver crashed or ended the process that listed its devices; remove or repair it");
}

/// What the machine lists where the drivers of OpenCL and Vulkan are ones that crash, in a process that uses a
/// driver already.
int list_with_crashing_drivers(const char* used) {
  const fakes::TemporaryFolder folder;
  if (used != nullptr && !open_device(used)) return 4;
  for (const auto& [name, value] : fakes::crashing_drivers(folder.path(), KILN_CRASHING_DRIVER))
    setenv(name.c_str(), value.c_str(), 1);
  int crashed = 0;
  for (const DeviceInfo& info : list_devices())
    if (info.problem.find("crashed when it was loaded") != std::string::npos) ++crashed;
  if (crashed != 2) return 2;
  const auto best = open_device();
  return best ? 0 : 3;
}

TEST_F(ListDevices, DriversThatCrashWhenLoadedLeaveTheOthersUsable) {
  EXPECT_EXIT(_exit(list_with_crashing_drivers(nullptr)), testing::ExitedWithCode(0), "");
}

TEST_F(ListDevices, LoadsNoDriverIntoAProcessThatUsesAnother) {
  EXPECT_EXIT(_exit(list_with_crashing_drivers("opengl")), testing::ExitedWithCode(0), "");
}

int forks_of_a_listing() {
  static int forks = 0;
  pthread_atfork(
      nullptr, [] { ++forks; }, nullptr);
  list_devices();
  return forks;
}

TEST_F(ListDevices, NeverForks) { EXPECT_EXIT(_exit(forks_of_a_listing()), testing::ExitedWithCode(0), ""); }

/// What is opened where OpenGL's devices are listed, but do not open.
int open_where_opengl_is_only_listed(const std::string& helper) {
  setenv("KILN_HELPER", helper.c_str(), 1);
  setenv("__EGL_VENDOR_LIBRARY_FILENAMES", "/nonexistent.json", 1);
  const auto best = open_device();
  if (!best) return best.error().message().find("opengl:0") != std::string::npos ? 0 : 2;
  return (*best)->identity().api != "opengl" ? 0 : 3;
}

TEST_F(ListDevices, ADeviceThatIsListedButDoesNotOpenLeavesTheOthersUsable) {
  const std::string helper =
      script("helper", fmt::format("unset __EGL_VENDOR_LIBRARY_FILENAMES\nexec '{}' \"$@\"", helper_));
  EXPECT_EXIT(_exit(open_where_opengl_is_only_listed(helper)), testing::ExitedWithCode(0), "");
}

TEST(FindHelper, TakesTheOneBesideTheProgramUnlessKilnHelperNamesAnother) {
  const auto beside = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "kiln-helper";
  EXPECT_EQ(backend::find_helper(), beside);
  {
    const Variable empty("KILN_HELPER", "");
    EXPECT_EQ(backend::find_helper(), beside);
  }
  const Variable named("KILN_HELPER", "/some/other");
  EXPECT_EQ(backend::find_helper(), "/some/other");
}

TEST(FindHelper, IgnoresKilnHelperAndItsOwnFolderInASetUidProgram) {
  constexpr const char* folder_variable = "KILN_TEST_FOLDER";
  if (fakes::is_set_uid_program()) {
    const auto helper = backend::find_helper();
    fakes::end_set_uid_program(!helper || !helper->starts_with(std::getenv(folder_variable)));
  }
  const fakes::TemporaryFolder folder;
  const auto helper = folder.path() / "kiln-helper";
  std::filesystem::copy_file("/bin/true", helper);
  const std::string result = fakes::run_in_set_uid_program(
      folder.path(), {{folder_variable, folder.path().string()}, {"KILN_HELPER", helper.string()}});
  if (result.starts_with("skipped")) GTEST_SKIP() << result;
  EXPECT_EQ(result, fakes::seen_in_set_uid_program);
}

/// Whether opening the API fails with an error that says `text`.
bool refuses(const char* api, std::string_view text) {
  const auto device = open_device(api);
  return !device && device.error().message().find(text) != std::string::npos;
}

TEST(Drivers, LibrariesThatLackAFunctionAreNamedWithIt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  // Heeded by the process of the death test, which begins anew.
  const char* before = std::getenv("LD_LIBRARY_PATH");
  const std::string folders = before != nullptr ? ":" + std::string(before) : "";
  setenv("LD_LIBRARY_PATH", (KILN_HOLLOW_LIBRARIES + folders).c_str(), 1);
  EXPECT_EXIT(
      _exit(refuses("vulkan", "libvulkan.so.1 has no vkGetInstanceProcAddr: it is not a Vulkan loader") ? 0 : 1),
      testing::ExitedWithCode(0), "");
  EXPECT_EXIT(_exit(refuses("opencl", "libOpenCL.so.1 has no clGetPlatformIDs; Kiln needs OpenCL 1.2") ? 0 : 1),
              testing::ExitedWithCode(0), "");
  folders.empty() ? unsetenv("LD_LIBRARY_PATH") : setenv("LD_LIBRARY_PATH", folders.c_str() + 1, 1);
}

}  // namespace
}  // namespace kiln
