#include "memory/program_table.hpp"

#include <gtest/gtest.h>

#include <barrier>
#include <thread>
#include <vector>

#include "fakes/fake_backend.hpp"
#include "fakes/forbid_call.hpp"

namespace kiln::memory {
namespace {

using fakes::FakeModule;
using fakes::ModuleCounts;

/// Run twice: as it is, and by tests/memory/without_membarrier.cpp where the kernel refuses its help.
class ProgramTableTest : public testing::Test {
 protected:
  static ProgramTable table(std::size_t programs, std::size_t bytes = 1'000'000) {
    return ProgramTable({programs, bytes});
  }

  static Digest digest(int number) {
    Digest digest;
    // All in one place of the index, so that programs push each other aside.
    digest.bytes[0] = std::byte{1};
    digest.bytes[8] = static_cast<std::byte>(number);
    return digest;
  }
  Arrival arrival(int number, std::size_t bytes = 10) {
    return {{digest(number), std::to_string(number)},
            std::make_unique<FakeModule>(std::to_string(number), bytes, counts_)};
  }
  static std::vector<std::string> names(ProgramTable& table) {
    std::vector<std::string> names;
    for (const ProgramInfo& program : table.list()) names.push_back(program.key.name);
    return names;
  }

  std::shared_ptr<ModuleCounts> counts_ = std::make_shared<ModuleCounts>();
};

using Names = std::vector<std::string>;

TEST_F(ProgramTableTest, FindsWhatWasInsertedAndNothingElse) {
  ProgramTable table = this->table(10);
  EXPECT_FALSE(table.find(digest(1)));
  table.insert(arrival(1));
  const Program found = table.find(digest(1));
  ASSERT_TRUE(found);
  EXPECT_EQ(found.name(), "1");
  EXPECT_EQ(found.as<FakeModule>().text(), "1");
  EXPECT_FALSE(table.find(digest(2)));
}

TEST_F(ProgramTableTest, EvictsInTheExactOrderOfLastUse) {
  ProgramTable table = this->table(4);
  for (int i = 0; i < 4; ++i) table.insert(arrival(i));
  for (const int used : {1, 0, 0, 3, 1}) EXPECT_TRUE(table.find(digest(used)));
  EXPECT_EQ(names(table), (Names{"2", "0", "3", "1"}));
  table.insert(arrival(4));
  EXPECT_EQ(names(table), (Names{"0", "3", "1", "4"}));
  EXPECT_TRUE(table.find(digest(0)));
  table.insert(arrival(5));
  EXPECT_EQ(names(table), (Names{"1", "4", "0", "5"}));
  table.insert(arrival(6));
  EXPECT_EQ(names(table), (Names{"4", "0", "5", "6"}));
  EXPECT_EQ(table.totals().evictions, 3U);
}

TEST_F(ProgramTableTest, NeverEvictsAProgramInUse) {
  ProgramTable table = this->table(2);
  const Program held = table.insert(arrival(0));
  for (int i = 1; i < 20; ++i) table.insert(arrival(i));
  EXPECT_EQ(held.as<FakeModule>().text(), "0");
  EXPECT_TRUE(table.find(digest(0)));
  EXPECT_EQ(table.totals().programs, 2U);
  EXPECT_EQ(table.totals().bound_exceeded, 0U);
}

TEST_F(ProgramTableTest, AReleasedProgramKeepsItsPlaceInTheOrder) {
  ProgramTable table = this->table(3);
  Program held = table.insert(arrival(0));
  table.insert(arrival(1));
  table.insert(arrival(2));
  table.insert(arrival(3));
  EXPECT_EQ(names(table), (Names{"0", "2", "3"}));
  held = {};
  table.insert(arrival(4));
  EXPECT_EQ(names(table), (Names{"2", "3", "4"}));
}

TEST_F(ProgramTableTest, ExceedsTheBoundAndCountsItWhenEverythingIsInUse) {
  ProgramTable table = this->table(2);
  std::vector<Program> held;
  for (int i = 0; i < 5; ++i) held.push_back(table.insert(arrival(i)));
  EXPECT_EQ(table.totals().programs, 5U);
  EXPECT_EQ(table.totals().bound_exceeded, 3U);
  held.clear();
  table.insert(arrival(5));
  EXPECT_EQ(table.totals().programs, 2U);
  EXPECT_EQ(names(table), (Names{"4", "5"}));
}

TEST_F(ProgramTableTest, KeepsTheBoundOnBytes) {
  ProgramTable table = this->table(100, 50);
  for (int i = 0; i < 5; ++i) table.insert(arrival(i, 10));
  EXPECT_EQ(table.totals().bytes, 50U);
  table.insert(arrival(5, 25));
  EXPECT_EQ(names(table), (Names{"3", "4", "5"}));
  EXPECT_EQ(table.totals().bytes, 45U);
}

TEST_F(ProgramTableTest, TrimEvictsTheUnusedOnesOldestFirst) {
  ProgramTable table = this->table(10);
  const Program held = table.insert(arrival(0));
  for (int i = 1; i < 6; ++i) table.insert(arrival(i));
  EXPECT_EQ(table.trim(4), 2U);
  EXPECT_EQ(names(table), (Names{"0", "3", "4", "5"}));
  EXPECT_EQ(table.trim(0), 3U);
  EXPECT_EQ(names(table), (Names{"0"}));
  EXPECT_FALSE(table.evict_one());
}

TEST_F(ProgramTableTest, EvictsOneByNameUnlessItIsInUse) {
  ProgramTable table = this->table(10);
  Program held = table.insert(arrival(0));
  EXPECT_FALSE(table.evict(digest(0)));
  EXPECT_FALSE(table.evict(digest(9)));
  held = {};
  EXPECT_TRUE(table.evict(digest(0)));
  EXPECT_FALSE(table.find(digest(0)));
  EXPECT_EQ(counts_->alive, 0);
}

TEST_F(ProgramTableTest, FindsEveryProgramWhileTheirNeighboursComeAndGo) {
  ProgramTable table = this->table(1000);
  for (int i = 0; i < 200; ++i) table.insert(arrival(i));
  for (int i = 0; i < 200; i += 3) EXPECT_TRUE(table.evict(digest(i)));
  for (int i = 0; i < 200; ++i) EXPECT_EQ(static_cast<bool>(table.find(digest(i))), i % 3 != 0) << i;
  for (int i = 0; i < 200; i += 3) table.insert(arrival(i));
  for (int i = 0; i < 200; ++i) EXPECT_EQ(table.find(digest(i)).name(), std::to_string(i));
}

TEST_F(ProgramTableTest, GrowsBeyondItsFirstIndex) {
  ProgramTable table = this->table(100'000);
  std::vector<Digest> digests;
  for (int i = 0; i < 2000; ++i) {
    digests.push_back(fakes::request(i).key().digest);
    table.insert({{digests.back(), std::to_string(i)}, std::make_unique<FakeModule>("", 1, counts_)});
  }
  for (int i = 0; i < 2000; ++i)
    EXPECT_EQ(table.find(digests[static_cast<std::size_t>(i)]).name(), std::to_string(i));
}

TEST_F(ProgramTableTest, CopiesAndMovesKeepTheCount) {
  ProgramTable table = this->table(10);
  Program first = table.insert(arrival(0));
  Program copy = first;
  Program moved = std::move(first);
  EXPECT_EQ(table.list()[0].references, 2U);
  Program& same = copy;
  copy = same;
  EXPECT_EQ(table.list()[0].references, 2U);
  copy = {};
  EXPECT_FALSE(table.evict(digest(0)));
  moved = {};
  EXPECT_EQ(table.list()[0].references, 0U);
  EXPECT_TRUE(table.evict(digest(0)));
}

TEST_F(ProgramTableTest, CountsHitsButNotArrivals) {
  ProgramTable table = this->table(1);
  table.insert(arrival(0));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(table.find(digest(0)));
  EXPECT_EQ(table.list()[0].hits, 3U);
  table.insert(arrival(1));
  EXPECT_EQ(table.list()[0].hits, 0U);
  EXPECT_TRUE(table.find_locked(digest(1)));
  EXPECT_EQ(table.totals().hits, 4U);
}

TEST_F(ProgramTableTest, AHandleMayBeReleasedOnAnotherThread) {
  ProgramTable table = this->table(10);
  table.insert(arrival(0));
  Program here = table.find(digest(0));
  std::thread([handle = std::move(here)]() mutable { handle = {}; }).join();
  EXPECT_EQ(table.list()[0].references, 0U);
  EXPECT_TRUE(table.evict(digest(0)));
}

TEST_F(ProgramTableTest, AHandleOutlivesTheThreadThatTookIt) {
  ProgramTable table = this->table(10);
  table.insert(arrival(0));
  Program taken;
  std::thread([&] { taken = table.find(digest(0)); }).join();
  EXPECT_FALSE(table.evict(digest(0)));
  // Another thread takes over the number of the one that ended.
  std::thread([&] {
    EXPECT_TRUE(table.find(digest(0)));
    taken = {};
  }).join();
  EXPECT_TRUE(table.evict(digest(0)));
}

TEST_F(ProgramTableTest, HandlesOutliveTheTable) {
  std::vector<Program> held;
  {
    ProgramTable table = this->table(10);
    for (int i = 0; i < 4; ++i) table.insert(arrival(i));
    held = {table.find(digest(0)), table.find(digest(0)), table.find(digest(1))};
  }
  EXPECT_EQ(counts_->alive, 2);
  EXPECT_EQ(held[0].as<FakeModule>().text(), "0");
  Program copy = held[2];
  held.pop_back();
  EXPECT_EQ(counts_->alive, 2);
  std::thread([last = std::move(copy)]() mutable { last = {}; }).join();
  EXPECT_EQ(counts_->alive, 1);
  held.pop_back();
  EXPECT_EQ(held[0].name(), "0");
  EXPECT_EQ(counts_->alive, 1);
  held.clear();
  EXPECT_EQ(counts_->alive, 0);
}

TEST_F(ProgramTableTest, ThreadLocalHandlesAreReleasedWhenTheThreadEnds) {
  ProgramTable table = this->table(10);
  table.insert(arrival(0));
  std::thread([&] {
    static thread_local Program kept;
    kept = table.find(digest(0));
  }).join();
  EXPECT_EQ(table.list()[0].references, 0U);
}

TEST_F(ProgramTableTest, MoreThreadsThanSlotsCountAsWell) {
  ProgramTable table = this->table(10);
  table.insert(arrival(0));
  constexpr int threads = 100;
  std::vector<Program> taken(threads);
  {
    std::vector<std::thread> running;
    std::atomic<int> arrived{0};
    for (int i = 0; i < threads; ++i)
      running.emplace_back([&, i] {
        taken[static_cast<std::size_t>(i)] = table.find(digest(0));
        // All are alive at once, so that the numbers run out.
        arrived.fetch_add(1);
        arrived.notify_all();
        for (int seen = arrived.load(); seen < threads; seen = arrived.load()) arrived.wait(seen);
      });
    for (std::thread& thread : running) thread.join();
  }
  EXPECT_EQ(table.list()[0].references, static_cast<std::uint64_t>(threads));
  taken.clear();
  EXPECT_EQ(table.list()[0].references, 0U);
  EXPECT_TRUE(table.evict(digest(0)));
}

TEST_F(ProgramTableTest, AThreadOfManyUsesDoesNotKeepItsProgramsForAsMany) {
  ProgramTable table = this->table(3);
  table.insert(arrival(0));
  std::thread([&] {
    for (int i = 0; i < 10'000; ++i) EXPECT_TRUE(table.find(digest(0)));
  }).join();
  // Each use is later than all of those; what is used is kept and the busy one's program goes.
  for (int i = 1; i < 10; ++i) {
    table.insert(arrival(i));
    if (i > 1) {
      EXPECT_TRUE(table.find(digest(1)));
    }
  }
  EXPECT_TRUE(table.find(digest(1)));
  EXPECT_FALSE(table.find(digest(0)));
}

TEST_F(ProgramTableTest, ALateComerInASharedSlotDoesNotMakeAProgramLookOld) {
  ProgramTable table = this->table(3);
  for (int i = 0; i < 3; ++i) table.insert(arrival(i));
  std::vector<std::thread> threads;
  std::barrier all(base::ThreadSlot::exclusive_slots + 2 * base::ThreadSlot::shared_slots);
  for (std::uint32_t t = 0; t < base::ThreadSlot::exclusive_slots + 2 * base::ThreadSlot::shared_slots; ++t)
    threads.emplace_back([&, t] {
      base::thread_slot.number();
      all.arrive_and_wait();
      // Half of the sharers use it much, and then all of them once.
      for (int i = 0; t % 2 == 0 && i < 1000; ++i) EXPECT_TRUE(table.find(digest(0)));
      all.arrive_and_wait();
      EXPECT_TRUE(table.find(digest(0)));
    });
  for (std::thread& thread : threads) thread.join();
  table.insert(arrival(3));
  table.insert(arrival(4));
  EXPECT_TRUE(table.find(digest(0))) << "1 and 2 were used before it";
  EXPECT_FALSE(table.find(digest(1)));
  EXPECT_FALSE(table.find(digest(2)));
}

TEST_F(ProgramTableTest, ASecondTableCountsFromZero) {
  for (int life = 0; life < 3; ++life) {
    ProgramTable table = this->table(10);
    table.insert(arrival(1));
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(table.find(digest(1)));
    EXPECT_EQ(table.totals().hits, 5U);
    EXPECT_EQ(table.list().at(0).hits, 5U);
  }
}

TEST_F(ProgramTableTest, AHandleOfAnEndedTableDoesNotSeeTheProgramsThatCameAfter) {
  Program kept;
  {
    ProgramTable table = this->table(10);
    table.insert(arrival(1));
    kept = table.find(digest(1));
  }
  ProgramTable table = this->table(10);
  table.insert(arrival(1));
  table.insert(arrival(2));
  EXPECT_EQ(kept.name(), "1");
  EXPECT_EQ(counts_->alive, 3);
  kept = {};
  EXPECT_EQ(counts_->alive, 2);
  EXPECT_EQ(names(table), (Names{"1", "2"}));
}

TEST_F(ProgramTableTest, KeepsItsProgramsWhenTheKernelStopsHelping) {
  // In a child process: a filter cannot be taken off again.
  const auto child = [this] {
    int failed = 0;
    {
      ProgramTable table = this->table(1);
      table.insert(arrival(1));
      const bool helped = base::AsymmetricFence::available();
      if (!fakes::forbid_call(SYS_membarrier)) std::_Exit(3);
      const bool evicted = table.evict(digest(1));
      table.insert(arrival(2));
      failed = evicted == helped || !table.find(digest(2));
    }
    std::_Exit(failed);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace kiln::memory
