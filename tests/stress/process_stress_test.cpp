#include <gtest/gtest.h>

#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "fakes/cache_fixture.hpp"

namespace kiln {
namespace {

using fakes::request;

class ManyProcesses : public fakes::CacheTest {
 protected:
  /// Runs `work` in that many processes at once; the sum of what they return, each less than 100.
  static int sum_over(int processes, const std::function<int(int)>& work) {
    int gate[2];
    if (pipe(gate) != 0) std::abort();
    std::vector<pid_t> children;
    for (int i = 0; i < processes; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        close(gate[1]);
        char go = 0;
        // Ends when the parent closes the other end: all begin at once.
        static_cast<void>(!read(gate[0], &go, 1));
        _exit(work(i));
      }
      children.push_back(child);
    }
    close(gate[0]);
    close(gate[1]);
    int sum = 0;
    for (const pid_t child : children) {
      int status = 0;
      waitpid(child, &status, 0);
      EXPECT_TRUE(WIFEXITED(status));
      sum += WEXITSTATUS(status);
    }
    return sum;
  }
};

TEST_F(ManyProcesses, EightColdOnTheSameFiftyKeysCompileFiftyInAll) {
  const int compiles = sum_over(8, [&](int) {
    Cache cache(backend_, options());
    for (int i = 0; i < 50; ++i)
      if (text(cache.get(request(i)).value()) != "source of program " + std::to_string(i)) return 99;
    return static_cast<int>(cache.stats().compiles);
  });
  EXPECT_EQ(compiles, 50);
  EXPECT_EQ(entries().size(), 50U);
}

TEST_F(ManyProcesses, AProcessKilledWhileCompilingHoldsNobodyUp) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    backend_->on_compile = [&](const Request&) {
      static_cast<void>(!write(ready[1], "x", 1));
      for (;;) pause();
    };
    static_cast<void>(Cache(backend_, options()).get(request(0)));
    _exit(0);
  }
  char signal = 0;
  ASSERT_EQ(read(ready[0], &signal, 1), 1);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
  CacheOptions options = this->options();
  // Were the dead one's lock still there, this test would run into its own time limit.
  options.lock_timeout = std::chrono::hours(1);
  Cache cache(backend_, options);
  EXPECT_EQ(text(cache.get(request(0)).value()), "source of program 0");
}

TEST_F(ManyProcesses, StatisticsOfAllProcessesAddUp) {
  sum_over(8, [&](int) {
    Cache cache(backend_, options());
    for (int i = 0; i < 25; ++i) static_cast<void>(cache.get(request(i % 10)).value());
    return 0;
  });
  Cache cache(backend_, options());
  const auto json = [&] {
    std::FILE* file = std::fopen((folder_.path() / "cache" / "cache_stats.json").c_str(), "r");
    std::string text(2000, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), file));
    std::fclose(file);
    return text;
  }();
  EXPECT_NE(json.find("\"sessions\": 8"), std::string::npos) << json;
  EXPECT_NE(json.find("\"requests\": 200"), std::string::npos) << json;
  EXPECT_NE(json.find("\"compiles\": 10"), std::string::npos) << json;
}

}  // namespace
}  // namespace kiln
