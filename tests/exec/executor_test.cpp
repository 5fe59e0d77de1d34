#include <atomic>
#include <fstream>
#include <numeric>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <kiln/executor.hpp>

#include "fakes/cache_fixture.hpp"
#include "fakes/fake_device.hpp"

// The executor on a device that fails and hangs on demand; tests/contract has it on real ones.
namespace kiln {
namespace {

using fakes::FakeDevice;

class ExecutorTest : public testing::Test {
 protected:
  CacheOptions cache_options() {
    CacheOptions options;
    options.directory = folder_.path() / "cache";
    options.log = book_.log();
    return options;
  }
  std::unique_ptr<Executor> make(ExecutorOptions options = {}) {
    options.log = book_.log();
    return Executor::create(device_, cache_, options).value();
  }
  static Request program(const std::string& text) { return Request({.name = "p", .source = text}); }

  /// y = x + n, byte by byte.
  static Job add(int n, std::span<const unsigned char> x, std::span<unsigned char> y) {
    Job job{.name = "add_" + std::to_string(n)};
    job.memory = {{.upload = std::as_bytes(x)}, {.download = std::as_writable_bytes(y)}};
    job.steps = {{.request = program("add " + std::to_string(n)), .memory = {0, 1}}};
    return job;
  }
  /// Runs until the gate is opened.
  static Job gate() { return {.name = "gate", .steps = {{.request = program("gate")}}}; }

  fakes::TemporaryFolder folder_;
  fakes::LogBook book_;
  std::shared_ptr<FakeDevice> device_ = std::make_shared<FakeDevice>();
  Cache cache_{device_, cache_options()};
  std::vector<unsigned char> x_ = [] {
    std::vector<unsigned char> values(1000);
    std::iota(values.begin(), values.end(), static_cast<unsigned char>(0));
    return values;
  }();
};

void expect_sum(std::span<const unsigned char> x, int n, std::span<const unsigned char> y) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < x.size(); ++i) wrong += y[i] != static_cast<unsigned char>(x[i] + n) ? 1 : 0;
  EXPECT_EQ(wrong, 0U);
}

TEST_F(ExecutorTest, RunsAJobAndGivesItsResult) {
  auto executor = make();
  std::vector<unsigned char> y(x_.size());
  const Future<JobReport> future = executor->submit(add(3, x_, y));
  ASSERT_TRUE(future.get()) << future.get().error().message();
  expect_sum(x_, 3, y);
  EXPECT_EQ(future.get()->steps.size(), 1U);
  const ExecutorStats stats = executor->stats();
  EXPECT_EQ(stats.submitted, 1U);
  EXPECT_EQ(stats.succeeded, 1U);
  EXPECT_EQ(stats.launches, 1U);
  EXPECT_EQ(stats.program_switches, 1U);
}

TEST_F(ExecutorTest, AJobMayBeAChainOfLaunches) {
  auto executor = make();
  std::vector<unsigned char> y(x_.size());
  Job job;
  job.memory = {{.upload = std::as_bytes(std::span(x_))},
                {.bytes = x_.size()},
                {.download = std::as_writable_bytes(std::span(y))}};
  job.steps = {{.request = program("add 1"), .memory = {0, 1}},
               {.request = program("add 2"), .memory = {1, 0}},
               {.request = program("add 2"), .memory = {0, 1}},
               {.request = program("add 4"), .memory = {1, 2}}};
  ASSERT_TRUE(executor->submit(std::move(job)).get());
  expect_sum(x_, 9, y);
  EXPECT_EQ(executor->stats().launches, 4U);
  EXPECT_EQ(executor->stats().program_switches, 3U);
}

TEST_F(ExecutorTest, JobsShareBuffersInTheOrderTheirDependenciesGive) {
  auto executor = make({.lanes = 4});
  const std::shared_ptr<Buffer> a = device_->allocate(1000).value();
  const std::shared_ptr<Buffer> b = device_->allocate(1000).value();
  std::vector<unsigned char> y(x_.size());
  Job first{.name = "first", .memory = {{.buffer = a, .upload = std::as_bytes(std::span(x_))}}};
  Pending last = executor->submit(std::move(first));
  for (int i = 0; i < 100; ++i) {
    Job job{.name = "step", .memory = {{.buffer = i % 2 == 0 ? a : b}, {.buffer = i % 2 == 0 ? b : a}}};
    job.steps = {{.request = program("add 1"), .memory = {0, 1}}};
    job.after = {last};
    last = executor->submit(std::move(job));
  }
  Job read{.memory = {{.buffer = a, .download = std::as_writable_bytes(std::span(y))}}, .after = {last}};
  ASSERT_TRUE(executor->submit(std::move(read)).get());
  expect_sum(x_, 100, y);
}

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
  EXPECT_NE(dependent.get().error().message().find("add_1 was not run, because of what it depends on"),
            std::string::npos);
  EXPECT_EQ(executor->stats().failed, 2U);
}

TEST_F(ExecutorTest, TheFirstJobWaitsForTheCompilerAndOthersDoNot) {
  std::atomic<bool> compiled = false;
  const Promise<void> go;
  device_->backend.on_compile = [&](const Request& request) {
    if (request.source() != "add 1") return;
    go.future().wait();
    compiled = true;
  };
  auto executor = make({.lanes = 1});
  std::vector<unsigned char> slow(x_.size());
  std::vector<unsigned char> fast(x_.size());
  const auto first = executor->submit(add(1, x_, slow));
  ASSERT_TRUE(executor->submit(add(2, x_, fast)).get());
  EXPECT_FALSE(compiled);
  EXPECT_FALSE(first.ready());
  go.set({});
  ASSERT_TRUE(first.get());
  expect_sum(x_, 1, slow);
  expect_sum(x_, 2, fast);
}

TEST_F(ExecutorTest, ThreeJobsOfALaneAreUnderWayAtOnce) {
  auto executor = make({.lanes = 1});
  std::vector<Future<JobReport>> gates;
  for (int i = 0; i < 3; ++i) gates.push_back(executor->submit(gate()));
  while (executor->stats().launches < 3) std::this_thread::yield();
  for (const auto& future : gates) EXPECT_FALSE(future.ready());
  device_->trouble->open_gate();
  EXPECT_TRUE(when_all(gates).get());
}

TEST_F(ExecutorTest, SlotsAllocateOnceForJobsThatAreAlike) {
  auto executor = make({.lanes = 1});
  std::vector<unsigned char> y(x_.size());
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(executor->submit(add(1, x_, y)).get());
  EXPECT_LE(device_->trouble->allocations, 6);
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

TEST_F(ExecutorTest, AFullQueueHoldsBackThoseWhoSubmit) {
  auto executor = make({.lanes = 1, .queue = 2});
  std::vector<Future<JobReport>> futures;
  for (int i = 0; i < 3; ++i) futures.push_back(executor->submit(gate()));
  while (executor->stats().launches < 3) std::this_thread::yield();
  for (int i = 0; i < 2; ++i) futures.push_back(executor->submit(gate()));
  std::atomic<bool> submitted = false;
  std::thread fourth([&] {
    executor->submit(gate()).wait();
    submitted = true;
  });
  // It cannot have been: two wait already, and nothing has ended.
  EXPECT_EQ(executor->stats().unfinished, 5U);
  EXPECT_FALSE(submitted);
  device_->trouble->open_gate();
  fourth.join();
  EXPECT_TRUE(when_all(futures).get());
}

TEST_F(ExecutorTest, ContinuationsMaySubmitMoreThanTheQueueHolds) {
  auto executor = make({.lanes = 1, .queue = 1});
  std::vector<unsigned char> y(x_.size());
  const auto all = executor->submit(add(1, x_, y)).then([&](const Result<JobReport>&) {
    std::vector<Future<JobReport>> more;
    static std::vector<std::vector<unsigned char>> outs(20, std::vector<unsigned char>(x_.size()));
    for (auto& out : outs) more.push_back(executor->submit(add(2, x_, out)));
    return when_all(more).get().ok();
  });
  EXPECT_TRUE(all.get().value());
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

TEST_F(ExecutorTest, ContinuationsOfWhenAllMaySubmitAndWait) {
  auto executor = make({.lanes = 1});
  std::vector<unsigned char> y(x_.size());
  std::vector<unsigned char> z(x_.size());
  const auto all = when_all(std::vector{executor->submit(add(1, x_, y))});
  const auto more = all.then([&](const Result<void>&) { return executor->submit(add(2, y, z)).get().ok(); });
  EXPECT_TRUE(more.get().value());
  expect_sum(x_, 3, z);
}

TEST_F(ExecutorTest, NothingIsKeptOfAJobThatHasEnded) {
  auto executor = make({.lanes = 1, .time_limit = std::chrono::hours(1)});
  const std::shared_ptr<Buffer> buffer = device_->allocate(16).value();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(executor->submit({.memory = {{.buffer = buffer}}}).get());
  EXPECT_EQ(buffer.use_count(), 1);
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

TEST_F(ExecutorTest, IdleLanesGiveBackMemoryThatAnotherNeeds) {
  auto executor = make({.lanes = 2});
  std::vector<unsigned char> y(x_.size());
  // Each lane keeps some.
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(executor->submit(add(1, x_, y)).get());
  device_->trouble->launch_errors = 1;
  ASSERT_TRUE(executor->submit(add(1, x_, y)).get());
  EXPECT_LE(fakes::FakeBuffer::alive, 2) << "what the last job was lent";
}

TEST_F(ExecutorTest, FunctionsFillAndReadAJobsMemory) {
  auto executor = make();
  std::vector<unsigned char> y;
  Job job;
  job.memory = {{.bytes = 100, .fill = [](std::span<std::byte> bytes) { std::ranges::fill(bytes, std::byte{7}); }},
                {.bytes = 100, .drain = [&y](std::span<const std::byte> bytes) {
                   for (const std::byte byte : bytes) y.push_back(static_cast<unsigned char>(byte));
                 }}};
  job.steps = {{.request = program("add 3"), .memory = {0, 1}}};
  ASSERT_TRUE(executor->submit(std::move(job)).get());
  EXPECT_EQ(y, std::vector<unsigned char>(100, 10));
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
  EXPECT_EQ(message({.name = "j", .steps = {{.request = program("add 1"), .memory = {0}}}}),
            "j: p works on memory 0; the job has 0");
  EXPECT_EQ(message({.name = "j",
                     .memory = {{.upload = std::as_bytes(std::span(x_)), .fill = [](std::span<std::byte>) {}}}}),
            "j: memory 0 is both uploaded and filled");
  EXPECT_EQ(
      message({.memory = {{.buffer = device_->allocate(10).value(), .upload = std::as_bytes(std::span(x_))}}}),
      "a job: 1000 bytes of memory 0 do not fit in its buffer of 10");
}

TEST_F(ExecutorTest, AnEmptyJobOnlyWaits) {
  auto executor = make();
  EXPECT_TRUE(executor->submit({}).get());
}

TEST_F(ExecutorTest, NeedsASlotAndACacheOfItsDevice) {
  device_->trouble->open_errors = 1;
  const auto failed = Executor::create(device_, cache_, {.lanes = 2});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message(), "no slot to be had");
  const auto other = std::make_shared<FakeDevice>();
  EXPECT_EQ(Executor::create(other, cache_).error().code(), ErrorCode::invalid_request);
}

TEST_F(ExecutorTest, NotesWhatPerformanceTheDevicesClockTells) {
  auto executor = make();
  std::vector<unsigned char> y(x_.size());
  Job job = add(1, x_, y);
  job.steps[0].flops = 1e6;
  job.steps[0].bytes = 2e6;
  ASSERT_TRUE(executor->submit(std::move(job)).get());
  const Program noted = cache_.get(program("add 1")).value();
  EXPECT_GT(noted.gflops(), 0);
  EXPECT_NEAR(noted.gbps() / noted.gflops(), 2, 1e-6);
}

TEST_F(ExecutorTest, ATraceShowsEveryPieceOnItsSlotsTrack) {
  const auto file = folder_.path() / "trace.json";
  {
    auto executor = make({.lanes = 2, .trace = file});
    auto second = make({.lanes = 1, .trace = file});
    std::vector<unsigned char> y(x_.size());
    for (int i = 0; i < 500; ++i) ASSERT_TRUE(executor->submit(add(i % 7, x_, y)).get());
    ASSERT_TRUE(second->submit(add(1, x_, y)).get());
  }
  std::ifstream text(file);
  const auto events = nlohmann::json::parse(text);
  std::map<std::string, int> kinds;
  for (const auto& event : events) {
    if (event.at("ph") == "M") continue;
    ++kinds[event.at("cat")];
    EXPECT_GE(event.at("dur"), 0);
    EXPECT_GE(event.at("tid"), 1);
  }
  EXPECT_EQ(kinds, (std::map<std::string, int>{{"download", 500}, {"launch", 500}, {"upload", 500}}));
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
    files += entry.path().extension() == ".json" ? 1 : 0;
  EXPECT_EQ(files, 2U) << "the second executor writes a file of its own";
}

TEST_F(ExecutorTest, SixtyFourThreadsSubmitAndEveryResultIsRight) {
  auto executor = make({.lanes = 4, .queue = 32});
  std::vector<std::thread> threads;
  for (int t = 0; t < 64; ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < 10; ++round) {
        std::vector<unsigned char> x(100 + static_cast<std::size_t>(t), static_cast<unsigned char>(t));
        std::vector<unsigned char> y(x.size());
        const auto future = executor->submit(add((t + round) % 9, x, y));
        if (round % 3 == 0 && future.cancel()) continue;
        ASSERT_TRUE(future.get()) << future.get().error().message();
        expect_sum(x, (t + round) % 9, y);
      }
    });
  for (std::thread& thread : threads) thread.join();
  executor->drain();
  const ExecutorStats stats = executor->stats();
  EXPECT_EQ(stats.submitted, 640U);
  EXPECT_EQ(stats.succeeded + stats.cancelled, 640U);
  EXPECT_EQ(stats.unfinished, 0U);
}

}  // namespace
}  // namespace kiln
