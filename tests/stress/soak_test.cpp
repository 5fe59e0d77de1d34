#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <random>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "fakes/cache_fixture.hpp"
#include "fakes/files.hpp"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;
using fakes::request;

/// For how long; `./dev soak` says an hour.
std::chrono::seconds asked_for() {
  const char* seconds = std::getenv("KILN_SOAK_SECONDS");
  return std::chrono::seconds(seconds != nullptr ? std::atoi(seconds) : 10);
}

struct Used {
  long kilobytes = 0;
  long descriptors = 0;
};

Used used() {
  Used used;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) used.kilobytes = std::atol(line.c_str() + 6);
  used.descriptors = fakes::open_descriptors();
  return used;
}

class Soak : public fakes::CacheTest {
 protected:
  static constexpr int keys = 400;

  /// One of everything that a cache does, at random; how many programs were wrong.
  int work(Cache& cache, std::mt19937& random, std::atomic<std::uint64_t>& asked) {
    const int key = static_cast<int>(random() % keys);
    const auto is_right = [&](const Result<Program>& program) {
      return program && text(*program) == "source of program " + std::to_string(key);
    };
    switch (random() % 1000) {
      case 0: cache.trim(random() % 50); return 0;
      case 1: cache.evict(request(key)); return 0;
      case 2: return cache.prune({.max_bytes = 100'000}) ? 0 : 1;
      case 3: cache.flush(); return 0;
      case 4: return cache.programs().size() <= keys ? 0 : 1;
      case 5: return cache.clear() ? 0 : 1;
      default: break;
    }
    ++asked;
    if (random() % 10 == 0) return is_right(cache.get_async(request(key)).get()) ? 0 : 1;
    return is_right(cache.get(request(key))) ? 0 : 1;
  }

  /// A process that does the same until then, or is killed half-way, one time out of two.
  pid_t start_neighbour(unsigned seed, Clock::time_point until) {
    const pid_t child = fork();
    if (child == 0) {
      std::mt19937 random(seed);
      std::atomic<std::uint64_t> asked{0};
      int wrong = 0;
      {
        CacheOptions options = this->options();
        options.log = {};
        Cache cache(backend_, options);
        const auto end = Clock::now() + (until - Clock::now()) / (seed % 2 == 0 ? 2 : 1);
        while (Clock::now() < end) wrong += work(cache, random, asked);
        if (seed % 2 == 0) std::raise(SIGKILL);
      }
      _exit(wrong == 0 ? 0 : 1);
    }
    return child;
  }
};

TEST_F(Soak, MemoryAndDescriptorsStayFlatAndCountersAddUp) {
  constexpr int parts = 30;
  constexpr unsigned threads = 8;
  CacheOptions options = this->options();
  options.max_programs = 100;
  std::atomic<std::uint64_t> asked{0};
  std::atomic<int> wrong{0};
  std::vector<Used> samples;
  {
    Cache cache(backend_, options);
    const auto part = asked_for() / double{parts};
    unsigned seed = 0;
    for (int i = 0; i < parts; ++i) {
      const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(part);
#if !defined(__SANITIZE_THREAD__)  // Which does not follow a process that forks while it has threads.
      const pid_t child = start_neighbour(++seed, until);
#endif
      std::vector<std::thread> running;
      for (unsigned thread = 0; thread < threads; ++thread)
        running.emplace_back([&, random = std::mt19937(++seed)]() mutable {
          while (Clock::now() < until) wrong += work(cache, random, asked);
        });
      for (std::thread& thread : running) thread.join();
#if !defined(__SANITIZE_THREAD__)
      int status = 0;
      waitpid(child, &status, 0);
      EXPECT_TRUE(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)) << status;
#endif
      cache.flush();
      samples.push_back(used());
    }
    EXPECT_EQ(wrong, 0);
    const Stats stats = cache.stats();
    EXPECT_EQ(stats.requests, asked);
    EXPECT_EQ(stats.failures, 0U);
    EXPECT_EQ(stats.save_failures, 0U);
    EXPECT_EQ(stats.compiles, static_cast<std::uint64_t>(backend_->compiles));
    fakes::expect_counts_add_up(stats);
    cache.trim();
    EXPECT_EQ(backend_->counts->alive, 0);
  }
  // The first third is for what is allocated once.
  const auto most = [&](int from, int to, long Used::*of) {
    long found = 0;
    for (int i = from; i < to; ++i) found = std::max(found, samples[static_cast<std::size_t>(i)].*of);
    return found;
  };
  const long before = most(parts / 3, 2 * parts / 3, &Used::kilobytes);
  const long after = most(2 * parts / 3, parts, &Used::kilobytes);
  const long descriptors = samples.back().descriptors;
  std::cout << asked << " gets in " << asked_for().count() << " s; at most " << before << " kB, then " << after
            << " kB; " << descriptors << " descriptors\n";
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  EXPECT_LE(after, before + before / 20 + 1024) << "memory grows";
#endif
  EXPECT_EQ(descriptors, most(0, parts, &Used::descriptors));
  EXPECT_EQ(descriptors, samples.front().descriptors);
  for (const LogRecord& record : book_.records()) ADD_FAILURE() << record.message;
}

}  // namespace
}  // namespace kiln
