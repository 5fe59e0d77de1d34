#include <atomic>
#include <fstream>
#include <map>
#include <thread>

#include <nlohmann/json.hpp>

#include "exec/executor_fixture.hpp"

namespace kiln {
namespace {

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
  job.steps = {{.request = program("add 1"), .launch = {.arguments = {job_memory(0), job_memory(1)}}},
               {.request = program("add 2"), .launch = {.arguments = {job_memory(1), job_memory(0)}}},
               {.request = program("add 2"), .launch = {.arguments = {job_memory(0), job_memory(1)}}},
               {.request = program("add 4"), .launch = {.arguments = {job_memory(1), job_memory(2)}}}};
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
    job.steps = {{.request = program("add 1"), .launch = {.arguments = {job_memory(0), job_memory(1)}}}};
    job.after = {last};
    last = executor->submit(std::move(job));
  }
  Job read{.memory = {{.buffer = a, .download = std::as_writable_bytes(std::span(y))}}, .after = {last}};
  ASSERT_TRUE(executor->submit(std::move(read)).get());
  expect_sum(x_, 100, y);
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

TEST_F(ExecutorTest, ContinuationsOfWhenAllMaySubmitAndWait) {
  auto executor = make({.lanes = 1});
  std::vector<unsigned char> y(x_.size());
  std::vector<unsigned char> z(x_.size());
  const auto all = when_all(std::vector{executor->submit(add(1, x_, y))});
  const auto more = all.then([&](const Result<void>&) { return executor->submit(add(2, y, z)).get().ok(); });
  EXPECT_TRUE(more.get().value());
  expect_sum(x_, 3, z);
}

TEST_F(ExecutorTest, FunctionsFillAndReadAJobsMemory) {
  auto executor = make();
  std::vector<unsigned char> y;
  Job job;
  job.memory = {{.bytes = 100, .fill = [](std::span<std::byte> bytes) { std::ranges::fill(bytes, std::byte{7}); }},
                {.bytes = 100, .drain = [&y](std::span<const std::byte> bytes) {
                   for (const std::byte byte : bytes) y.push_back(static_cast<unsigned char>(byte));
                 }}};
  job.steps = {{.request = program("add 3"), .launch = {.arguments = {job_memory(0), job_memory(1)}}}};
  ASSERT_TRUE(executor->submit(std::move(job)).get());
  EXPECT_EQ(y, std::vector<unsigned char>(100, 10));
}

TEST_F(ExecutorTest, AnEmptyJobOnlyWaits) {
  auto executor = make();
  EXPECT_TRUE(executor->submit({}).get());
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
