#include <fstream>
#include <random>
#include <thread>

#include <unistd.h>

#include <kiln/executor.hpp>

#include "contract/contract.hpp"
#include "contract/kernels.hpp"

// What the executor promises on every device of this machine that can be opened.
namespace kiln::contract {
namespace {

/// Never ends; the loop does something, so that no compiler leaves it out. Mesa's CPU drivers end all loops after
/// 65,535 rounds; over four thousand million groups, that takes years.
Kernel endless() {
  return {.name = "endless",
          .buffers = {{"flag", Type::u32, Access::read_write}},
          .group_size = {1, 1, 1},
          .source = R"(KERNEL {
  while (atomicAdd(flag[0], 0u) < 4000000000u) {
  }
}
)"};
}

class ExecutorContract : public Contract {
 protected:
  /// y = factor x + offset as a step on memory `x` and `y` of a job.
  Step scaling(int factor, float offset, std::size_t count, std::size_t x, std::size_t y) const {
    const Kernel kernel = scale(factor);
    const auto groups = static_cast<std::uint32_t>((count + 63) / 64);
    const auto parameters = kernel.pack({static_cast<std::int32_t>(count), offset}).value();
    return {.request = request(kernel),
            .launch = {.groups = {groups},
                       .group_size = kernel.group_size,
                       .arguments = {job_memory(x), job_memory(y), by_value(parameters)}}};
  }
  /// The same as a job of its own.
  Job scaled(int factor, float offset, std::span<const float> x, std::span<float> y) const {
    Job job{.name = "scaled"};
    job.memory = {{.upload = std::as_bytes(x)}, {.download = std::as_writable_bytes(y)}};
    job.steps = {scaling(factor, offset, x.size(), 0, 1)};
    return job;
  }
  std::unique_ptr<Executor> make(Cache& cache, ExecutorOptions options = {}) const {
    options.log = book_.log();
    return Executor::create(device_, cache, options).value();
  }
};

void expect_scaled(std::span<const float> x, int factor, float offset, std::span<const float> y) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < x.size(); ++i) wrong += y[i] != static_cast<float>(factor) * x[i] + offset ? 1 : 0;
  EXPECT_EQ(wrong, 0U);
}

std::vector<float> numbers(std::size_t count, int first) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(first + static_cast<int>(i % 1000));
  return values;
}

TEST_P(ExecutorContract, JobsOfManyThreadsComputeWhatTheyWould) {
  Cache cache(device_, options());
  auto executor = make(cache, {.queue = 16});
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < 6; ++round) {
        const auto x = numbers(1 + static_cast<std::size_t>(t) * 531, 100 * t + round);
        std::vector<float> y(x.size());
        const int factor = 2 + (t + round) % 3;
        const auto report = executor->submit(scaled(factor, static_cast<float>(round), x, y)).get();
        ASSERT_TRUE(report) << report.error().message();
        expect_scaled(x, factor, static_cast<float>(round), y);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(executor->stats().succeeded, 96U);
}

TEST_P(ExecutorContract, AChainOnSharedBuffersOverManyJobs) {
  Cache cache(device_, options());
  auto executor = make(cache, {.lanes = 3});
  const auto x = numbers(3000, 1);
  std::vector<float> y(x.size());
  const std::shared_ptr<Buffer> a = device_->allocate(x.size() * sizeof(float)).value();
  const std::shared_ptr<Buffer> b = device_->allocate(x.size() * sizeof(float)).value();
  Pending last = executor->submit({.memory = {{.buffer = a, .upload = std::as_bytes(std::span(x))}}});
  std::vector<float> expected = x;
  for (int i = 0; i < 9; ++i) {
    const int factor = 2 + i % 2;
    Job job{.name = "link", .memory = {{.buffer = i % 2 == 0 ? a : b}, {.buffer = i % 2 == 0 ? b : a}}};
    job.steps = {scaling(factor, 1, x.size(), 0, 1)};
    job.after = {last};
    last = executor->submit(std::move(job));
    for (float& value : expected) value = value * static_cast<float>(factor) + 1;
  }
  Job read{.memory = {{.buffer = b, .download = std::as_writable_bytes(std::span(y))}}, .after = {last}};
  const auto done = executor->submit(std::move(read)).get();
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_EQ(y, expected);
}

TEST_P(ExecutorContract, ReportsWhatThePartsTook) {
  Cache cache(device_, options());
  auto executor = make(cache);
  const auto x = numbers(1'000'000, 0);
  std::vector<float> y(x.size());
  Job job = scaled(2, 0, x, y);
  job.steps[0].flops = 2e6;
  job.steps[0].bytes = 8e6;
  const auto report = executor->submit(std::move(job)).get();
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_GT(report->compute.count(), 0);
  EXPECT_EQ(report->steps.size(), 1U);
  EXPECT_GE(report->upload.count(), 0);
  EXPECT_GT(cache.get(request(scale(2))).value().gflops(), 0);
  EXPECT_GT(cache.get(request(scale(2))).value().gbps(), 0);
}

TEST_P(ExecutorContract, ACacheBoundTooSmallForTheJobsChangesNoResult) {
  CacheOptions bounded = options();
  bounded.max_programs = 1;
  Cache cache(device_, bounded);
  auto executor = make(cache);
  const auto x = numbers(777, 3);
  std::vector<std::vector<float>> results(40, std::vector<float>(x.size()));
  std::vector<Future<JobReport>> futures;
  for (std::size_t i = 0; i < results.size(); ++i)
    futures.push_back(executor->submit(scaled(2 + static_cast<int>(i % 3), 1, x, results[i])));
  for (std::size_t i = 0; i < results.size(); ++i) {
    ASSERT_TRUE(futures[i].get()) << futures[i].get().error().message();
    expect_scaled(x, 2 + static_cast<int>(i % 3), 1, results[i]);
  }
}

TEST_P(ExecutorContract, OutOfMemoryFailsThatJobAlone) {
  Cache cache(device_, options());
  auto executor = make(cache);
  const auto x = numbers(1000, 3);
  std::vector<float> before(x.size());
  std::vector<float> after(x.size());
  const auto first = executor->submit(scaled(2, 0, x, before));
  const auto huge = executor->submit({.name = "huge", .memory = {{.bytes = std::size_t{1} << 46U}}});
  const auto last = executor->submit(scaled(3, 0, x, after));
  ASSERT_FALSE(huge.get());
  EXPECT_EQ(huge.get().error().code(), ErrorCode::out_of_memory) << huge.get().error().message();
  ASSERT_TRUE(first.get());
  ASSERT_TRUE(last.get());
  expect_scaled(x, 2, 0, before);
  expect_scaled(x, 3, 0, after);
}

TEST_P(ExecutorContract, AKernelThatNeverEndsIsAnErrorInTimeAndTheExecutorEnds) {
  // In a process of its own, which it never lets go of.
  if (std::getenv(handed_down) == nullptr) {
    EXPECT_EQ(run_this_test_elsewhere(folder_.path()), 0);
    EXPECT_TRUE(std::filesystem::exists(folder_.path() / "timed_out"));
    EXPECT_TRUE(std::filesystem::exists(folder_.path() / "ended"));
    return;
  }
  CacheOptions cached = options();
  Cache cache(device_, cached);
  auto executor = make(cache, {.lanes = 1});
  Job job{.name = "endless", .memory = {{.bytes = 4, .fill = [](std::span<std::byte> bytes) {
                                           std::memset(bytes.data(), 0, bytes.size());
                                         }}}};
  job.steps = {{.request = request(endless()),
                .launch = {.groups = {65535, 65535}, .group_size = {1}, .arguments = {job_memory(0)}}}};
  job.time_limit = std::chrono::milliseconds(300);
  const auto stuck = executor->submit(std::move(job)).get();
  if (!stuck && stuck.error().code() == ErrorCode::timed_out)
    std::ofstream(std::filesystem::path(std::getenv(handed_down)) / "timed_out");
  executor.reset();
  std::ofstream(std::filesystem::path(std::getenv(handed_down)) / "ended");
  ::_exit(0);
}

INSTANTIATE_TEST_SUITE_P(Apis, ExecutorContract, every_api(), name_of);

}  // namespace
}  // namespace kiln::contract
