#include <atomic>
#include <fstream>
#include <stdexcept>
#include <thread>

#include <nlohmann/json.hpp>

#include "exec/executor_fixture.hpp"

// What becomes of jobs when something fails, hangs, is cancelled or is not there.
namespace kiln {
namespace {

TEST_F(ExecutorTest, WhatDependsOnAFailureIsNotRun) {
  auto executor = make();
  std::vector<unsigned char> y(x_.size());
  const auto broken = executor->submit({.name = "broken", .steps = {{.request = program("does not compile")}}});
  Job job = add(1, x_, y);
  job.after = {broken};
  const auto dependent = executor->submit(std::move(job));
  EXPECT_EQ(broken.get().error().code(), ErrorCode::compile_failed);
  EXPECT_EQ(broken.get().error().log(), "log of p");
  EXPECT_EQ(dependent.get().error().code(), ErrorCode::compile_failed);
  EXPECT_NE(dependent.get().error().message().find("add_1 was not run because a dependency failed"),
            std::string::npos);
  EXPECT_EQ(executor->stats().failed, 2U);
}

TEST_F(ExecutorTest, ALongChainEndsWithTheErrorOfItsFirst) {
  constexpr std::size_t length = 50'000;
  auto executor = make({.queue = length + 1});
  const Promise<void> promise;
  std::vector<Future<JobReport>> futures = {executor->submit({.name = "first", .after = {promise.future()}})};
  while (futures.size() < length) futures.push_back(executor->submit({.name = "later", .after = {futures.back()}}));
  promise.set(Error(ErrorCode::io, "no disk"));
  EXPECT_EQ(futures.back().get().error().code(), ErrorCode::io);
  EXPECT_EQ(futures.back().get().error().message(), "later was not run because a dependency failed: no disk");
  executor->drain();
  EXPECT_EQ(executor->stats().failed, length);
}

TEST_F(ExecutorTest, AQueueOfNoneHoldsOne) {
  auto executor = make({.queue = 0});
  EXPECT_TRUE(executor->submit({.name = "one"}).get());
}

TEST_F(ExecutorTest, WhatAPromiseThatIsGoneWasForIsNotWaitedFor) {
  auto executor = make();
  Future<JobReport> job = [&] {
    const Promise<void> promise;
    return executor->submit({.name = "waits", .after = {promise.future()}});
  }();
  EXPECT_EQ(job.get().error().code(), ErrorCode::cancelled);
}

TEST_F(ExecutorTest, AJobThatHasNotBegunCanBeCancelled) {
  auto executor = make({.lanes = 1});
  std::vector<Future<JobReport>> gates;
  for (int i = 0; i < 3; ++i) gates.push_back(executor->submit(gate()));
  while (executor->stats().launches < 3) std::this_thread::yield();
  std::vector<unsigned char> y(x_.size());
  const auto waiting = executor->submit(add(1, x_, y));
  EXPECT_FALSE(gates.front().cancel());
  EXPECT_TRUE(waiting.cancel());
  EXPECT_FALSE(waiting.cancel());
  EXPECT_EQ(waiting.get().error().code(), ErrorCode::cancelled);
  device_->trouble->open_gate();
  EXPECT_TRUE(when_all(gates).get());
  EXPECT_FALSE(gates.front().cancel());
  executor->drain();
  EXPECT_EQ(y, std::vector<unsigned char>(x_.size()));
  EXPECT_EQ(executor->stats().cancelled, 1U);
  EXPECT_EQ(executor->stats().succeeded, 3U);
}

TEST_F(ExecutorTest, DestroyingItRunsWhatIsQueuedAndItsContinuations) {
  std::vector<std::vector<unsigned char>> outs(50, std::vector<unsigned char>(x_.size()));
  std::atomic<int> continued = 0;
  std::vector<Future<JobReport>> futures;
  {
    auto executor = make();
    for (auto& out : outs) {
      futures.push_back(executor->submit(add(5, x_, out)));
      static_cast<void>(futures.back().then([&](const Result<JobReport>& report) {
        EXPECT_TRUE(report);
        ++continued;
      }));
    }
  }
  EXPECT_EQ(continued, 50);
  for (std::size_t i = 0; i < outs.size(); ++i) {
    EXPECT_TRUE(futures[i].ready());
    expect_sum(x_, 5, outs[i]);
  }
  EXPECT_EQ(futures[0].then([](const Result<JobReport>& report) { return report.ok(); }).get().value(), true)
      << "a continuation after the executor's end runs at once";
  EXPECT_EQ(device_->trouble->open_slots, 0);
}

TEST_F(ExecutorTest, AFailedDeviceFailsItsJobAndTheNextHasAFreshSlot) {
  auto executor = make({.lanes = 1});
  std::vector<unsigned char> y(x_.size());
  device_->trouble->device_errors = 1;
  const auto failed = executor->submit(add(1, x_, y)).get();
  EXPECT_EQ(failed.error().message(), "add_1: the fake device failed");
  ASSERT_TRUE(executor->submit(add(2, x_, y)).get());
  expect_sum(x_, 2, y);
}

TEST_F(ExecutorTest, AJobThatNeverEndsFailsAtItsTimeLimitAndOthersGoOn) {
  auto executor = make({.lanes = 1});
  Job job = gate();
  job.time_limit = std::chrono::milliseconds(20);
  const auto stuck = executor->submit(std::move(job));
  EXPECT_EQ(stuck.get().error().code(), ErrorCode::timed_out);
  EXPECT_NE(stuck.get().error().message().find("gate did not end within its time limit"), std::string::npos);
  std::vector<unsigned char> y(x_.size());
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(executor->submit(add(i, x_, y)).get());
    expect_sum(x_, i, y);
  }
  EXPECT_EQ(executor->stats().timed_out, 1U);
  EXPECT_EQ(device_->trouble->given_up, 1);
  executor.reset();
  // What was abandoned is still there; let it end, so that nothing runs on after the test.
  device_->trouble->open_gate();
}

TEST_F(ExecutorTest, ALaneThatNeverComesBackFromTheDriverIsReplaced) {
  auto executor = make({.lanes = 1, .time_limit = std::chrono::milliseconds(20)});
  const auto stuck = executor->submit({.name = "stuck", .steps = {{.request = program("stuck")}}});
  EXPECT_EQ(stuck.get().error().code(), ErrorCode::timed_out);
  std::vector<unsigned char> y(x_.size());
  Job job = add(7, x_, y);
  job.time_limit = std::chrono::hours(1);
  ASSERT_TRUE(executor->submit(std::move(job)).get());
  expect_sum(x_, 7, y);
  executor.reset();
  // The lost lane ends by itself.
  device_->trouble->open_gate();
}

TEST_F(ExecutorTest, DestroyingItDoesNotWaitForALaneThatNeverComesBack) {
  const auto trace = folder_.path() / "trace.json";
  auto executor = make({.lanes = 1, .time_limit = std::chrono::milliseconds(20), .trace = trace});
  std::vector<unsigned char> y(x_.size());
  ASSERT_TRUE(executor->submit(add(7, x_, y)).get());
  EXPECT_EQ(executor->submit({.name = "stuck", .steps = {{.request = program("stuck")}}}).get().error().code(),
            ErrorCode::timed_out);
  executor.reset();
  std::ifstream file(trace);
  EXPECT_TRUE(nlohmann::json::accept(file)) << "the trace is complete all the same";
  device_->trouble->open_gate();
}

TEST_F(ExecutorTest, AJobThatEndsSoonAfterItsTimeLimitLeavesNothingBehind) {
  auto executor = make({.lanes = 1});
  Job late = gate();
  late.memory = {{.bytes = 100'000}};
  late.time_limit = std::chrono::milliseconds(300);
  EXPECT_EQ(executor->submit(std::move(late)).get().error().code(), ErrorCode::timed_out);
  device_->trouble->open_gate();
  std::vector<unsigned char> y(x_.size());
  ASSERT_TRUE(executor->submit(add(7, x_, y)).get());
  executor.reset();
  EXPECT_EQ(device_->trouble->given_up, 0);
  EXPECT_EQ(device_->trouble->open_slots, 0);
  EXPECT_EQ(fakes::FakeBuffer::alive, 0);
}

TEST_F(ExecutorTest, ALaneThatCannotBeOpenedInTimeIsAnErrorOfTheJobs) {
  auto executor = make({.lanes = 1, .open_limit = std::chrono::milliseconds(50)});
  Job stuck{.name = "stuck", .steps = {{.request = program("stuck")}}, .time_limit = std::chrono::milliseconds(20)};
  device_->trouble->blocked_opens = 1;
  EXPECT_EQ(executor->submit(std::move(stuck)).get().error().code(), ErrorCode::timed_out);
  std::vector<unsigned char> y(x_.size());
  for (int i = 0; i < 2; ++i) {
    const auto failed = executor->submit(add(1, x_, y)).get();
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().message(), "add_1: no lane of the executor responds any more");
  }
  executor.reset();
  device_->trouble->open_gate();
}

TEST_F(ExecutorTest, ADeviceThatDoesNotAnswerGetsNone) {
  device_->trouble->blocked_opens = 1;
  const auto failed = Executor::create(device_, cache_, {.lanes = 2, .open_limit = std::chrono::milliseconds(50)});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code(), ErrorCode::device_failed);
  EXPECT_EQ(failed.error().message(), "fake:0 does not respond: it did not open a slot within 0.05 s");
  device_->trouble->open_gate();
}

TEST_F(ExecutorTest, JobsBesideOneThatHangsHaveASecondToEnd) {
  auto executor = make({.lanes = 1});
  const auto beside = executor->submit(gate());
  while (executor->stats().launches < 1) std::this_thread::yield();
  Job stuck{.name = "stuck", .steps = {{.request = program("stuck")}}, .time_limit = std::chrono::milliseconds(1)};
  EXPECT_EQ(executor->submit(std::move(stuck)).get().error().code(), ErrorCode::timed_out);
  EXPECT_FALSE(beside.wait_for(std::chrono::milliseconds(300)));
  device_->trouble->open_gate();
  EXPECT_TRUE(beside.get());
}

TEST_F(ExecutorTest, JobsBesideOneThatHangsTheirLaneEnd) {
  auto executor = make({.lanes = 1});
  // A lane that is only slow comes back and ends what it has begun.
  const auto beside = executor->submit(gate());
  while (executor->stats().launches < 1) std::this_thread::yield();
  Job stuck{.name = "stuck", .steps = {{.request = program("stuck")}}, .time_limit = std::chrono::milliseconds(20)};
  EXPECT_EQ(executor->submit(std::move(stuck)).get().error().code(), ErrorCode::timed_out);
  std::vector<unsigned char> y(x_.size());
  ASSERT_TRUE(executor->submit(add(7, x_, y)).get()) << "by the lane that took its place";
  device_->trouble->open_gate();
  beside.wait();
  executor->drain();
  EXPECT_EQ(executor->stats().unfinished, 0U);
}

TEST_F(ExecutorTest, ALaneThatCannotOpenASlotFailsItsJobsAndGoesOn) {
  auto executor = make({.lanes = 1});
  Job stuck{.name = "stuck", .steps = {{.request = program("stuck")}}, .time_limit = std::chrono::milliseconds(20)};
  device_->trouble->open_errors = 2;
  EXPECT_EQ(executor->submit(std::move(stuck)).get().error().code(), ErrorCode::timed_out);
  std::vector<unsigned char> y(x_.size());
  const auto failed = executor->submit(add(1, x_, y)).get();
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message(), "add_1: no slot to be had");
  EXPECT_TRUE(executor->submit(add(2, x_, y)).get());
  executor.reset();
  device_->trouble->open_gate();
}

TEST_F(ExecutorTest, NothingIsKeptOfAJobThatHasEnded) {
  auto executor = make({.lanes = 1, .time_limit = std::chrono::hours(1)});
  const std::shared_ptr<Buffer> buffer = device_->allocate(16).value();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(executor->submit({.memory = {{.buffer = buffer}}}).get());
  EXPECT_EQ(buffer.use_count(), 1);
  const Promise<void> never;
  const auto cancelled = executor->submit({.memory = {{.buffer = buffer}}, .after = {never.future()}});
  EXPECT_TRUE(cancelled.cancel());
  EXPECT_EQ(buffer.use_count(), 1) << "of one that was cancelled";
  never.set({});
}

TEST_F(ExecutorTest, TheLongestTimeLimitIsNone) {
  auto executor = make({.lanes = 1, .time_limit = std::chrono::nanoseconds::max()});
  std::vector<unsigned char> y(x_.size());
  const auto future = executor->submit(add(1, x_, y));
  EXPECT_TRUE(future.wait_for(std::chrono::hours::max()));
  EXPECT_TRUE(future.get());
}

TEST_F(ExecutorTest, WhatWhenReadyThrowsIsIgnored) {
  auto executor = make({.lanes = 1});
  const auto gated = executor->submit(gate());
  gated.when_ready([] { throw std::runtime_error("oh"); });
  device_->trouble->open_gate();
  EXPECT_TRUE(gated.get());
  executor->drain();
}

TEST_F(ExecutorTest, WhatAFunctionThrowsIsTheJobsError) {
  auto executor = make();
  Job fills{.name = "fills", .memory = {{.bytes = 10, .fill = [](auto) { throw std::runtime_error("no data"); }}}};
  Job reads{.name = "reads", .memory = {{.bytes = 10, .drain = [](auto) { throw std::runtime_error("no room"); }}}};
  const auto filled = executor->submit(std::move(fills)).get();
  const auto read = executor->submit(std::move(reads)).get();
  EXPECT_EQ(filled.error().message(), "fills: the function that fills a job's memory threw: no data");
  EXPECT_EQ(read.error().message(), "reads: the function that reads a job's memory threw: no room");
  EXPECT_EQ(read.error().code(), ErrorCode::callback_failed);
}

TEST_F(ExecutorTest, WhatIsWrongWithAJobIsSaidAtOnce) {
  auto executor = make();
  const auto message = [&](Job job) { return executor->submit(std::move(job)).get().error().message(); };
  EXPECT_EQ(
      message({.name = "j", .steps = {{.request = program("add 1"), .launch = {.arguments = {job_memory(0)}}}}}),
      "j: p uses memory 0, but Job::memory has size 0");
  EXPECT_EQ(message({.name = "j",
                     .memory = {{.upload = std::as_bytes(std::span(x_)), .fill = [](std::span<std::byte>) {}}}}),
            "j: memory 0 has both upload and fill; set only one");
  EXPECT_EQ(
      message({.memory = {{.buffer = device_->allocate(10).value(), .upload = std::as_bytes(std::span(x_))}}}),
      "a job: 1000 bytes of memory 0 do not fit in its buffer of 10 bytes");
}

TEST_F(ExecutorTest, NeedsASlotAndACacheOfItsDevice) {
  device_->trouble->open_errors = 1;
  const auto failed = Executor::create(device_, cache_, {.lanes = 2});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message(), "no slot to be had");
  const auto other = std::make_shared<fakes::FakeDevice>();
  EXPECT_EQ(Executor::create(other, cache_).error().code(), ErrorCode::invalid_request);
}

}  // namespace
}  // namespace kiln
