#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include <kiln/kernels/kernels.hpp>
#include <kiln/stream_executor.hpp>

#include "contract/contract.hpp"
#include "contract/kernels.hpp"
#include "contract/own_objects.hpp"

// Work on a stream of the caller's own.
namespace kiln::contract {
namespace {

constexpr std::int32_t length = 1000;

class StreamContract : public Contract {
 protected:
  void SetUp() override {
    Contract::SetUp();
    if (IsSkipped()) return;
    own_ = own_objects(device_->info());
    device_ = own_->adopt(book_.log()).value();
    stream_ = own_->stream(*device_);
    cache_ = std::make_unique<Cache>(device_, options());
    numbers_.resize(length);
    std::iota(numbers_.begin(), numbers_.end(), 0.0F);
  }
  void TearDown() override {
    stream_.reset();
    cache_.reset();
    device_.reset();
    own_.reset();
  }

  std::shared_ptr<Buffer> buffer(const std::vector<float>& numbers) { return upload(*device_, numbers).value(); }
  std::vector<float> result(const Buffer& from) {
    own_->finish(*stream_);
    return download<float>(*device_, from).value();
  }
  Launch scaling(const Buffer& x, const Buffer& y, int factor, float offset) {
    return scale(factor).launch({16, 1, 1}, {&x, &y}, {length, offset}).value();
  }
  /// A step that writes `factor` times memory `from`, plus `offset`, to memory `to`.
  Step step(int factor, float offset, std::size_t from, std::size_t to) {
    const Kernel kernel = scale(factor);
    return {.request = request(kernel),
            .launch = {
                .groups = {16},
                .group_size = kernel.group_size,
                .arguments = {job_memory(from), job_memory(to), by_value(kernel.pack({length, offset}).value())}}};
  }

  std::unique_ptr<OwnObjects> own_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Cache> cache_;
  std::vector<float> numbers_;
};

TEST_P(StreamContract, LaunchesRunInOrderAndSeeWhatEarlierOnesWrote) {
  const Program twice = cache_->get(request(scale(2))).value();
  const Program same = cache_->get(request(scale(1))).value();
  const auto x = buffer(numbers_);
  const auto y = buffer(std::vector<float>(length));
  std::vector<float> expected = numbers_;
  for (int round = 0; round < 10; ++round) {
    const auto offset = static_cast<float>(round);
    stream_->launch(twice.module(), scaling(*x, *y, 2, offset)).value();
    stream_->launch(same.module(), scaling(*y, *x, 1, 1)).value();
    for (float& number : expected) number = number * 2 + offset + 1;
  }
  EXPECT_EQ(result(*x), expected);
  // The stream goes on after the caller has waited for it.
  stream_->launch(twice.module(), scaling(*x, *y, 2, 0)).value();
  for (float& number : expected) number *= 2;
  EXPECT_EQ(result(*y), expected);
  EXPECT_TRUE(own_->work());
}

TEST_P(StreamContract, ALaunchOfAnotherDeviceIsRefused) {
  const auto other = open_device(GetParam(), book_.log()).value();
  if (GetParam() == "cuda" || GetParam() == "hip") GTEST_SKIP() << "both are on the primary context";
  const Compiled foreign = other->compile(request(scale(2))).value();
  const Program own = cache_->get(request(scale(2))).value();
  const auto x = buffer(numbers_);
  const auto y = buffer(numbers_);
  const auto of_other = upload(*other, numbers_).value();
  EXPECT_EQ(stream_->launch(*foreign.module, scaling(*x, *y, 2, 0)).error().code(), ErrorCode::invalid_request);
  EXPECT_EQ(stream_->launch(own.module(), scaling(*x, *of_other, 2, 0)).error().code(), ErrorCode::invalid_request);
  stream_->launch(own.module(), scaling(*x, *y, 2, 0)).value();
  EXPECT_EQ(result(*y)[3], 6);
}

TEST_P(StreamContract, HoldsThingsUntilTheWorkHasEnded) {
  const Program twice = cache_->get(request(scale(2))).value();
  const auto x = buffer(numbers_);
  const auto y = buffer(numbers_);
  stream_->launch(twice.module(), scaling(*x, *y, 2, 0)).value();
  auto first = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = first;
  stream_->hold(std::move(first));
  own_->finish(*stream_);
  // A later call sees that the work has ended.
  stream_->launch(twice.module(), scaling(*x, *y, 2, 0)).value();
  auto second = std::make_shared<int>(2);
  const std::weak_ptr<int> watched_too = second;
  stream_->hold(std::move(second));
  EXPECT_TRUE(watched.expired());
  stream_.reset();
  EXPECT_TRUE(watched_too.expired());
}

TEST_P(StreamContract, JobsRunInOrderWithTheCallersLaunches) {
  StreamExecutor executor(*cache_, *stream_);
  const Program same = cache_->get(request(scale(1))).value();
  const auto x = buffer(numbers_);
  const auto y = buffer(std::vector<float>(length));
  std::vector<float> expected = numbers_;
  for (int round = 0; round < 10; ++round) {
    // By two places in lent memory, which the next job gets again.
    Job job{.name = "chain",
            .memory = {{.buffer = x}, {.bytes = 4 * length}, {.bytes = 4 * length}, {.buffer = y}}};
    job.steps = {step(2, 1, 0, 1), step(3, 0, 1, 2), step(1, static_cast<float>(round), 2, 3)};
    executor.submit(job).value();
    stream_->launch(same.module(), scaling(*y, *x, 1, -6 * numbers_[5])).value();
    for (float& number : expected) number = (number * 2 + 1) * 3 + static_cast<float>(round) - 6 * numbers_[5];
    if (expected[5] > 1e5F || expected[5] < -1e5F) break;
  }
  const std::vector<float> results = result(*x);
  for (std::size_t i = 0; i < results.size(); ++i) EXPECT_FLOAT_EQ(results[i], expected[i]) << i;
  EXPECT_TRUE(own_->work());
}

TEST_P(StreamContract, AJobSharesItsProgramsAndBuffersWithTheStream) {
  const auto y = buffer(std::vector<float>(length));
  std::weak_ptr<Buffer> watched;
  {
    StreamExecutor executor(*cache_, *stream_);
    auto x = buffer(numbers_);
    watched = x;
    Job job{.memory = {{.buffer = std::move(x)}, {.bytes = 4 * length}, {.buffer = y}}};
    job.steps = {step(7, 0, 0, 1), step(1, 2, 1, 2)};
    executor.submit(job).value();
  }
  cache_->trim();
  EXPECT_EQ(result(*y)[10], 72);
  stream_.reset();
  EXPECT_TRUE(watched.expired());
}

TEST_P(StreamContract, JobsThatItCannotRunAreRefusedBeforeAnythingIsEnqueued) {
  StreamExecutor executor(*cache_, *stream_);
  const auto x = buffer(numbers_);
  const auto y = buffer(numbers_);
  std::vector<float> on_host(length);
  const Job job{.name = "bad", .memory = {{.buffer = x}, {.buffer = y}}, .steps = {step(2, 0, 0, 1)}};
  const auto message = [&](Job bad) {
    const auto done = executor.submit(bad);
    EXPECT_FALSE(done);
    return done ? "" : done.error().message();
  };
  Job copies = job;
  copies.memory[1].download = std::as_writable_bytes(std::span(on_host));
  EXPECT_EQ(message(copies),
            "bad: memory 1 is copied from or to the host; on a stream of your own, enqueue the copies yourself");
  Job beyond = job;
  beyond.memory.pop_back();
  EXPECT_NE(message(beyond).find("Job::memory has size 1"), std::string::npos) << message(beyond);
  Job after = job;
  const Promise<int> failed;
  failed.set(Error(ErrorCode::timed_out, "too slow"));
  after.after = {failed.future()};
  EXPECT_EQ(message(after), "bad was not run because a dependency failed: too slow");
  Job broken = job;
  broken.steps.push_back({.request = request(Kernel{.name = "broken", .source = "KERNEL { no code }"})});
  EXPECT_FALSE(executor.submit(broken));
  EXPECT_EQ(result(*y), numbers_);
  executor.submit(job).value();
  EXPECT_EQ(result(*y)[3], 6);
}

TEST_P(StreamContract, KernelsOfTheLibraryRunOnIt) {
  StreamExecutor executor(*cache_, *stream_);
  constexpr std::int64_t n = 48;
  std::vector<float> a(n * n);
  std::vector<float> b(n * n);
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<float>(i % 7) - 3;
    b[i] = static_cast<float>(i % 5) - 2;
  }
  const Tensor x = Tensor::from(device_, {n, n}, a).value();
  const Tensor y = Tensor::from(device_, {n, n}, b).value();
  // The second product reads the first, and neither waits.
  const Tensor xy = kiln::gemm(executor, x, y).value();
  const Tensor xyy = kiln::gemm(executor, xy, y, {.output = Type::f16}).value();
  const Tensor sums = reduce(executor, xyy, Reduction::sum).value();
  own_->finish(*stream_);
  const auto product = [](const std::vector<float>& left, const std::vector<float>& right) {
    std::vector<float> result(n * n);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t k = 0; k < n; ++k)
        for (std::size_t j = 0; j < n; ++j) result[i * n + j] += left[i * n + k] * right[k * n + j];
    return result;
  };
  const std::vector<float> expected = product(product(a, b), b);
  const std::vector<float> results = sums.read().value();
  for (std::size_t i = 0; i < n; ++i) {
    const float sum = std::accumulate(expected.begin() + static_cast<std::ptrdiff_t>(i * n),
                                      expected.begin() + static_cast<std::ptrdiff_t>((i + 1) * n), 0.0F);
    EXPECT_NEAR(results[i], sum, 1 + 1e-3F * std::abs(sum)) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(EveryApi, StreamContract, every_api(), name_of);

}  // namespace
}  // namespace kiln::contract
