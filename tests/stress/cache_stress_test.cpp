#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "fakes/cache_fixture.hpp"

namespace kiln {
namespace {

using fakes::request;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int rounds = 100;
#else
constexpr int rounds = 500;
#endif

class CacheStress : public fakes::CacheTest {};

// 64 threads on 200 keys at a bound of 50, handles held at random, while others evict, trim, prune and flush.
TEST_F(CacheStress, NoProgramIsWrongOrDestroyedWhileHeldAndAllCountersAddUp) {
  CacheOptions options = this->options();
  options.max_programs = 50;
  std::vector<Request> requests;
  for (int i = 0; i < 200; ++i) requests.push_back(request(i));
  std::atomic<int> wrong{0};
  std::atomic<std::uint64_t> asked{0};
  {
    Cache cache(backend_, options);
    std::vector<std::thread> threads;
    for (unsigned seed = 0; seed < 64; ++seed)
      threads.emplace_back([&, seed] {
        std::mt19937 random(seed);
        std::vector<std::pair<Program, std::size_t>> held;
        for (int round = 0; round < rounds; ++round) {
          const std::size_t key = random() % requests.size();
          ++asked;
          if (round % 50 == 7) {
            const auto found = cache.find(requests[key]).value();
            if (found && text(*found) != "source of program " + std::to_string(key)) ++wrong;
            continue;
          }
          Program program = cache.get(requests[key]).value();
          if (text(program) != "source of program " + std::to_string(key)) ++wrong;
          if (random() % 8 == 0) held.emplace_back(std::move(program), key);
          if (held.size() > 2) held.erase(held.begin());
          for (const auto& [kept, number] : held)
            if (text(kept) != "source of program " + std::to_string(number)) ++wrong;
          switch (random() % 400) {
            case 0: cache.trim(random() % 50); break;
            case 1: cache.evict(requests[random() % requests.size()]); break;
            case 2: static_cast<void>(cache.prune({.max_bytes = 20'000})); break;
            case 3: cache.flush(); break;
            case 4: static_cast<void>(cache.programs()); break;
            default: break;
          }
        }
      });
    for (std::thread& thread : threads) thread.join();

    EXPECT_EQ(wrong, 0);
    const Stats stats = cache.stats();
    EXPECT_EQ(stats.requests, asked);
    EXPECT_EQ(stats.compiles, static_cast<std::uint64_t>(backend_->compiles));
    EXPECT_EQ(stats.failures, 0U);
    EXPECT_EQ(stats.replaced, 0U);
    fakes::expect_counts_add_up(stats);
    EXPECT_EQ(stats.programs, stats.compiles + stats.disk_hits - stats.evictions);
    EXPECT_EQ(static_cast<std::uint64_t>(backend_->counts->alive), stats.programs);
    for (const ProgramInfo& program : cache.programs()) EXPECT_EQ(program.references, 0U);
    cache.trim();
    EXPECT_EQ(backend_->counts->alive, 0);
  }
  for (const LogRecord& record : book_.records()) ADD_FAILURE() << record.message;
}

}  // namespace
}  // namespace kiln
