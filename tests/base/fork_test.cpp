#include "base/process.hpp"

#include <atomic>
#include <latch>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/asymmetric_fence.hpp"
#include "base/thread_slot.hpp"
#include "fakes/child.hpp"

namespace kiln::base {
namespace {

TEST(Fork, NumbersEachGenerationOfProcesses) {
  const std::uint64_t own = fork_generation();
  const std::string told = fakes::in_child([own]() -> std::string {
    if (fork_generation() == own) return "the child counts as its parent";
    const std::uint64_t childs = fork_generation();
    return fakes::in_child(
        [&] { return fork_generation() == childs ? "the grandchild counts as its parent" : "done"; });
  });
  EXPECT_EQ(told, "done");
  EXPECT_EQ(fork_generation(), own);
}

TEST(Fork, WaitsForAMutexThatAnotherThreadHolds) {
  bool told_child = false;
  ForkMutex outer(ForkMutex::Order::outer, [&told_child] { told_child = true; });
  ForkMutex inner(ForkMutex::Order::inner);
  std::atomic<bool> ends{false};
  std::thread holding([&] {
    while (!ends) {
      const MutexLock lock(outer);
      const MutexLock inside(inner);
    }
  });
  for (int round = 0; round < 50; ++round) {
    const std::string told = fakes::in_child([&]() -> std::string {
      alarm(60);
      const MutexLock lock(outer);
      const MutexLock inside(inner);
      return told_child ? "done" : "the child was not told";
    });
    ASSERT_EQ(told, "done") << "round " << round;
  }
  ends = true;
  holding.join();
  EXPECT_FALSE(told_child);
}

TEST(Fork, WhileAnotherThreadMakesAnObjectOfTheProcessLeavesTheChildToMakeItsOwn) {
  // Static, because each call must have the same lambda.
  static std::latch begun(1);
  static std::latch may_end(1);
  static std::atomic<bool> waits{true};
  const auto object = []() -> const std::string& {
    return once_per_process<const std::string>([] {
      if (waits) {
        begun.count_down();
        may_end.wait();
      }
      return std::make_unique<const std::string>("made");
    });
  };
  std::thread making([&] { object(); });
  begun.wait();
  EXPECT_EQ(fakes::in_child([&] {
              alarm(60);
              waits = false;
              return object();
            }),
            "made");
  may_end.count_down();
  making.join();
  EXPECT_EQ(&object(), &object());
}

TEST(Fork, LeavesTheChildTheNumbersOfThreadsItDoesNotHave) {
  // In a process of its own: other tests count on the number that this thread would take.
  const std::string told = fakes::in_child([]() -> std::string {
    // Registers the handlers, as any table of programs does.
    fork_generation();
    constexpr std::uint32_t exclusive = ThreadSlot::exclusive_slots;
    std::latch all_have_one(exclusive);
    for (std::uint32_t i = 0; i < exclusive; ++i)
      std::thread([&all_have_one] {
        thread_slot.number();
        all_have_one.count_down();
        for (;;) pause();
      }).detach();
    all_have_one.wait();
    return fakes::in_child([] {
      alarm(60);
      return std::to_string(thread_slot.number());
    });
  });
  EXPECT_EQ(told, AsymmetricFence::available() ? "0" : std::to_string(ThreadSlot::exclusive_slots));
}

}  // namespace
}  // namespace kiln::base
