#include "cache/worker_pool.hpp"

#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace kiln::cache {
namespace {

TEST(WorkerPoolTest, UrgentWorkDoesNotWaitForWorkInTheBackground) {
  WorkerPool pool(2);
  std::promise<void> go_on;
  const auto waits = go_on.get_future().share();
  for (int i = 0; i < 10; ++i) pool.submit([waits] { waits.wait(); }, Urgency::background);
  std::promise<void> done;
  pool.submit([&] { done.set_value(); }, Urgency::now);
  done.get_future().wait();
  go_on.set_value();
}

TEST(WorkerPoolTest, UrgentWorkOvertakesWorkInTheBackground) {
  WorkerPool pool(1);
  std::promise<void> go_on;
  std::promise<void> begun;
  pool.submit([&] {
    begun.set_value();
    go_on.get_future().wait();
  });
  begun.get_future().wait();
  std::vector<int> order;
  pool.submit([&] { order.push_back(3); }, Urgency::background);
  pool.submit([&] { order.push_back(1); }, Urgency::now);
  pool.submit([&] { order.push_back(2); }, Urgency::now);
  go_on.set_value();
  pool.finish();
  EXPECT_EQ(order, (std::vector{1, 2, 3}));
}

TEST(WorkerPoolTest, WorkInTheBackgroundUsesAllThreadsAndNoMore) {
  WorkerPool pool(3);
  std::atomic<int> active = 0;
  std::atomic<int> most = 0;
  std::atomic<int> done = 0;
  for (int i = 0; i < 200; ++i)
    pool.submit(
        [&] {
          const int now = ++active;
          int seen = most;
          while (seen < now && !most.compare_exchange_weak(seen, now)) continue;
          std::this_thread::yield();
          --active;
          ++done;
        },
        Urgency::background);
  pool.finish();
  EXPECT_EQ(done, 200);
  EXPECT_LE(most, 3);
}

TEST(WorkerPoolTest, WorkOfEitherUrgencyThatWaitsForOtherWorkGetsIt) {
  for (const Urgency outer : {Urgency::now, Urgency::background})
    for (const Urgency inner : {Urgency::now, Urgency::background}) {
      WorkerPool pool(1);
      std::promise<void> done;
      pool.submit(
          [&] {
            std::promise<void> answered;
            const WorkerPool::Uncounted waiting(pool);
            pool.submit([&] { answered.set_value(); }, inner);
            answered.get_future().wait();
            done.set_value();
          },
          outer);
      done.get_future().wait();
    }
}

TEST(WorkerPoolTest, AllWorkIsDoneHoweverItIsSubmitted) {
  std::atomic<int> done = 0;
  WorkerPool pool(4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i)
        pool.submit(
            [&, i, t] {
              if (i % 10 == 0) {
                const WorkerPool::Uncounted waiting(pool);
                pool.submit([&] { ++done; }, t % 2 == 0 ? Urgency::now : Urgency::background);
              }
              ++done;
            },
            i % 3 == 0 ? Urgency::background : Urgency::now);
    });
  for (auto& thread : threads) thread.join();
  pool.finish();
  EXPECT_EQ(done, 8 * 550);
}

}  // namespace
}  // namespace kiln::cache
