#include <cmath>

#include "kernels/flash_attention.hpp"
#include "kernels/kernel_suite.hpp"

// What attention is made of: weighted_matmul, and flash_attention, which is all of it at once.
namespace kiln::tests {
namespace {

class WeightedMatmul : public KernelSuite {};

TEST_P(WeightedMatmul, ComputesWhatTheReferenceDoes) {
  for (int i = 0; i < shapes_to_try(); ++i) {
    const std::int64_t batch = between(1, 2);
    const std::int64_t heads = between(1, 3);
    const std::int64_t keys = between(1, 70);
    const Array w = noise({batch, heads, between(1, 70), keys}, 0, 1);
    const Array v = noise({batch, heads, keys, between(1, 70)});
    ASSERT_TRUE(matches(weighted_matmul(*cache_, tensor(w), tensor(v)), reference::weighted_matmul(w, v)))
        << to_string(w.shape) << to_string(v.shape);
  }
}

TEST_P(WeightedMatmul, TakesNothingHalvesNanAndInfinity) {
  Array w = noise({1, 2, 5, 0});
  Array v = noise({1, 2, 0, 3});
  EXPECT_TRUE(matches(weighted_matmul(*cache_, tensor(w), tensor(v)), reference::weighted_matmul(w, v)));
  w = halved(noise({1, 2, 5, 9}));
  v = halved(noise({1, 2, 9, 3}));
  w.values[7] = infinity;
  v.values[10] = std::nanf("");
  EXPECT_TRUE(matches(weighted_matmul(*cache_, tensor(w, Type::f16), tensor(v, Type::f16), {.output = Type::f16}),
                      reference::weighted_matmul(w, v), 2e-3));
}

TEST_P(WeightedMatmul, ShapesThatDoNotFitAreNamed) {
  const auto of = [&](Shape shape) { return tensor(noise(std::move(shape))); };
  EXPECT_EQ(
      message(weighted_matmul(*cache_, of({1, 2, 3, 4}), of({1, 2, 5, 6}))),
      "weighted_matmul: values has 5 keys (dimension 2), but weights has 4 (dimension 3); they must be equal");
  EXPECT_EQ(
      message(weighted_matmul(*cache_, of({1, 2, 3, 4}), of({1, 3, 4, 6}))),
      "weighted_matmul: values has 3 heads (dimension 1), but weights has 2 (dimension 1); they must be equal");
  EXPECT_EQ(message(weighted_matmul(*cache_, of({1, 2, 3, 4}), of({2, 4, 6}))),
            "weighted_matmul: values has 3 dimensions; it must have 4");
}

class FlashAttention : public KernelSuite {
 protected:
  testing::AssertionResult attends(const Array& q, const Array& k, const Array& v,
                                   const FlashAttentionOptions& options = {},
                                   const kernels::FlashAttentionVariant* variant = nullptr,
                                   std::int64_t parts = 1) {
    return matches(kernels::flash_attention(*cache_, tensor(q), tensor(k), tensor(v), options, variant, parts),
                   reference::flash_attention(q, k, v, options.causal, options.scale));
  }
};

TEST_P(FlashAttention, ComputesWhatTheReferenceDoes) {
  for (int i = 0; i < shapes_to_try(); ++i) {
    const std::int64_t batch = between(1, 2);
    const std::int64_t heads = between(1, 2);
    const std::int64_t queries = between(1, 90);
    const std::int64_t keys = coin() ? queries : between(1, 90);
    const std::int64_t dimension = i % 8 == 7 ? between(129, 256) : i % 4 == 3 ? between(65, 128) : between(1, 64);
    FlashAttentionOptions options{.causal = coin()};
    if (coin()) options.scale = 0.5F;
    ASSERT_TRUE(attends(noise({batch, heads, queries, dimension}), noise({batch, heads, keys, dimension}),
                        noise({batch, heads, keys, dimension}), options))
        << queries << " queries, " << keys << " keys, dimension " << dimension << ", causal " << options.causal;
  }
}

TEST_P(FlashAttention, EveryVariantComputesTheSame) {
  for (const int head : {32, 64, 128, 256}) {
    DeviceInfo gpu = device_->info();
    gpu.software = false;
    const bool all = !device_->info().software || shapes_to_try() > 100;
    if (!all && head != 64) continue;
    // All dimensions of the class, fewer, and fewer than go by four.
    for (const int dimension : {head, head - 4, head - 3}) {
      auto variant = kernels::flash_attention_variant(gpu, dimension, 131);
      const Shape shape = {1, 2, 131, dimension};
      for (const int unroll : {1, 2, 4, 16}) {
        variant.unroll = unroll;
        EXPECT_TRUE(attends(noise(shape), noise(shape), noise(shape), {.causal = true}, &variant))
            << variant.name() << ", " << dimension;
        // A CPU would compile for as long again.
        if (device_->info().software) continue;
        EXPECT_TRUE(attends(noise(shape), noise(shape), noise(shape), {.causal = true}, &variant, 2))
            << variant.name() << ", " << dimension << ", in parts";
      }
    }
  }
}

TEST_P(FlashAttention, AFewQueriesAreTakenByVariantsOfTheirOwn) {
  DeviceInfo gpu = device_->info();
  gpu.software = false;
  for (const int dimension : {32, 61, 64, 128, 255, 256}) {
    const auto many = kernels::flash_attention_variant(gpu, dimension, 17);
    for (const int queries : {1, 8, 9, 16}) {
      const auto few = kernels::flash_attention_variant(gpu, dimension, queries);
      EXPECT_TRUE(few.fits(gpu.limits)) << few.name();
      EXPECT_LE(few.queries, std::min(many.queries, 16));
      // A CPU would compile for long.
      if (device_->info().software && (dimension > 64 || queries == 8 || queries == 16)) continue;
      const Array k = noise({2, 3, 1200, dimension});
      for (const bool causal : {false, true})
        EXPECT_TRUE(attends(noise({2, 3, queries, dimension}), k, k, {.causal = causal}, &few, causal ? 1 : 5))
            << few.name() << ", " << dimension << ", " << queries << " queries, causal " << causal;
    }
  }
}

TEST_P(FlashAttention, LargeScoresDoNotOverflow) {
  const Array q = noise({1, 1, 40, 16}, -40, 40);
  const Array k = noise({1, 1, 40, 16}, -40, 40);
  EXPECT_TRUE(attends(q, k, noise({1, 1, 40, 16})));
}

TEST_P(FlashAttention, AQueryThatSeesNoKeyGetsZeros) {
  const Array q = noise({1, 2, 9, 8});
  const Array k = noise({1, 2, 4, 8});
  const auto values =
      flash_attention(*cache_, tensor(q), tensor(k), tensor(k), {.causal = true}).value().read().value();
  EXPECT_EQ(values[4 * 8 + 7], 0) << "five queries more than keys";
  EXPECT_NE(values[5 * 8], 0);
  EXPECT_TRUE(attends(q, k, k, {.causal = true}));
  EXPECT_TRUE(attends(q, noise({1, 2, 0, 8}), noise({1, 2, 0, 8}))) << "no keys at all";
  EXPECT_TRUE(attends(noise({1, 2, 0, 8}), k, k));
  EXPECT_TRUE(attends(noise({1, 2, 3, 0}), noise({1, 2, 3, 0}), noise({1, 2, 3, 0})));
}

TEST_P(FlashAttention, NanAndInfinityTakeTheirCourse) {
  Array q = noise({1, 1, 40, 8});
  const Array k = noise({1, 1, 40, 8});
  Array v = noise({1, 1, 40, 8});
  q.values[3 * 8] = std::nanf("");
  q.values[5 * 8 + 1] = infinity;
  v.values[39 * 8 + 2] = infinity;
  v.values[2 * 8 + 4] = std::nanf("");
  EXPECT_TRUE(attends(q, k, v));
}

TEST_P(FlashAttention, PartsOfTheKeysComeToTheSame) {
  for (int i = 0; i < shapes_to_try(); ++i) {
    const std::int64_t heads = between(1, 3);
    const std::int64_t queries = between(1, 90);
    const std::int64_t keys = coin() ? queries : between(1, 200);
    const std::int64_t dimension = coin() ? 64 : between(1, 40);
    const Array k = noise({1, heads, keys, dimension}, -4, 4);
    const FlashAttentionOptions options{.causal = coin()};
    const int parts = between(2, 9);
    ASSERT_TRUE(attends(noise({1, heads, queries, dimension}, -4, 4), k, k, options, nullptr, parts))
        << queries << " queries, " << keys << " keys, dimension " << dimension << ", causal " << options.causal
        << ", " << parts << " parts";
  }
  auto variant = kernels::flash_attention_variant(device_->info(), 32, 9);
  variant.vectors = true;
  EXPECT_TRUE(attends(noise({2, 2, 9, 32}), noise({2, 2, 300, 32}), noise({2, 2, 300, 32}), {}, &variant, 4));
}

TEST_P(FlashAttention, InPartsNanAndInfinityTakeTheirCourse) {
  // Queries with all, with some and with none of their keys in a part.
  const Array q = noise({1, 2, 150, 8});
  const Array k = noise({1, 2, 100, 8});
  EXPECT_TRUE(attends(q, k, k, {.causal = true}, nullptr, 4));
  EXPECT_TRUE(attends(q, noise({1, 2, 0, 8}), noise({1, 2, 0, 8}), {}, nullptr, 4)) << "no keys at all";
  Array odd_q = q;
  Array odd_k = k;
  Array odd_v = noise({1, 2, 100, 8});
  odd_q.values[3 * 8] = std::nanf("");
  odd_q.values[5 * 8 + 1] = infinity;
  odd_v.values[99 * 8 + 2] = infinity;
  odd_v.values[2 * 8 + 4] = std::nanf("");
  EXPECT_TRUE(attends(odd_q, k, odd_v, {}, nullptr, 4));
  odd_k.values[40 * 8 + 3] = infinity;
  EXPECT_TRUE(attends(q, odd_k, k, {}, nullptr, 4)) << "scores of inf and of -inf";
  odd_k.values[90 * 8] = std::nanf("");
  EXPECT_TRUE(attends(q, odd_k, k, {}, nullptr, 4)) << "scores of NaN";
  // All of some parts, and all of all, is scores of -inf.
  const Array ones{{1, 1, 3, 8}, std::vector<float>(24, 1.0F)};
  Array masked{{1, 1, 100, 8}, std::vector<float>(800, -infinity)};
  const Array v = noise({1, 1, 100, 8});
  EXPECT_TRUE(attends(ones, masked, v, {}, nullptr, 4));
  for (int d = 0; d < 8; ++d) masked.values[static_cast<std::size_t>(70 * 8 + d)] = 1;
  EXPECT_TRUE(attends(ones, masked, v, {}, nullptr, 4));
}

TEST_P(FlashAttention, ManyKeysAreNotTooMany) {
  for (const bool causal : {false, true}) {
    const Array k = noise({1, 1, 8000, 256});
    EXPECT_TRUE(attends(noise({1, 1, 3, 256}), k, k, {.causal = causal})) << causal;
  }
  // The mean of values of which the last are the largest.
  const std::int64_t keys = 70000;
  const Array q{{1, 1, 1, 4}, std::vector<float>(4)};
  const Array k = noise({1, 1, keys, 4});
  Array v = k;
  for (std::size_t i = 0; i < v.values.size(); ++i) v.values[i] = static_cast<float>(i) / 280000.0F;
  EXPECT_TRUE(attends(q, k, v));
}

TEST_P(FlashAttention, KeysAreDividedWhereThatHelps) {
  DeviceInfo device = device_->info();
  kernels::FlashAttentionVariant variant;
  const auto parts = [&](std::int64_t tiles, std::int64_t keys) {
    const auto [count, each] = kernels::flash_attention_parts(device, variant, tiles, keys);
    EXPECT_TRUE(count == 1 || each % variant.keys == 0);
    EXPECT_GE(count * each, keys);
    EXPECT_TRUE(count == 1 || (count - 1) * each < keys) << "an empty part";
    return count;
  };
  device.language = Language::cuda;
  device.software = false;
  ASSERT_EQ(variant.items(), 128);
  EXPECT_EQ(parts(1, 1023), 1);
  EXPECT_EQ(parts(1, 1024), 8);
  EXPECT_EQ(parts(32, 8192), 16) << "512 groups of 128";
  EXPECT_EQ(parts(1, 65536), 64);
  EXPECT_EQ(parts(256, 65536), 2);
  EXPECT_EQ(parts(257, 65536), 1);
  EXPECT_EQ(parts(600, 65536), 1);
  EXPECT_EQ(parts(600, 65537), 2) << "for the sums";
  EXPECT_EQ(parts(1, 0), 1);
  device.software = true;
  EXPECT_EQ(parts(1, 65536), 1);
  EXPECT_EQ(parts(1, 300000), 5);
  for (const Language language : {Language::glsl, Language::vulkan_glsl}) {
    device.language = language;
    variant = kernels::flash_attention_variant(device, 256, 3);
    EXPECT_EQ(parts(1, 1000), 1);
    EXPECT_GE(parts(1, 6989), 2) << "where a loop was ended";
  }
}

TEST_P(FlashAttention, TakesAndGivesHalves) {
  const Array x = halved(noise({1, 2, 20, 12}));
  EXPECT_TRUE(matches(flash_attention(*cache_, tensor(x, Type::f16), tensor(x, Type::f16), tensor(x, Type::f16),
                                      {.output = Type::f16}),
                      reference::flash_attention(x, x, x, false, {})));
}

TEST_P(FlashAttention, ShapesThatDoNotFitAreNamed) {
  const auto of = [&](Shape shape) { return tensor(noise(std::move(shape))); };
  const auto said = [&](Shape q, Shape k, Shape v) {
    return message(flash_attention(*cache_, of(std::move(q)), of(std::move(k)), of(std::move(v))));
  };
  EXPECT_EQ(said({1, 2, 3, 4}, {1, 2, 3, 5}, {1, 2, 3, 5}),
            "flash_attention: k has a head dimension of 5 (dimension 3), but q has 4; they must be equal");
  EXPECT_EQ(said({1, 2, 3, 4}, {1, 2, 6, 4}, {1, 2, 3, 4}),
            "flash_attention: v has 3 keys (dimension 2), but k has 6; they must be equal");
  EXPECT_EQ(said({1, 2, 3, 4}, {3, 2, 3, 4}, {3, 2, 3, 4}),
            "flash_attention: k has a batch of 3 (dimension 0), but q has 1; they must be equal");
  EXPECT_EQ(said({1, 2, 3, 4}, {2, 3, 4}, {1, 2, 3, 4}), "flash_attention: k has 3 dimensions; it must have 4");
  EXPECT_EQ(said({1, 1, 1, 300}, {1, 1, 1, 300}, {1, 1, 1, 300}),
            "flash_attention: q has a head dimension of 300 (dimension 3); the limit is 256");
}

INSTANTIATE_TEST_SUITE_P(EveryApi, WeightedMatmul, contract::every_api(), contract::name_of);
INSTANTIATE_TEST_SUITE_P(EveryApi, FlashAttention, contract::every_api(), contract::name_of);

}  // namespace
}  // namespace kiln::tests
