#include <algorithm>
#include <fstream>

#include <gtest/gtest.h>

#include <kiln/kernel.hpp>
#include <kiln/kernels.hpp>
#include <kiln/tune.hpp>

#include "contract/contract.hpp"

namespace kiln {
namespace {

using contract::Contract;

constexpr std::int64_t count = 5000;

/// y = 2 x, by groups of GROUP work items that take EACH elements each. With BUG 1 it computes something else, with
/// BUG 2 it does not compile.
Kernel twice(const Variant& variant) {
  return {.name = "twice_g" + std::to_string(variant[0]) + "_e" + std::to_string(variant[1]) + "_b" +
                  std::to_string(variant[2]),
          .buffers = {{"x"}, {"y", Type::f32, Access::write}},
          .scalars = {{"count"}},
          .group_size = {static_cast<std::uint32_t>(variant[0]), 1, 1},
          .parameters = {{"EACH", std::to_string(variant[1])}, {"BUG", std::to_string(variant[2])}},
          .source = R"(KERNEL {
  for (int e = 0; e < EACH; ++e) {
    int i = (group_id_x * EACH + e) * GROUP_X + local_id_x;
    if (i < count) y[i] = 2.0f * x[i] + (BUG == 1 ? 0.5f : 0.0f);
  }
#if BUG == 2
  this is no program;
#endif
}
)"};
}

Tunable tunable(const std::shared_ptr<Device>& device, std::vector<int> bugs = {0}, std::int64_t size = count) {
  Tunable result{.kernel = "twice",
                 .sizes = {{"count", size}},
                 .parameters = {{"group", {32, 64}}, {"each", {1, 2, 4}}, {"bug", std::move(bugs)}},
                 .initial = {64, 1, 0},
                 .inputs = {{size}}};
  result.call = [device, size](const Variant& variant, const std::vector<Tensor>& inputs) -> Result<Tunable::Call> {
    const Kernel kernel = twice(variant);
    auto request = kernel.request(*device);
    if (!request) return std::move(request).error();
    auto y = Tensor::empty(device, {size});
    if (!y) return std::move(y).error();
    const auto per_group = static_cast<std::int64_t>(variant[0]) * variant[1];
    Step step{.request = *request,
              .groups = {static_cast<std::uint32_t>((size + per_group - 1) / per_group), 1, 1},
              .group_size = kernel.group_size,
              .memory = {0, 1},
              .parameters = kernel.pack({static_cast<std::int32_t>(size)}).value()};
    Job job{.name = "twice", .memory = {{.buffer = inputs[0].buffer()}, {.buffer = y->buffer()}}, .steps = {step}};
    return Tunable::Call{std::move(job), std::move(*y)};
  };
  return result;
}

class Tuning : public Contract {
 protected:
  std::unique_ptr<Tuner> open(Cache& cache, TunePolicy policy = TunePolicy::lookup) {
    TuneOptions options{.policy = policy, .duty = 1};
    options.log = book_.log();
    return Tuner::create(device_, cache, options).value();
  }
};

TEST_P(Tuning, TriesAllAndAnotherProcessUsesTheWinnerWithoutCompilingOrMeasuring) {
  TuneRecord record;
  {
    Cache cache(device_, options());
    const auto tuner = open(cache);
    EXPECT_EQ(tuner->choose(tunable(device_)), (Variant{64, 1, 0}));
    std::size_t steps = 0;
    record = tuner
                 ->tune(tunable(device_), std::chrono::minutes(1),
                        [&](const TuneProgress& progress) {
                          EXPECT_EQ(progress.tried, ++steps);
                          EXPECT_EQ(progress.of, 6U);
                          return true;
                        })
                 .value();
    EXPECT_TRUE(record.complete);
    ASSERT_EQ(record.trials.size(), 6U);
    for (const TuneTrial& trial : record.trials) EXPECT_EQ(trial.problem, "");
    EXPECT_TRUE(std::ranges::is_sorted(record.trials, {}, &TuneTrial::time));
    EXPECT_EQ(tuner->choose(tunable(device_)), record.trials.front().variant);
  }
  Cache cache(device_, options());
  const auto tuner = open(cache);
  const Variant winner = tuner->choose(tunable(device_));
  EXPECT_EQ(winner, record.trials.front().variant);
  if (!device_->identity().formats.empty()) {
    cache.get(twice(winner).request(*device_).value()).value();
    EXPECT_EQ(cache.stats().compiles, 0U);
  }
}

TEST_P(Tuning, VariantsThatAreWrongOrDoNotCompileAreRememberedAndNotTriedAgain) {
  Cache cache(device_, options());
  const auto record = open(cache)->tune(tunable(device_, {0, 1, 2}), std::chrono::minutes(1)).value();
  ASSERT_EQ(record.trials.size(), 18U);
  for (const TuneTrial& trial : record.trials) EXPECT_EQ(trial.problem.empty(), trial.variant[2] == 0) << trial.problem;
  EXPECT_EQ(record.trials.front().variant[2], 0);
  std::size_t tried = 0;
  const auto again = open(cache)->tune(tunable(device_, {0, 1, 2}), std::chrono::minutes(1), [&](const TuneProgress&) {
    ++tried;
    return true;
  });
  EXPECT_EQ(tried, 0U);
  EXPECT_EQ(again.value().trials.size(), 18U);
}

TEST_P(Tuning, GoesOnWhereItWasStopped) {
  Cache cache(device_, options());
  std::size_t tried = 0;
  const auto until = [&](std::size_t last) { return [&tried, last](const TuneProgress&) { return ++tried < last; }; };
  EXPECT_FALSE(open(cache)->tune(tunable(device_), std::chrono::minutes(1), until(2)).value().complete);
  EXPECT_EQ(tried, 2U);
  EXPECT_TRUE(open(cache)->tune(tunable(device_), std::chrono::minutes(1), until(100)).value().complete);
  EXPECT_EQ(tried, 6U);
}

TEST_P(Tuning, TheNearestSizesServeOthersIfTheyAreNear) {
  Cache cache(device_, options());
  const auto tuner = open(cache);
  const auto record = tuner->tune(tunable(device_), std::chrono::minutes(1)).value();
  const Variant winner = record.trials.front().variant;
  EXPECT_EQ(tuner->choose(tunable(device_, {0}, count + count / 2)), winner);
  EXPECT_EQ(tuner->choose(tunable(device_, {0}, count * 100)), (Variant{64, 1, 0}));
  Tunable picky = tunable(device_, {0}, count + 1);
  picky.fits = [winner](const Variant& variant) { return variant != winner; };
  EXPECT_NE(tuner->choose(picky), winner);
}

TEST_P(Tuning, InTheBackgroundTheFirstCallDoesNotWait) {
  Cache cache(device_, options());
  const auto tuner = open(cache, TunePolicy::background);
  EXPECT_EQ(tuner->choose(tunable(device_)), (Variant{64, 1, 0}));
  tuner->drain();
  ASSERT_EQ(tuner->records().size(), 1U);
  EXPECT_TRUE(tuner->records()[0].complete);
  EXPECT_EQ(tuner->choose(tunable(device_)), tuner->records()[0].trials.front().variant);
}

TEST_P(Tuning, ATunerThatEndsInTheMiddleKeepsWhatItHas) {
  Cache cache(device_, options());
  open(cache, TunePolicy::background)->choose(tunable(device_));
  const auto tuner = open(cache);
  EXPECT_LE(tuner->records().size(), 1U);
}

TEST_P(Tuning, ARecordOfOtherParametersIsMeasuredAnew) {
  Cache cache(device_, options());
  open(cache)->tune(tunable(device_), std::chrono::minutes(1)).value();
  Tunable later = tunable(device_);
  later.parameters.push_back({"split", {1, 2}});
  later.initial.push_back(1);
  const auto tuner = open(cache, TunePolicy::exhaustive);
  EXPECT_EQ(tuner->choose(later).size(), 4U);
  const std::vector<TuneRecord> records = tuner->records();
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].trials.size(), 12U);
  for (const TuneTrial& trial : records[0].trials) EXPECT_EQ(trial.variant.size(), 4U);
}

TEST_P(Tuning, OffIsOff) {
  Cache cache(device_, options());
  open(cache)->tune(tunable(device_), std::chrono::minutes(1)).value();
  EXPECT_EQ(open(cache, TunePolicy::off)->choose(tunable(device_)), (Variant{64, 1, 0}));
}

TEST_P(Tuning, ExhaustiveWaitsOnce) {
  Cache cache(device_, options());
  const auto tuner = open(cache, TunePolicy::exhaustive);
  const Variant first = tuner->choose(tunable(device_));
  ASSERT_EQ(tuner->records().size(), 1U);
  EXPECT_EQ(first, tuner->records()[0].trials.front().variant);
}

TEST_P(Tuning, AFolderThatCannotBeWrittenCostsNothingButTheMemory) {
  CacheOptions nowhere = options();
  nowhere.directory = "/proc/no/such/folder";
  Cache cache(device_, nowhere);
  const auto tuner = open(cache);
  const auto record = tuner->tune(tunable(device_), std::chrono::minutes(1)).value();
  EXPECT_EQ(tuner->choose(tunable(device_)), record.trials.front().variant);
}

TEST_P(Tuning, KernelsOfTheLibraryRunWhatTheirTunerChooses) {
  Cache cache(device_, options());
  TuneOptions quick{.policy = TunePolicy::exhaustive, .budget = std::chrono::milliseconds(200)};
  quick.log = book_.log();
  const auto tuner = Tuner::create(device_, cache, quick).value();
  const auto tensor = [&](const Shape& shape) {
    std::vector<float> values(static_cast<std::size_t>(count_of(shape)));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 13) * 0.1F - 0.5F;
    return Tensor::from(device_, shape, values).value();
  };
  const Runner plain(cache);
  const Runner tuned = plain.tuned_by(*tuner);
  const auto same = [](const Result<Tensor>& a, const Result<Tensor>& b) {
    const auto x = a.value().read().value();
    const auto y = b.value().read().value();
    return std::ranges::equal(x, y, [](float one, float other) { return std::abs(one - other) < 1e-3F; });
  };
  const Tensor a = tensor({40, 36});
  EXPECT_TRUE(same(gemm(plain, a, a, {.transpose_b = true}), gemm(tuned, a, a, {.transpose_b = true})));
  EXPECT_TRUE(same(softmax(plain, a), softmax(tuned, a)));
  const Tensor x = tensor({1, 3, 9, 8});
  const Tensor w = tensor({5, 3, 3, 3});
  EXPECT_TRUE(same(conv2d(plain, x, w), conv2d(tuned, x, w)));
  const Tensor q = tensor({1, 2, 17, 16});
  EXPECT_TRUE(same(flash_attention(plain, q, q, q), flash_attention(tuned, q, q, q)));
  const Tensor weights = tensor({1, 2, 5, 17});
  EXPECT_TRUE(same(weighted_matmul(plain, weights, q), weighted_matmul(tuned, weights, q)));
  std::vector<std::string> kernels;
  for (const TuneRecord& record : tuner->records()) kernels.push_back(record.kernel);
  std::ranges::sort(kernels);
  EXPECT_EQ(kernels, (std::vector<std::string>{"conv2d_3x3_s1x1_p0x0_d1x1", "flash_attention", "gemm_nt", "softmax",
                                               "weighted_matmul_nn"}));
}

INSTANTIATE_TEST_SUITE_P(Apis, Tuning, contract::every_api(), contract::name_of);

}  // namespace
}  // namespace kiln
