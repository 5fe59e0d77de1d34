#include <gtest/gtest.h>

#include <barrier>
#include <random>
#include <thread>
#include <vector>

#include "fakes/fake_backend.hpp"
#include "memory/program_table.hpp"

namespace kiln::memory {
namespace {

using fakes::FakeModule;
using fakes::ModuleCounts;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int rounds = 2'000;
constexpr int lives = 100;
#else
constexpr int rounds = 20'000;
constexpr int lives = 500;
#endif

Digest digest(int number) { return fakes::request(number).key().digest; }

TEST(TableStress, NoProgramIsEverWrongOrDestroyedWhileHeld) {
  const auto counts = std::make_shared<ModuleCounts>();
  constexpr int keys = 40;
  std::vector<Digest> digests;
  for (int i = 0; i < keys; ++i) digests.push_back(digest(i));
  ProgramTable table({8, 1'000'000});
  base::Mutex inserting;
  std::atomic<int> wrong{0};
  std::atomic<std::uint64_t> found{0};

  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 8; ++seed)
    threads.emplace_back([&, seed] {
      std::mt19937 random(seed);
      std::vector<Program> held;
      for (int round = 0; round < rounds; ++round) {
        const auto key = static_cast<std::size_t>(random() % keys);
        Program program = table.find(digests[key]);
        if (program) ++found;
        if (!program) {
          const base::MutexLock lock(inserting);
          program = table.find_locked(digests[key]);
          if (program) ++found;
          if (!program)
            program = table.insert({{digests[key], std::to_string(key)},
                                    std::make_unique<FakeModule>(std::to_string(key), 1, counts)});
        }
        if (program.as<FakeModule>().text() != std::to_string(key) || program.name() != std::to_string(key))
          ++wrong;
        if (random() % 4 == 0) held.push_back(program);
        if (held.size() > 5) held.erase(held.begin() + static_cast<std::ptrdiff_t>(random() % held.size()));
        for (const Program& kept : held)
          if (kept.as<FakeModule>().text() != kept.name()) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(table.totals().hits, found);
  for (const ProgramInfo& program : table.list()) EXPECT_EQ(program.references, 0U) << program.key.name;
  table.trim(0);
  EXPECT_EQ(counts->alive, 0);
}

TEST(TableStress, EvictingEndsWhileAProgramIsUsedWithoutPause) {
  const auto counts = std::make_shared<ModuleCounts>();
  ProgramTable table({1, 1'000'000});
  table.insert({{digest(0), "0"}, std::make_unique<FakeModule>("", 1, counts)});
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) static_cast<void>(table.find(digest(0)));
  });
  // Each of these goes by the busy one; it is enough that they come back.
  for (int i = 1; i < 200; ++i) table.insert({{digest(i), "x"}, std::make_unique<FakeModule>("", 1, counts)});
  stop = true;
  busy.join();
  table.trim(0);
  EXPECT_EQ(counts->alive, 0);
}

TEST(TableStress, HandlesReleasedWhileTheTableEndsDestroyTheirProgramsOnce) {
  for (int life = 0; life < lives; ++life) {
    const auto counts = std::make_shared<ModuleCounts>();
    auto table = std::make_unique<ProgramTable>(ProgramTable::Bounds{100, 1'000'000});
    for (int i = 0; i < 3; ++i)
      table->insert({{digest(i), std::to_string(i)}, std::make_unique<FakeModule>("", 1, counts)});
    constexpr int threads = 4;
    std::barrier start(threads + 1);
    std::vector<std::thread> running;
    for (int t = 0; t < threads; ++t)
      running.emplace_back([&, t] {
        std::vector<Program> held;
        for (int i = 0; i < 12; ++i) held.push_back(table->find(digest((i + t) % 3)));
        held.push_back(held.front());
        start.arrive_and_wait();
        while (!held.empty()) {
          // Copies are made of abandoned programs, too.
          const Program copy = held.back();
          held.pop_back();
        }
      });
    start.arrive_and_wait();
    table.reset();
    for (std::thread& thread : running) thread.join();
    ASSERT_EQ(counts->alive, 0);
    ASSERT_EQ(counts->destroyed, 3);
  }
}

}  // namespace
}  // namespace kiln::memory
