#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "base/file.hpp"
#include "fakes/cache_fixture.hpp"
#include "store/directory.hpp"

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

  /// How `kiln verify --repair` of a directory ends.
  static int repair(const std::filesystem::path& directory) {
    const pid_t child = fork();
    if (child == 0) {
      static_cast<void>(!freopen("/dev/null", "w", stdout));
      execl(KILN_COMMAND, KILN_COMMAND, "verify", "--repair", "--json", "--dir", directory.c_str(), nullptr);
      _exit(127);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return status;
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

TEST_F(ManyProcesses, OneThatIsStoppedWhileCompilingHoldsOthersUpForTheTimeLimitAndNoLonger) {
  const pid_t child = fork();
  if (child == 0) {
    backend_->on_compile = [](const Request&) { raise(SIGSTOP); };
    const bool right = text(Cache(backend_, options()).get(request(0)).value()) == "source of program 0";
    _exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  CacheOptions options = this->options();
  options.lock_timeout = std::chrono::milliseconds(200);
  {
    Cache cache(backend_, options);
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(text(cache.get(request(0)).value()), "source of program 0");
    EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(150));
    EXPECT_EQ(cache.stats().compiles, 1U);
    EXPECT_EQ(text(cache.get(request(1)).value()), "source of program 1") << "of another key nobody has the lock";
  }
  kill(child, SIGCONT);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "it went on where it had stopped";
  Cache cache(backend_, options);
  EXPECT_TRUE(cache.find(request(0)).value());
  EXPECT_EQ(entries().size(), 2U);
}

TEST_F(ManyProcesses, AChildThatOutlivesTheOneWithTheLockHoldsOthersUpForTheTimeLimitAndNoLonger) {
  int forked[2];
  ASSERT_EQ(pipe(forked), 0);
  const pid_t child = fork();
  if (child == 0) {
    backend_->on_compile = [&](const Request&) {
      // The grandchild has the lock file open as well, until it is killed below.
      const pid_t grandchild = fork();
      if (grandchild == 0)
        for (;;) pause();
      static_cast<void>(!write(forked[1], &grandchild, sizeof grandchild));
      for (;;) pause();
    };
    static_cast<void>(Cache(backend_, options()).get(request(0)));
    _exit(0);
  }
  pid_t grandchild = 0;
  ASSERT_EQ(read(forked[0], &grandchild, sizeof grandchild), static_cast<ssize_t>(sizeof grandchild));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  CacheOptions options = this->options();
  options.lock_timeout = std::chrono::milliseconds(200);
  {
    Cache cache(backend_, options);
    EXPECT_EQ(text(cache.get(request(0)).value()), "source of program 0");
  }
  kill(grandchild, SIGKILL);
  close(forked[0]);
  close(forked[1]);
}

#if !defined(__SANITIZE_THREAD__)  // Which does not follow a process that forks while it has threads.
TEST_F(ManyProcesses, AChildOfAProcessWhoseThreadsUseACacheMakesOneOfItsOwn) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP()
      << "a child may inherit a lock of AddressSanitizer's allocator from a thread that it does not have (gcc 12)";
#endif
  CacheOptions options = this->options();
  options.max_programs = 8;
  Cache cache(backend_, options);
  std::atomic<bool> ends{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed)
    threads.emplace_back([&, seed] {
      std::mt19937 random(seed);
      while (!ends) {
        const int i = static_cast<int>(random() % 40);
        if (text(cache.get(request(i)).value()) != "source of program " + std::to_string(i)) ++wrong;
      }
    });
  for (int round = 0; round < 50; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);  // A mutex that a thread of the parent held would never be free.
      Cache own(std::make_shared<fakes::FakeBackend>(), this->options());
      for (int i = 0; i < 10; ++i)
        if (text(own.get(request(i)).value()) != "source of program " + std::to_string(i)) _exit(1);
      own.trim();
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "round " << round;
  }
  ends = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}
#endif

TEST_F(ManyProcesses, EightOfManyThreadsGetTheRightProgramsWhileOthersPruneClearAndRepair) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr unsigned many = 8;
  constexpr int gets_each = 50;
#else
  constexpr unsigned many = 64;
  constexpr int gets_each = 200;
#endif
  constexpr int keys = 100;
  std::vector<pid_t> children;
  for (unsigned process = 0; process < 8; ++process) {
    const pid_t child = fork();
    if (child == 0) {
      CacheOptions options = this->options();
      options.log = {};
      options.max_programs = 50;
      std::atomic<int> wrong{0};
      Stats stats;
      {
        Cache cache(backend_, options);
        std::vector<std::thread> threads;
        for (unsigned seed = 0; seed < many; ++seed)
          threads.emplace_back([&, seed] {
            std::mt19937 random(process * many + seed);
            for (int round = 0; round < gets_each; ++round) {
              const int i = static_cast<int>(random() % keys);
              const auto program = cache.get(request(i));
              if (!program || text(*program) != "source of program " + std::to_string(i)) ++wrong;
            }
          });
        for (std::thread& thread : threads) thread.join();
        stats = cache.stats();
        // One of them takes everything away again and again.
        if (process == 0) static_cast<void>(cache.clear());
      }
      const std::uint64_t sum = stats.memory_hits + stats.disk_hits + stats.bundle_hits + stats.shared_hits + stats.joined +
                                stats.compiles + stats.failures + stats.absent;
      _exit(wrong == 0 && stats.requests == gets_each * many && sum == stats.requests ? 0 : 1);
    }
    children.push_back(child);
  }
  const auto directory = folder_.path() / "cache";
  std::size_t left = children.size();
  std::uint64_t turns = 0;
  std::atomic<bool> ends{false};
  std::uint64_t repairs = 0;
  std::thread repairing([&] {
    for (; !ends; ++repairs)
      EXPECT_EQ(repair(directory), 0) << "nothing is damaged, whatever comes and goes meanwhile";
  });
  while (left > 0) {
    EXPECT_TRUE(prune(directory, {.max_bytes = turns % 3 == 0 ? 0 : 10'000}));
    Cache other(backend_, options());
    if (turns % 2 == 0) static_cast<void>(other.clear());
    ++turns;
    for (pid_t& child : children) {
      int status = 0;
      if (child == 0 || waitpid(child, &status, WNOHANG) != child) continue;
      EXPECT_EQ(status, 0);
      child = 0;
      --left;
    }
  }
  ends = true;
  repairing.join();
  prune(directory, {}).value();
  for (const auto& item : std::filesystem::recursive_directory_iterator(directory)) {
    EXPECT_FALSE(base::Folder::is_temporary(item.path().filename()));
    if (item.path().extension() == ".bin") {
      EXPECT_TRUE(store::read_entry(item.path().parent_path(), item.path().filename()));
    }
  }
  std::cout << "pruned " << turns << " times meanwhile, repaired " << repairs << " times\n";
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
