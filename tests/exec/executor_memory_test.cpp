#include <thread>

#include "exec/executor_fixture.hpp"

// What becomes of jobs when the device has no memory left for them.
namespace kiln {
namespace {

TEST_F(ExecutorTest, OutOfMemoryTrimsAndTriesAgainAndThenFailsThatJobAlone) {
  auto executor = make({.lanes = 1});
  std::vector<unsigned char> y(x_.size());
  ASSERT_TRUE(executor->submit(add(1, x_, y)).get());
  ASSERT_TRUE(cache_.get(program("unused")));
  device_->trouble->launch_errors = 1;
  ASSERT_TRUE(executor->submit(add(2, x_, y)).get());
  expect_sum(x_, 2, y);
  EXPECT_EQ(executor->stats().memory_retries, 1U);
  EXPECT_FALSE(cache_.programs().size() > 1) << "what is not in use was trimmed";
  device_->trouble->launch_errors = 2;
  const auto failed = executor->submit(add(3, x_, y)).get();
  EXPECT_EQ(failed.error().code(), ErrorCode::out_of_memory);
  EXPECT_EQ(failed.error().message(), "add_3: no memory to launch");
  ASSERT_TRUE(executor->submit(add(4, x_, y)).get());
  expect_sum(x_, 4, y);
  const auto huge = executor->submit({.memory = {{.bytes = std::size_t{1} << 41U}}}).get();
  EXPECT_EQ(huge.error().code(), ErrorCode::out_of_memory);
  ASSERT_TRUE(executor->submit(add(5, x_, y)).get());
}

TEST_F(ExecutorTest, JobsThatDoNotFitBesideOthersWaitForThem) {
  device_->trouble->memory = 10'000'000;
  auto executor = make({.lanes = 2});
  std::vector<Future<JobReport>> futures;
  for (int i = 0; i < 400; ++i)
    futures.push_back(
        executor->submit({.name = "large", .memory = {{.bytes = i % 3 == 0 ? 9'000'000U : 4'000'000U}}}));
  const auto never = executor->submit({.name = "never", .memory = {{.bytes = 11'000'000}}});
  for (const auto& future : futures) EXPECT_TRUE(future.get()) << future.get().error().message();
  EXPECT_EQ(never.get().error().code(), ErrorCode::out_of_memory);
  // Each large enough that what the other lane keeps idle must go, both at once.
  for (int i = 0; i < 200; ++i) {
    const auto one = executor->submit({.memory = {{.bytes = 6'000'000}}});
    const auto two = executor->submit({.memory = {{.bytes = 3'000'000}}});
    ASSERT_TRUE(one.get()) << one.get().error().message();
    ASSERT_TRUE(two.get()) << two.get().error().message();
  }
  EXPECT_EQ(executor->stats().failed, 1U);
}

TEST_F(ExecutorTest, WhatHasBeenAtTheCallersBufferIsNotRunAgain) {
  auto executor = make({.lanes = 1});
  Job job{.name = "twice", .memory = {{.buffer = device_->allocate(16).value()}}};
  job.steps = {{.request = program("add 1"), .launch = {.arguments = {job_memory(0), job_memory(0)}}},
               {.request = program("add 2"), .launch = {.arguments = {job_memory(0), job_memory(0)}}}};
  device_->trouble->good_launches = 1;
  device_->trouble->launch_errors = 1;
  EXPECT_EQ(executor->submit(job).get().error().code(), ErrorCode::out_of_memory);
  EXPECT_EQ(executor->stats().memory_retries, 0U);
  job.memory = {{.bytes = 16}};
  device_->trouble->good_launches = 1;
  device_->trouble->launch_errors = 1;
  EXPECT_TRUE(executor->submit(job).get()) << "on memory of the job's own";
}

TEST_F(ExecutorTest, AJobThatWaitsForMemoryOfALaneThatIsLostEnds) {
  device_->trouble->memory = 10'000'000;
  auto executor = make({.lanes = 2, .open_limit = std::chrono::milliseconds(100)});
  Job stuck{.name = "stuck", .memory = {{.bytes = 8'000'000}}, .steps = {{.request = program("stuck")}}};
  stuck.time_limit = std::chrono::milliseconds(200);
  const auto first = executor->submit(std::move(stuck));
  while (device_->trouble->allocations < 1) std::this_thread::yield();
  const auto second =
      executor->submit({.name = "second", .memory = {{.bytes = 8'000'000}}, .time_limit = std::chrono::seconds(1)});
  while (executor->stats().memory_retries < 1) std::this_thread::yield();
  device_->trouble->blocked_opens = 1;
  EXPECT_EQ(first.get().error().code(), ErrorCode::timed_out);
  EXPECT_FALSE(second.get()) << "for want of memory, or of time";
  executor.reset();
  device_->trouble->open_gate();
}

TEST_F(ExecutorTest, AJobThatWaitsForMemoryCanBeCancelled) {
  device_->trouble->memory = 10'000'000;
  auto executor = make({.lanes = 1});
  Job first = gate();
  first.memory = {{.bytes = 8'000'000}};
  const auto running = executor->submit(std::move(first));
  while (executor->stats().launches < 1) std::this_thread::yield();
  const auto waiting = executor->submit({.name = "waits", .memory = {{.bytes = 8'000'000}}});
  while (executor->stats().memory_retries < 1) std::this_thread::yield();
  while (!waiting.cancel()) std::this_thread::yield();
  EXPECT_EQ(waiting.get().error().code(), ErrorCode::cancelled);
  const auto next = executor->submit({.name = "next", .memory = {{.bytes = 8'000'000}}});
  device_->trouble->open_gate();
  EXPECT_TRUE(running.get());
  EXPECT_TRUE(next.get());
}

TEST_F(ExecutorTest, MemoryIsNotRoundedUpToMoreThanThereIs) {
  device_->trouble->memory = 9'000'000;
  auto executor = make({.lanes = 1});
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(executor->submit({.memory = {{.bytes = 9'000'000}}}).get());
  EXPECT_EQ(device_->trouble->allocations, 1);
}

TEST_F(ExecutorTest, IdleLanesGiveBackMemoryThatAnotherNeeds) {
  auto executor = make({.lanes = 2});
  std::vector<unsigned char> y(x_.size());
  // Each lane keeps some.
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(executor->submit(add(1, x_, y)).get());
  device_->trouble->launch_errors = 1;
  ASSERT_TRUE(executor->submit(add(1, x_, y)).get());
  EXPECT_LE(fakes::FakeBuffer::alive, 2) << "what the last job was lent";
}

}  // namespace
}  // namespace kiln
