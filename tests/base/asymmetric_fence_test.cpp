#include "base/asymmetric_fence.hpp"

#include <atomic>
#include <barrier>
#include <thread>

#include <gtest/gtest.h>

#include "fakes/child.hpp"

namespace kiln::base {
namespace {

TEST(AsymmetricFence, OneOfTwoThreadsSeesTheOther) {
  if (!AsymmetricFence::available()) GTEST_SKIP() << "this kernel has no membarrier";
  constexpr int rounds = 5000;
  std::atomic<int> light_side = 0;
  std::atomic<int> heavy_side = 0;
  int seen_by_light = 0;
  int both_missed = 0;
  std::barrier step(2);
  std::thread light([&] {
    for (int round = 1; round <= rounds; ++round) {
      step.arrive_and_wait();
      light_side.store(round, std::memory_order_relaxed);
      AsymmetricFence::light();
      seen_by_light = heavy_side.load(std::memory_order_relaxed);
      step.arrive_and_wait();
    }
  });
  for (int round = 1; round <= rounds; ++round) {
    step.arrive_and_wait();
    heavy_side.store(round, std::memory_order_relaxed);
    ASSERT_TRUE(AsymmetricFence::heavy());
    const int seen_by_heavy = light_side.load(std::memory_order_relaxed);
    step.arrive_and_wait();
    if (seen_by_light != round && seen_by_heavy != round) ++both_missed;
  }
  light.join();
  EXPECT_EQ(both_missed, 0);
}

TEST(AsymmetricFence, WorksInAForkedProcess) {
  if (!AsymmetricFence::available()) GTEST_SKIP() << "this kernel has no membarrier";
  EXPECT_EQ(fakes::in_child([]() -> std::string { return AsymmetricFence::heavy() ? "fenced" : "refused"; }),
            "fenced");
}

}  // namespace
}  // namespace kiln::base
