#include <array>
#include <csignal>
#include <fstream>
#include <regex>

#include <sys/resource.h>

#include "cli_fixture.hpp"

namespace kiln::cli {
namespace {

class Demo : public testing::Test {
 protected:
  /// Where the demo makes its temporary folders; nothing may stay there.
  std::filesystem::path temporary() const {
    const auto path = home_.path() / "tmp";
    std::filesystem::create_directories(path);
    return path;
  }
  Environment environment() const { return {{"TMPDIR", temporary().string()}}; }

  TemporaryFolder home_;
  Command kiln_{home_.path()};
};

/// The command while it runs, and what it prints.
class Running {
 public:
  explicit Running(const std::filesystem::path& temporary) {
    std::array<int, 2> ends;
    if (pipe(ends.data()) != 0) throw std::runtime_error("cannot make a pipe");
    process_ = fork();
    if (process_ == 0) {
      dup2(ends[1], STDOUT_FILENO);
      dup2(ends[1], STDERR_FILENO);
      setenv("TMPDIR", temporary.c_str(), 1);
      // SIGQUIT leaves no core behind either.
      const rlimit none{};
      setrlimit(RLIMIT_CORE, &none);
      execl(KILN_COMMAND, KILN_COMMAND, "demo", static_cast<char*>(nullptr));
      _exit(127);
    }
    close(ends[1]);
    output_ = ends[0];
  }
  ~Running() { close(output_); }

  pid_t process() const noexcept { return process_; }

  /// The process that the command started last.
  pid_t child() const {
    std::ifstream children("/proc/" + std::to_string(process_) + "/task/" + std::to_string(process_) + "/children");
    pid_t child = 0;
    children >> child;
    return child;
  }

  /// Everything that is printed until `text` appears, or to the end.
  std::string read_until(const std::string& text) {
    std::array<char, 256> buffer;
    while (text.empty() || printed_.find(text) == std::string::npos) {
      const ssize_t got = read(output_, buffer.data(), buffer.size());
      if (got <= 0) break;
      printed_.append(buffer.data(), static_cast<std::size_t>(got));
    }
    return printed_;
  }

  /// As waitpid() tells it.
  int wait() const {
    int status = 0;
    waitpid(process_, &status, 0);
    return status;
  }

 private:
  pid_t process_ = 0;
  int output_ = -1;
  std::string printed_;
};

TEST_F(Demo, CompilesEveryProgramOnceAndThenFindsItOnDisk) {
  const Outcome outcome = kiln_.run({"demo", "--json", "--runs", "1"}, environment());
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  const auto report = outcome.json();
  const auto programs = report.at("programs").get<std::size_t>();
  EXPECT_GE(programs, 24U);
  EXPECT_FALSE(report.at("device").get<std::string>().empty());
  EXPECT_EQ(report.at("cold").at("compiles"), programs);
  EXPECT_EQ(report.at("warm").at("compiles"), 0);
  EXPECT_EQ(report.at("checked"), programs);
  EXPECT_EQ(report.at("failed"), 0);
  EXPECT_EQ(report.at("per_program").size(), programs);
  EXPECT_GT(report.at("saved_ms"), 0.0);
  EXPECT_LT(report.at("warm").at("get_ms"), report.at("cold").at("get_ms"));
  EXPECT_TRUE(std::filesystem::is_empty(temporary()));
}

TEST_F(Demo, PreloadsItsProgramsIfAsked) {
  const Outcome outcome = kiln_.run({"demo", "--preload", "--json", "--runs", "1"}, environment());
  ASSERT_EQ(outcome.status, 0) << outcome.error;
  const auto report = outcome.json();
  const auto programs = report.at("programs").get<std::size_t>();
  EXPECT_EQ(report.at("preloaded"), true);
  EXPECT_EQ(report.at("cold").at("compiles"), programs);
  EXPECT_EQ(report.at("warm").at("compiles"), 0);
  EXPECT_EQ(report.at("checked"), programs);
  EXPECT_EQ(report.at("failed"), 0);

  const Outcome table = kiln_.run_on_terminal({"demo", "--preload", "--runs", "1"}, "", environment(), 80);
  EXPECT_EQ(table.status, 0) << table.error;
  EXPECT_NE(table.out.find("READY AFTER"), std::string::npos) << table.out;
}

TEST_F(Demo, DrawsATableOnATerminalAndKeepsADirectoryThatWasNamed) {
  const auto directory = home_.path() / "kept";
  const Outcome outcome =
      kiln_.run_on_terminal({"demo", "--runs", "1", "--dir", directory.string()}, "", environment(), 80);
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  EXPECT_NE(outcome.out.find("PROGRAM"), std::string::npos);
  EXPECT_NE(outcome.out.find("24 programs, 0 compiled"), std::string::npos) << outcome.out;
  // A line that wraps could not be redrawn.
  for (const auto& line : lines_of(std::regex_replace(outcome.out, std::regex("\x1b\\[[0-9]*[A-Za-z]|\r"), "")))
    EXPECT_TRUE(display_width(line) <= 80 || contains(line, directory.string())) << line;
  const auto listed = kiln_.run({"ls", "--json", "--dir", directory.string()});
  EXPECT_EQ(listed.status, 0) << listed.error;
  EXPECT_NE(listed.out.find("conv2d_3x3_t8_relu"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_empty(temporary()));
}

TEST_F(Demo, SaysThatNothingCanBeKeptWhereTheDriverGivesNoBinaries) {
  Environment variables = environment();
  variables["MESA_SHADER_CACHE_DISABLE"] = "true";
  const Outcome outcome = kiln_.run({"demo", "--runs", "1"}, variables);
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_NE(outcome.out.find("cannot store them"), std::string::npos) << outcome.out;
  EXPECT_LE(widest(outcome.out), 80U) << outcome.out;
}

TEST_F(Demo, NamesADeviceThatIsNotThere) {
  const Outcome outcome = kiln_.run({"demo", "--json", "--device", "abacus"}, environment());
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_NE(outcome.error.find("abacus"), std::string::npos) << outcome.error;
  EXPECT_TRUE(std::filesystem::is_empty(temporary()));
}

TEST_F(Demo, NamesTheProgramThatAProcessDiedOn) {
  Running running(temporary());
  running.read_until("conv2d_3x3_t8");
  ASSERT_NE(running.child(), 0);
  kill(running.child(), SIGKILL);
  EXPECT_NE(running.read_until("").find("the cold process was killed by signal 9 (Killed) while it ran "),
            std::string::npos);
  const int status = running.wait();
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_TRUE(std::filesystem::is_empty(temporary()));
}

class DemoSignal : public Demo, public testing::WithParamInterface<int> {};

TEST_P(DemoSignal, LeavesNothingBehind) {
  Running running(temporary());
  running.read_until("conv2d_3x3_t8");
  kill(running.process(), GetParam());
  running.read_until("");
  const int status = running.wait();
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), GetParam());
  EXPECT_TRUE(std::filesystem::is_empty(temporary()));
}

INSTANTIATE_TEST_SUITE_P(Every, DemoSignal, testing::Values(SIGINT, SIGTERM, SIGHUP, SIGQUIT),
                         [](const auto& signal) { return "SIG" + std::string(sigabbrev_np(signal.param)); });

}  // namespace
}  // namespace kiln::cli
