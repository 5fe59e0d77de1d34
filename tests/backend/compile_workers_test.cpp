#include "backend/compile_workers.hpp"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/cuda/rtc_call.hpp"
#include "fakes/cache_fixture.hpp"
#include "fakes/child.hpp"
#include "fakes/files.hpp"
#include "fakes/mounted_disk.hpp"
#include "fakes/set_uid.hpp"
#include "fakes/temporary_folder.hpp"

namespace kiln {
namespace {

using backend::CompilePlaces;
using std::chrono::milliseconds;
using std::chrono::seconds;

/// Waits until `is_so`, a minute at most.
bool happens(const std::function<bool()>& is_so) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!is_so()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(milliseconds(2));
  }
  return true;
}

/// What the system tells of a process after its name: "STATE PARENT ..."; empty if there is none.
std::string state_of(const std::string& process) {
  std::ifstream file("/proc/" + process + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t end = text.rfind(')');
  return end == std::string::npos ? "" : text.substr(end + 2);
}

/// The processes that a process has started and not waited for.
std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  for (const auto& item : std::filesystem::directory_iterator("/proc")) {
    const std::string name = item.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string state = state_of(name);
    if (state.size() > 2 && std::stoi(state.substr(2)) == parent) children.push_back(std::stoi(name));
  }
  return children;
}

/// Whether a process runs. One that has ended and that its parent does not wait for does not.
bool exists(pid_t process) {
  const std::string state = state_of(std::to_string(process));
  return !state.empty() && state.front() != 'Z';
}

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

std::string library() { return KILN_COMMANDED_NVRTC; }

/// What the stand-in does, in this process.
void compile_here(const std::string& source) {
  if (source.starts_with("hang"))
    for (;;) pause();
  if (source.starts_with("sleep "))
    std::this_thread::sleep_for(milliseconds(std::atoi(source.c_str() + std::string_view("sleep ").size())));
}

/// Compiles with the stand-in where this thread has its place. Returns "here", or what the worker made.
Result<std::string> compile_at_place(CompilePlaces& places, const std::string& source,
                                     const std::string& file = library()) {
  std::string text;
  const auto call = [&] {
    return cuda::RtcCall{.compiler = "NVRTC 13.3",
                         .folder = std::filesystem::current_path().string(),
                         .name = "program",
                         .source = source}
        .to_bytes();
  };
  auto answer = places.run({.compiler = "nvrtc",
                            .title = "NVRTC 13.3",
                            .library = file,
                            .program = "program",
                            .call = call,
                            .here = [&] {
                              compile_here(source);
                              text = "here";
                            }});
  if (!answer) return std::move(answer).error();
  if (!*answer) return text;
  const auto reply = cuda::RtcReply::from_bytes(**answer);
  if (!reply) return std::string("no reply");
  if (reply->result != 0) return fmt::format("error {}: {}", reply->result, reply->log);
  text.resize(reply->image.size());
  std::ranges::transform(reply->image, text.begin(), [](std::byte byte) { return static_cast<char>(byte); });
  return text;
}

class CompileWorkersTest : public testing::Test {
 protected:
  void SetUp() override { set_compile_workers({.idle_limit = seconds(60)}); }
  void TearDown() override { set_compile_workers(default_compile_workers()); }

  /// Compiles at the next place.
  Result<std::string> compile(const std::string& source, Urgency urgency = Urgency::background) const {
    const auto place = places_->wait(urgency);
    return compile_at_place(*places_, source);
  }
  /// Compiles in a worker, because the place in this process is taken.
  Result<std::string> compile_in_worker(const std::string& source) const {
    const auto here = places_->wait(Urgency::background);
    return compile(source);
  }
  pid_t worker() const { return std::stoi(compile_in_worker("").value()); }

  fakes::TemporaryFolder folder_;
  const backend::Machine machine_{.processors = 4, .folders = {folder_.path().string()}};
  std::shared_ptr<CompilePlaces> places_ = std::make_shared<CompilePlaces>(machine_);
};

TEST_F(CompileWorkersTest, ASingleCompilationStaysInThisProcess) {
  EXPECT_EQ(compile("").value(), "here");
  EXPECT_EQ(compile("", Urgency::now).value(), "here");
  EXPECT_EQ(places_->workers(), 0U);
}

TEST_F(CompileWorkersTest, ACompilationThatNobodyReservedAPlaceForGetsOne) {
  EXPECT_EQ(compile_at_place(*places_, "").value(), "here");
  std::promise<void> taken;
  std::promise<void> done;
  std::thread other([&] {
    const auto here = places_->wait(Urgency::now);
    taken.set_value();
    done.get_future().wait();
  });
  taken.get_future().wait();
  const std::string made = compile_at_place(*places_, "").value();
  EXPECT_EQ(children_of(getpid()), std::vector{std::stoi(made)});
  done.set_value();
  other.join();
}

TEST_F(CompileWorkersTest, OneWorkerServesManyCompilations) {
  const pid_t first = worker();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(worker(), first);
  EXPECT_EQ(children_of(getpid()), std::vector{first});
}

TEST_F(CompileWorkersTest, ThereAreNoMoreCompilationsThanProcessors) {
  std::vector<std::unique_ptr<CompilePlace>> places;
  for (unsigned i = 0; i < machine_.processors; ++i) places.push_back(places_->wait(Urgency::background));
  auto one_more = std::async(std::launch::async, [&] { return static_cast<bool>(compile("")); });
  EXPECT_EQ(one_more.wait_for(milliseconds(50)), std::future_status::timeout);
  places.pop_back();
  EXPECT_TRUE(one_more.get());
}

TEST_F(CompileWorkersTest, ThatManyAndNoMoreAreStartedAsAreSet) {
  set_compile_workers({.most = 1, .idle_limit = seconds(60)});
  const auto here = places_->wait(Urgency::background);
  const auto in_worker = places_->wait(Urgency::background);
  auto one_more = std::async(std::launch::async, [&] { return places_->wait(Urgency::background) != nullptr; });
  EXPECT_EQ(one_more.wait_for(milliseconds(50)), std::future_status::timeout);
  set_compile_workers({.most = 0});
  // Without workers, everything is compiled here at once.
  static_cast<void>(places_->wait(Urgency::now));
  EXPECT_TRUE(one_more.get());
}

TEST_F(CompileWorkersTest, AWaitingThreadNoticesThatAnotherProcessHasEndedCompiling) {
  const backend::Machine machine{.processors = 2, .folders = machine_.folders};
  backend::Processors other(machine);
  other.set_compiling(true);
  auto places = std::make_shared<CompilePlaces>(machine);
  // The share of this process is one processor.
  const auto here = places->wait(Urgency::background);
  std::vector<std::future<bool>> waiting;
  for (int i = 0; i < 2; ++i)
    waiting.push_back(std::async(std::launch::async, [&] { return places->wait(Urgency::background) != nullptr; }));
  EXPECT_EQ(waiting[0].wait_for(milliseconds(150)), std::future_status::timeout);
  other.set_compiling(false);
  for (auto& each : waiting) EXPECT_TRUE(each.get());
}

TEST_F(CompileWorkersTest, UrgentCompilationsOvertakeThoseInTheBackground) {
  const backend::Machine machine{.processors = 2, .folders = machine_.folders};
  auto places = std::make_shared<CompilePlaces>(machine);
  auto here = places->wait(Urgency::background);
  // An urgent one has a place of its own.
  auto urgent_here = places->wait(Urgency::now);
  auto in_worker = places->wait(Urgency::background);
  std::mutex mutex;
  std::vector<Urgency> order;
  const auto wait_for = [&](Urgency urgency) {
    return std::async(std::launch::async, [&, urgency] {
      const auto place = places->wait(urgency);
      const std::lock_guard lock(mutex);
      order.push_back(urgency);
    });
  };
  auto background = wait_for(Urgency::background);
  std::this_thread::sleep_for(milliseconds(20));
  auto now = wait_for(Urgency::now);
  std::this_thread::sleep_for(milliseconds(20));
  in_worker.reset();
  now.get();
  background.get();
  EXPECT_EQ(order, (std::vector{Urgency::now, Urgency::background}));
}

TEST_F(CompileWorkersTest, IdleWorkersStop) {
  const std::size_t before = open_descriptors();
  set_compile_workers({.idle_limit = milliseconds(20)});
  const pid_t process = worker();
  EXPECT_TRUE(happens([&] { return places_->workers() == 0 && !exists(process); }));
  EXPECT_TRUE(happens([&] { return children_of(getpid()).empty(); }));
  // The file that divides the processors stays open.
  EXPECT_EQ(open_descriptors(), before + 1);
  EXPECT_NE(worker(), process);
}

TEST_F(CompileWorkersTest, WorkersEndWithTheLastUserOfThem) {
  const std::size_t before = open_descriptors();
  const pid_t process = worker();
  places_.reset();
  EXPECT_FALSE(exists(process));
  EXPECT_TRUE(children_of(getpid()).empty());
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(CompileWorkersTest, LargeProgramsAndImagesPass) {
  EXPECT_EQ(compile_in_worker("large\n" + std::string(std::size_t{20} << 20U, 'x')).value().size(),
            std::size_t{8} << 20U);
}

TEST_F(CompileWorkersTest, ErrorsOfTheCompilerAreReturned) {
  EXPECT_EQ(compile_in_worker("error").value(), "error 6: some text");
}

TEST_F(CompileWorkersTest, ACrashFailsOnlyItsProgramWithWhatTheCompilerSaid) {
  auto good = std::async(std::launch::async, [&] { return compile_in_worker("sleep 100"); });
  const auto bad = compile_in_worker("say terrible things happened\ncrash");
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code(), ErrorCode::compile_failed);
  EXPECT_EQ(bad.error().message(), "NVRTC 13.3 crashed while it compiled program (Aborted)");
  EXPECT_EQ(bad.error().log(), "terrible things happened\n");
  EXPECT_TRUE(good.get());
  EXPECT_TRUE(compile_in_worker(""));
}

TEST_F(CompileWorkersTest, ACompilerThatEndsItsProcessFailsOnlyItsProgram) {
  const auto bad = compile_in_worker("say goodbye\nexit");
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code(), ErrorCode::compile_failed);
  EXPECT_EQ(bad.error().message(), "NVRTC 13.3 ended its process while it compiled program (exit status 3)");
  EXPECT_EQ(bad.error().log(), "goodbye\n");
}

TEST_F(CompileWorkersTest, ACompilerThatTakesAllMemoryFailsOnlyItsProgram) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need more address space than the test allows";
#endif
  const auto bad = compile_in_worker("memory");
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code(), ErrorCode::compile_failed);
  EXPECT_TRUE(compile_in_worker(""));
}

TEST_F(CompileWorkersTest, ACompilerThatHangsIsStopped) {
  set_compile_workers({.time_limit = milliseconds(200), .idle_limit = seconds(60)});
  const auto bad = compile_in_worker("say so far so good\nhang");
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code(), ErrorCode::timed_out);
  EXPECT_EQ(bad.error().message(),
            "NVRTC 13.3 did not compile program within 0.2 s, and was stopped; allow more with KILN_COMPILE_LIMIT "
            "or set_compile_workers()");
  EXPECT_EQ(bad.error().log(), "so far so good\n");
  EXPECT_TRUE(children_of(getpid()).empty());
}

TEST_F(CompileWorkersTest, AWorkerThatWasKilledWhileIdleIsReplaced) {
  const pid_t process = worker();
  kill(process, SIGKILL);
  EXPECT_NE(worker(), process);
}

TEST_F(CompileWorkersTest, AWorkerThatIsKilledTwiceFailsItsProgram) {
  const auto bad = compile_in_worker("kill");
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code(), ErrorCode::device_failed);
  EXPECT_EQ(bad.error().message(),
            "the process in which NVRTC 13.3 compiled program was killed twice (Killed); the machine may have too "
            "little memory");
}

TEST_F(CompileWorkersTest, AProgramWhoseWorkerIsKilledOnceIsCompiledAgain) {
  auto compiled = std::async(std::launch::async, [&] { return compile_in_worker("sleep 300"); });
  ASSERT_TRUE(happens([&] { return !children_of(getpid()).empty(); }));
  std::this_thread::sleep_for(milliseconds(50));
  kill(children_of(getpid()).at(0), SIGKILL);
  EXPECT_TRUE(compiled.get());
}

TEST_F(CompileWorkersTest, WorkersThatAreKilledAtAnyMomentLeaveNothingBehind) {
  const std::size_t before = open_descriptors();
  std::atomic<bool> done = false;
  std::atomic<int> killed = 0;
  std::thread killer([&] {
    while (!done) {
      for (const pid_t process : children_of(getpid())) killed += kill(process, SIGKILL) == 0 ? 1 : 0;
      std::this_thread::sleep_for(milliseconds(3));
    }
  });
  std::atomic<int> compiled = 0;
  std::atomic<int> failed = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 64; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 10; ++round) {
        const auto made = compile("sleep 1");
        ++(made ? compiled : failed);
        EXPECT_TRUE(made || made.error().message().find("was killed twice") != std::string::npos);
      }
    });
  for (auto& thread : threads) thread.join();
  done = true;
  killer.join();
  EXPECT_EQ(compiled + failed, 640);
  EXPECT_GT(killed, 0);
  places_.reset();
  EXPECT_TRUE(children_of(getpid()).empty());
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(CompileWorkersTest, AnOptionRefersToTheWorkingFolderOfTheApplication) {
  const auto before = std::filesystem::current_path();
  EXPECT_EQ(compile_in_worker("folder").value(), before.string());
  std::filesystem::current_path(folder_.path());
  EXPECT_EQ(compile_in_worker("folder").value(), folder_.path().string());
  std::filesystem::current_path(before);
}

TEST_F(CompileWorkersTest, AnotherCompilerInTheFileIsNotUsed) {
  const auto here = places_->wait(Urgency::background);
  const auto place = places_->wait(Urgency::background);
  EXPECT_EQ(compile_at_place(*places_, "", KILN_FAKE_NVRTC_12).value(), "error -1: ");
}

TEST_F(CompileWorkersTest, WithoutAHelperEverythingIsCompiledHere) {
  for (const char* helper : {"/no/such/helper", "/bin/true", "/bin/cat", "/dev/null"}) {
    setenv("KILN_HELPER", helper, 1);
    places_ = std::make_shared<CompilePlaces>(machine_);
    EXPECT_EQ(compile_in_worker("").value(), "here") << helper;
    // Nothing is started again and again.
    EXPECT_EQ(compile_in_worker("").value(), "here") << helper;
    EXPECT_TRUE(children_of(getpid()).empty()) << helper;
  }
  unsetenv("KILN_HELPER");
}

TEST_F(CompileWorkersTest, AHelperThatSaysNothingIsNotUsed) {
  const auto helper = folder_.path() / "helper";
  fakes::write_file(helper, "#!/bin/sh\nexec sleep 600\n");
  std::filesystem::permissions(helper, std::filesystem::perms::owner_all);
  setenv("KILN_HELPER", helper.c_str(), 1);
  EXPECT_EQ(compile_in_worker("").value(), "here");
  EXPECT_TRUE(children_of(getpid()).empty());
  unsetenv("KILN_HELPER");
}

TEST_F(CompileWorkersTest, AHelperThatEndsBeforeItGreetsIsNotUsed) {
  setenv("KILN_HELPER", "/bin/false", 1);
  EXPECT_EQ(compile_in_worker("").value(), "here");
  EXPECT_EQ(compile_in_worker("").value(), "here") << "none is started for a while";
  unsetenv("KILN_HELPER");
}

TEST_F(CompileWorkersTest, ShareOfOneProcessorLetsUrgentCompilationsRunBesideEachOther) {
  const backend::Machine machine{.processors = 2, .folders = machine_.folders};
  backend::Processors other(machine);
  other.set_compiling(true);
  auto places = std::make_shared<CompilePlaces>(machine);
  const auto first = places->wait(Urgency::now);
  const auto second = places->wait(Urgency::now);
  EXPECT_EQ(places->workers(), 0U);
}

TEST_F(CompileWorkersTest, AProcessGetsItsShareThoughAnotherOneKeepsAllTokens) {
  backend::Processors other(machine_);
  other.set_compiling(true);
  std::vector<std::unique_ptr<backend::Processors::Token>> tokens;
  while (auto token = other.take_token()) tokens.push_back(std::move(token));
  ASSERT_EQ(tokens.size(), machine_.processors);
  // Its share is two: one here, and one in a worker.
  const auto here = places_->wait(Urgency::background);
  std::atomic<bool> has_worker = false;
  std::thread waiting([&] {
    EXPECT_NE(places_->wait(Urgency::background), nullptr);
    has_worker = true;
  });
  // Places are looked for whenever one is given back.
  EXPECT_TRUE(happens([&] {
    static_cast<void>(places_->wait(Urgency::now));
    return has_worker.load();
  }));
  waiting.join();
}

TEST_F(CompileWorkersTest, WhereNoProcessCanBeStartedEverythingIsCompiledHere) {
  EXPECT_EQ(fakes::in_ordinary_child(folder_.path(),
                                     [&] {
                                       const rlimit none = {1, 1};
                                       setrlimit(RLIMIT_NPROC, &none);
                                       return compile_in_worker("").value();
                                     }),
            "here");
}

TEST_F(CompileWorkersTest, WhereSeccompForbidsProcessesEverythingIsCompiledHere) {
  EXPECT_EQ(
      fakes::in_child([&]() -> std::string {
        sock_filter program[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 3, 0),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 2, 0),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_vfork, 1, 0),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        };
        const sock_fprog filter{.len = sizeof program / sizeof *program, .filter = program};
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
          return "here";
        return compile_in_worker("").value();
      }),
      "here");
}

TEST_F(CompileWorkersTest, AUserWithoutANameAHomeOrAFolderToWriteToGetsWorkers) {
  if (!fakes::is_root()) GTEST_SKIP() << "only root can become another user and mount";
  const std::string result = fakes::in_child([&]() -> std::string {
    if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
      return "skipped: no name space";
    const fakes::ReadOnlyMount memory("/dev/shm");
    const fakes::ReadOnlyMount temporary("/tmp");
    const fakes::ReadOnlyMount root("/");
    if (!memory.mounted() || !temporary.mounted() || !root.mounted()) return "skipped: no mount";
    for (const char* variable : {"HOME", "XDG_CACHE_HOME", "KILN_CACHE_DIR", "TMPDIR"}) unsetenv(variable);
    if (setgroups(0, nullptr) != 0 || setgid(54321) != 0 || setuid(54321) != 0) return "skipped: no other user";
    places_ =
        std::make_shared<CompilePlaces>(backend::Machine{.processors = 4, .folders = backend::Machine{}.folders});
    const std::string made = compile_in_worker("").value();
    return made == "here" ? "it was compiled here" : "it was compiled in a worker";
  });
  if (result.starts_with("skipped")) GTEST_SKIP() << result;
  EXPECT_EQ(result, "it was compiled in a worker");
}

TEST_F(CompileWorkersTest, ASetUidProgramHasNoWorkers) {
  if (fakes::is_set_uid_program()) fakes::end_set_uid_program(compile_in_worker("").value() == "here");
  const std::string result = fakes::run_in_set_uid_program(folder_.path());
  if (result.starts_with("skipped")) GTEST_SKIP() << result;
  EXPECT_EQ(result, fakes::seen_in_set_uid_program);
}

TEST_F(CompileWorkersTest, AForkedChildHasWorkersOfItsOwn) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer does not follow threads that a forked child starts";
#endif
  const pid_t process = worker();
  const std::string childs = fakes::in_child([&] {
    const std::string made = compile_in_worker("").value();
    places_.reset();
    return made;
  });
  EXPECT_NE(childs, std::to_string(process));
  EXPECT_NE(childs, "here");
  EXPECT_FALSE(exists(std::stoi(childs)));
  EXPECT_EQ(worker(), process);
}

TEST_F(CompileWorkersTest, AForkDuringACompilationDisturbsNeitherProcess) {
  std::vector<std::future<Result<std::string>>> busy;
  for (int i = 0; i < 4; ++i) busy.push_back(std::async(std::launch::async, [&] { return compile("sleep 300"); }));
  ASSERT_TRUE(happens([&] { return places_->workers() > 0; }));
  const std::string childs = fakes::in_child([&] { return compile("").value(); });
  EXPECT_EQ(childs, "here");
  for (auto& each : busy) EXPECT_TRUE(each.get());
}

TEST_F(CompileWorkersTest, AProgramThatTheApplicationExecutesInheritsNothing) {
  const pid_t process = worker();
  ASSERT_TRUE(exists(process));
  const std::string file = folder_.path() / "list";
  fakes::Child child([&](const fakes::Child::Report&) {
    const int list = open(file.c_str(), O_WRONLY | O_CREAT, 0600);
    dup2(list, STDOUT_FILENO);
    close(list);
    execl("/bin/ls", "/bin/ls", "-l", "/proc/self/fd", nullptr);
  });
  child.wait();
  const std::string listed = fakes::read_file(file);
  EXPECT_EQ(listed.find("socket"), std::string::npos) << listed;
  EXPECT_EQ(listed.find("kiln-compil"), std::string::npos) << listed;
}

TEST_F(CompileWorkersTest, WorkersInheritOnlyTheirStandardStreams) {
  const int file = open("/dev/null", O_RDONLY);
  const pid_t process = worker();
  std::set<std::string> open_in_worker;
  for (const auto& each : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", process)))
    open_in_worker.insert(std::filesystem::read_symlink(each.path()));
  close(file);
  // /dev/null, the socket, and the file for its output.
  EXPECT_LE(open_in_worker.size(), 3U);
}

class EndOfTheApplication : public CompileWorkersTest, public testing::WithParamInterface<const char*> {};

TEST_P(EndOfTheApplication, LeavesNoWorker) {
  const std::string how = GetParam();
  fakes::Child child([&](const fakes::Child::Report& report) {
    std::vector<std::thread> busy;
    for (int i = 0; i < 3; ++i)
      busy.emplace_back([&] { static_cast<void>(compile(how == "idle" ? "sleep 1" : "hang")); });
    while (children_of(getpid()).empty()) std::this_thread::sleep_for(milliseconds(1));
    report(std::to_string(children_of(getpid()).at(0)));
    if (how == "exit") std::_Exit(0);
    if (how == "abort") {
      std::signal(SIGABRT, SIG_DFL);
      const rlimit none = {};
      setrlimit(RLIMIT_CORE, &none);
      std::abort();
    }
    if (how == "exec") execl("/bin/sleep", "sleep", "0.5", nullptr);
    for (;;) pause();
  });
  const pid_t process = std::stoi(child.report());
  if (how == "kill" || how == "idle") child.kill();
  EXPECT_TRUE(happens([&] { return !exists(process); }));
}

INSTANTIATE_TEST_SUITE_P(Ways, EndOfTheApplication, testing::Values("exit", "abort", "kill", "idle", "exec"),
                         [](const auto& each) { return std::string(each.param); });

/// A backend that compiles at the places of a process.
class BackendWithWorkers final : public Backend {
 public:
  explicit BackendWithWorkers(std::shared_ptr<CompilePlaces> places) : places_(std::move(places)) {}

  const Identity& identity() const noexcept override { return fake_.identity(); }
  std::unique_ptr<CompilePlace> wait_for_place(Urgency urgency) override { return places_->wait(urgency); }
  Result<Compiled> compile(const Request& request) override {
    if (auto made = compile_at_place(*places_, request.source()); !made) return std::move(made).error();
    return fake_.compile(request);
  }
  Result<std::unique_ptr<Module>> load(const Binary& binary) override { return fake_.load(binary); }

 private:
  const std::shared_ptr<CompilePlaces> places_;
  fakes::FakeBackend fake_;
};

TEST_F(CompileWorkersTest, ProcessesWhoseWorkersAreKilledCompileEveryProgramOnceInAll) {
  constexpr int count = 60;
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i)
    requests.push_back(Request({.name = fmt::format("p{}", i), .source = fmt::format("sleep 5\n// {}", i)}));
  std::vector<std::unique_ptr<fakes::Child>> children;
  for (int i = 0; i < 4; ++i)
    children.push_back(std::make_unique<fakes::Child>([&](const fakes::Child::Report& report) {
      Cache cache(std::make_shared<BackendWithWorkers>(std::make_shared<CompilePlaces>(machine_)),
                  {.directory = folder_.path() / "cache", .threads = 4});
      std::atomic<bool> done = false;
      std::thread killer([&] {
        while (!done) {
          const auto workers = children_of(getpid());
          if (!workers.empty()) kill(workers.front(), SIGKILL);
          std::this_thread::sleep_for(milliseconds(20));
        }
      });
      std::vector<Request> left = requests;
      // A worker may be killed twice. Then the program is asked for again.
      for (int round = 0; round < 100 && cache.preload(left).ready < left.size(); ++round) continue;
      done = true;
      killer.join();
      report(fmt::format("{} {}", cache.programs().size(), cache.stats().compiles));
    }));
  int compiles = 0;
  for (auto& child : children) {
    const std::string text = child->report();
    ASSERT_TRUE(text.starts_with(fmt::format("{} ", count))) << text;
    compiles += std::stoi(text.substr(3));
    EXPECT_EQ(child->wait(), 0);
  }
  EXPECT_EQ(compiles, count);
}

TEST_F(CompileWorkersTest, AnUrgentProgramOvertakesAPreload) {
  const backend::Machine machine{.processors = 2, .folders = machine_.folders};
  Cache cache(std::make_shared<BackendWithWorkers>(std::make_shared<CompilePlaces>(machine)),
              {.directory = folder_.path() / "cache", .threads = 2});
  std::vector<Request> requests;
  for (int i = 0; i < 40; ++i)
    requests.push_back(Request({.name = fmt::format("p{}", i), .source = fmt::format("sleep 10\n// {}", i)}));
  std::promise<void> begun;
  std::atomic<std::size_t> preloaded = 0;
  std::thread preload([&] {
    cache.preload(requests, [&](const Progress& progress) {
      preloaded = progress.done;
      if (progress.done == 1) begun.set_value();
    });
  });
  begun.get_future().wait();
  EXPECT_TRUE(cache.get_async(Request({.name = "urgent", .source = "urgent"})).get());
  EXPECT_LT(preloaded, 40U);
  preload.join();
}

TEST(RtcCallTest, ReachesTheOtherProcessAsItIs) {
  const cuda::RtcCall call{.compiler = "NVRTC 13.3",
                           .folder = "/",
                           .name = std::string("a\0b", 3),
                           .source = "",
                           .options = {"-x", "", "-y=z"},
                           .entries = {"f<int>"},
                           .text = true};
  const std::string bytes = call.to_bytes();
  const auto received = cuda::RtcCall::from_bytes(bytes);
  ASSERT_TRUE(received);
  EXPECT_EQ(received->compiler, call.compiler);
  EXPECT_EQ(received->folder, call.folder);
  EXPECT_EQ(received->name, call.name);
  EXPECT_EQ(received->source, call.source);
  EXPECT_EQ(received->options, call.options);
  EXPECT_EQ(received->entries, call.entries);
  EXPECT_TRUE(received->text);
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(cuda::RtcCall::from_bytes(bytes.substr(0, size))) << size;
  EXPECT_FALSE(cuda::RtcCall::from_bytes(bytes + "x"));
  EXPECT_FALSE(cuda::RtcCall::from_bytes(std::string(1000, '\xff')));
}

TEST(RtcReplyTest, ReachesTheOtherProcessAsItIs) {
  const cuda::RtcReply reply{
      .result = -1, .log = "log", .image = {std::byte{0}, std::byte{255}}, .symbols = {"f", std::nullopt, ""}};
  const std::string bytes = reply.to_bytes();
  const auto received = cuda::RtcReply::from_bytes(bytes);
  ASSERT_TRUE(received);
  EXPECT_EQ(received->result, reply.result);
  EXPECT_EQ(received->log, reply.log);
  EXPECT_EQ(received->image, reply.image);
  EXPECT_EQ(received->symbols, reply.symbols);
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(cuda::RtcReply::from_bytes(bytes.substr(0, size))) << size;
}

class ProcessorsTest : public testing::Test {
 protected:
  fakes::TemporaryFolder folder_;
  const backend::Machine machine_{.processors = 4, .folders = {folder_.path().string()}};
};

TEST_F(ProcessorsTest, AreDividedBetweenThoseWhoCompile) {
  backend::Processors one(machine_);
  backend::Processors other(machine_);
  one.set_compiling(true);
  EXPECT_EQ(one.share(), 4U);
  other.set_compiling(true);
  EXPECT_EQ(one.share(), 2U);
  EXPECT_EQ(other.share(), 2U);
  other.set_compiling(false);
  EXPECT_EQ(one.share(), 4U);
}

TEST_F(ProcessorsTest, EachHasOneWorkerAtMost) {
  backend::Processors one(machine_);
  backend::Processors other(machine_);
  std::vector<std::unique_ptr<backend::Processors::Token>> tokens;
  for (int i = 0; i < 2; ++i) {
    tokens.push_back(one.take_token());
    tokens.push_back(other.take_token());
    EXPECT_NE(tokens.at(tokens.size() - 2), nullptr);
    EXPECT_NE(tokens.back(), nullptr);
  }
  EXPECT_EQ(one.take_token(), nullptr);
  EXPECT_EQ(other.take_token(), nullptr);
  tokens.erase(tokens.begin());
  EXPECT_NE(other.take_token(), nullptr);
}

TEST_F(ProcessorsTest, AreAllOfAProcessThatCannotAgreeWithOthers) {
  backend::Processors processors({.processors = 4, .folders = {"/no/such/folder"}});
  processors.set_compiling(true);
  EXPECT_EQ(processors.share(), 4U);
  EXPECT_NE(processors.take_token(), nullptr);
}

TEST_F(ProcessorsTest, AreNotDividedInAFileOfAnotherUser) {
  if (!fakes::is_root()) GTEST_SKIP() << "only root can give a file to another user";
  const auto file = folder_.path() / "kiln-compiling-0";
  fakes::write_file(file, "");
  ASSERT_EQ(chown(file.c_str(), fakes::other_user, fakes::other_user), 0);
  backend::Processors one(machine_);
  backend::Processors other(machine_);
  one.set_compiling(true);
  other.set_compiling(true);
  EXPECT_EQ(one.share(), 4U);
  std::filesystem::remove(file);
  std::filesystem::create_symlink("/etc/passwd", file);
  backend::Processors third(machine_);
  third.set_compiling(true);
  EXPECT_EQ(third.share(), 4U);
}

}  // namespace
}  // namespace kiln
