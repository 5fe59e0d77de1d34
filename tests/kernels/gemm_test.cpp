#include <atomic>
#include <cmath>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "kernels/gemm.hpp"
#include "kernels/kernel_suite.hpp"

namespace kiln::tests {
namespace {

TEST(TileFor, LeavesOutWhatACompilerHasNoRegistersFor) {
  DeviceInfo gpu;
  gpu.limits = {.max_group_size = {1024, 1024, 64}, .max_group_items = 1024, .shared_bytes = 48 * 1024};
  for (const auto& [language, rows] : {std::pair(Language::cuda, 128), std::pair(Language::opencl, 128),
                                       std::pair(Language::vulkan_glsl, 128), std::pair(Language::glsl, 64)}) {
    gpu.language = language;
    const kernels::Tile tile = kernels::tile_for(gpu, 4096, 4096, 1);
    EXPECT_EQ(tile.rows, rows) << tile.name();
    EXPECT_EQ(tile.columns, 128) << tile.name();
    EXPECT_EQ(kernels::tile_for(gpu, 512, 512, 1).rows, 64) << "too few tiles of a larger one";
  }
}

TEST(GemmVariant, DividesTheDepthWhereTilesAreFew) {
  DeviceInfo gpu;
  gpu.limits = {.max_group_size = {1024, 1024, 64}, .max_group_items = 1024, .shared_bytes = 48 * 1024};
  const auto chosen = [&](const kernels::GemmSize& size) {
    const Tunable tunable = kernels::gemm_tunable(gpu, "gemm", size);
    EXPECT_TRUE(tunable.fits(tunable.initial));
    const auto variant = kernels::gemm_variant(gpu, size);
    return std::pair(variant.tile.rows, variant.split);
  };
  for (const Language language : {Language::cuda, Language::opencl, Language::vulkan_glsl, Language::glsl}) {
    gpu.language = language;
    EXPECT_EQ(chosen({.m = 1024, .n = 1024, .k = 1024}), std::pair(64, 1)) << "256 tiles are enough";
    EXPECT_EQ(chosen({.m = 128, .n = 1024, .k = 4096}), std::pair(64, 16));
    EXPECT_EQ(chosen({.m = 128, .n = 128, .k = 16384}), std::pair(64, 64));
    EXPECT_EQ(chosen({.batch = 64, .m = 64, .n = 64, .k = 4096}), std::pair(64, 8));
    EXPECT_EQ(chosen({.m = 512, .n = 512, .k = 512}), std::pair(32, 1)) << "parts would be too short";
    EXPECT_EQ(chosen({.m = 256, .n = 512, .k = 128}), std::pair(32, 1)) << "nothing to divide";
    EXPECT_EQ(chosen({.m = 32, .n = 1024, .k = 4096}), std::pair(32, 16)) << "half of a larger tile hangs over";
    EXPECT_EQ(chosen({.m = 7, .n = 9, .k = 1100}), std::pair(32, 4));
    EXPECT_EQ(chosen({.m = 1, .n = 1, .k = 1 << 20}), std::pair(32, 64));
  }
  gpu.software = true;
  EXPECT_EQ(chosen({.m = 128, .n = 128, .k = 16384}), std::pair(32, 1));
}

class Gemm : public KernelSuite {
 protected:
  Shape matrix(std::int64_t rows, std::int64_t columns, bool transposed, std::int64_t batch) {
    Shape shape = transposed ? Shape{columns, rows} : Shape{rows, columns};
    if (batch != 0) shape.insert(shape.begin(), batch);
    return shape;
  }

  /// Compares a product with the reference, by the variant the library chooses or one of the test's.
  testing::AssertionResult multiplies(Shape a_shape, Shape b_shape, GemmOptions options,
                                      const std::optional<Shape>& c_shape,
                                      const kernels::GemmVariant* variant = nullptr) {
    const Array a = noise(std::move(a_shape));
    const Array b = noise(std::move(b_shape));
    std::optional<Array> c;
    if (c_shape) {
      c = noise(*c_shape);
      options.c = tensor(*c);
    }
    const Array expected = reference::gemm(a, b, c,
                                           {.transpose_a = options.transpose_a,
                                            .transpose_b = options.transpose_b,
                                            .alpha = double{options.alpha},
                                            .beta = double{options.beta}});
    return matches(kernels::gemm(*cache_, tensor(a), tensor(b), options, variant), expected);
  }
};

TEST_P(Gemm, ComputesWhatTheReferenceDoes) {
  for (int i = 0; i < shapes_to_try(); ++i) {
    const int m = between(1, 90);
    const int n = between(1, 90);
    const int k = between(1, 120);
    const int batch = between(0, 3);
    const bool a_batched = coin();
    GemmOptions options{.transpose_a = coin(), .transpose_b = coin()};
    std::optional<Shape> c;
    if (coin()) {
      options.alpha = 0.75F;
      options.beta = -0.5F;
      c = matrix(m, n, false, coin() ? batch : 0);
    }
    ASSERT_TRUE(multiplies(matrix(m, k, options.transpose_a, a_batched ? batch : 0),
                           matrix(k, n, options.transpose_b, a_batched && coin() ? std::min(batch, 1) : batch),
                           options, c))
        << m << " x " << n << " x " << k << ", batch " << batch << ", " << options.transpose_a
        << options.transpose_b;
  }
}

TEST_P(Gemm, EveryVariantComputesTheSame) {
  using kernels::Tile;
  // Large tiles take long to compile where a CPU does it.
  const bool all = !device_->info().software || shapes_to_try() > 100;
  struct Form {
    bool transpose_a;
    bool transpose_b;
    bool turned;
  };
  std::vector<Form> forms = {{false, false, false}, {true, true, false}, {false, true, true}};
  if (all)
    forms.insert(forms.end(),
                 {{false, true, false}, {true, false, false}, {false, false, true}, {true, true, true}});
  for (const Tile& tile : {Tile{}, Tile{32, 32, 16, 4, 4, true}, Tile{64, 64, 16, 8, 4, true},
                           Tile{64, 128, 8, 8, 8}, Tile{64, 64, 16, 4, 4}, Tile{128, 128, 8, 8, 8}}) {
    if (!tile.fits(device_->info().limits) || (!all && tile.items() > 128)) continue;
    for (const auto& [transpose_a, transpose_b, turned] : forms) {
      if (!all && tile.items() > 64 && (transpose_a || turned)) continue;
      const kernels::GemmVariant variant{.tile = tile, .vectors = true, .turned = turned};
      const std::int64_t rows = transpose_a ? 132 : 131;
      EXPECT_TRUE(multiplies(matrix(rows, 44, transpose_a, 2), matrix(44, 140, transpose_b, 0),
                             {.transpose_a = transpose_a, .transpose_b = transpose_b, .beta = 0.5F},
                             Shape{rows, 140}, &variant))
          << variant.name("gemm") << transpose_a << transpose_b;
    }
  }
  const kernels::GemmVariant plain{.turned = true};
  EXPECT_TRUE(multiplies({2, 35, 43}, {2, 33, 43}, {.transpose_b = true}, {}, &plain)) << plain.name("gemm");
  const kernels::GemmVariant unrolled{.tile = {.unroll = true}};
  EXPECT_TRUE(multiplies({2, 35, 43}, {43, 33}, {}, {}, &unrolled)) << unrolled.name("gemm");
}

TEST_P(Gemm, WhatAGpuTakesForFewTilesComputesTheSame) {
  DeviceInfo gpu = device_->info();
  gpu.software = false;
  for (const auto& [m, n, k, split] : {std::array{4, 8, 16400, 64}, std::array{90, 70, 33000, 64}}) {
    const kernels::GemmVariant variant = kernels::gemm_variant(gpu, {.m = m, .n = n, .k = k});
    EXPECT_EQ(variant.split, split);
    EXPECT_TRUE(multiplies({m, k}, {k, n}, {}, {}, &variant)) << variant.name("gemm") << ", depth " << k;
  }
}

TEST_P(Gemm, ADepthDividedAmongGroupsAddsUpToTheSame) {
  const kernels::GemmVariant plain{.split = 16};
  const kernels::GemmVariant vectors{.vectors = true, .split = 4};
  EXPECT_TRUE(multiplies({7, 5000}, {5000, 9}, {}, {}, &plain));
  EXPECT_TRUE(multiplies({64, 4096}, {4096, 64}, {}, {}, &vectors));
  EXPECT_TRUE(multiplies({2, 4096, 12}, {2, 20, 4096}, {.transpose_a = true, .transpose_b = true, .beta = 0.5F},
                         Shape{2, 12, 20}, &vectors))
      << "a batch, transposed";
  EXPECT_TRUE(multiplies({5, 3}, {3, 6}, {}, {}, &plain)) << "parts without any depth";
  EXPECT_TRUE(multiplies({5, 0}, {0, 6}, {.beta = 2}, Shape{5, 6}, &plain)) << "no depth at all";
  for (int i = 0; i < shapes_to_try(); ++i) {
    const int m = between(1, 50);
    const int n = between(1, 50);
    const int k = between(1, 700);
    const int batch = between(0, 3);
    GemmOptions options{.transpose_a = coin(), .transpose_b = coin(), .alpha = -1.5F};
    std::optional<Shape> c;
    if (coin()) {
      options.beta = 0.75F;
      c = matrix(m, n, false, coin() ? batch : 0);
    }
    const kernels::GemmVariant variant{.split = 1 << between(1, 4)};
    ASSERT_TRUE(multiplies(matrix(m, k, options.transpose_a, coin() ? batch : 0),
                           matrix(k, n, options.transpose_b, batch), options, c, &variant))
        << m << " x " << n << " x " << k << ", batch " << batch << ", " << options.transpose_a
        << options.transpose_b << ", " << variant.split << " parts";
  }
}

TEST_P(Gemm, ALongSumStaysExact) {
  for (const std::int64_t depth : {65537, 600000}) {
    EXPECT_TRUE(multiplies({1, depth}, {depth, 1}, {}, {})) << depth;
    const Array a{{1, depth}, std::vector<float>(static_cast<std::size_t>(depth), 1.0F)};
    const Array b{{depth, 1}, std::vector<float>(static_cast<std::size_t>(depth), 0.1F)};
    EXPECT_TRUE(matches(gemm(*cache_, tensor(a), tensor(b)), reference::gemm(a, b, {}, {}))) << depth;
  }
  EXPECT_TRUE(multiplies({70000, 3}, {70000, 2}, {.transpose_a = true, .alpha = 0.5F, .beta = 2}, Shape{3, 2}));
}

TEST_P(Gemm, PartsThatTakeTooMuchMemoryAreRefused) {
  const std::int64_t depth = std::int64_t{1} << 23;
  const std::int64_t batch = Tensor::max_count / 128 + 1;
  const auto of = [&](Shape shape) { return Tensor::empty(device_, std::move(shape)).value(); };
  const auto got = gemm(*cache_, of({1, depth}), of({depth, 1}), {.beta = 1, .c = of({batch, 1, 1})});
  EXPECT_EQ(message(got),
            fmt::format("gemm: its {} intermediate values exceed the limit of {}", batch * 128, Tensor::max_count));
  EXPECT_EQ(got.error().code(), ErrorCode::unsupported);
}

TEST_P(Gemm, LoopsThatTheDriverWouldEndAreShorterOrRefused) {
  if (!kernels::ends_long_loops(device_->info())) GTEST_SKIP() << "the driver ends no loops";
  // The compiler leaves the loop over a panel's depth as it is.
  for (const kernels::Tile& tile : {kernels::Tile{64, 64, 8, 8, 8}, kernels::Tile{32, 32, 32, 4, 4}}) {
    const kernels::GemmVariant variant{.tile = tile};
    EXPECT_TRUE(multiplies({1, 65536}, {65536, 1}, {}, {}, &variant)) << tile.name();
  }
  // Nine tiles for each of 65,535 groups.
  const auto of = [&](Shape shape) { return Tensor::empty(device_, std::move(shape)).value(); };
  const auto got = gemm(*cache_, of({1, 65536}), of({65536, 1}), {.beta = 1, .c = of({8 * 65535 + 1, 1, 1})});
  EXPECT_EQ(
      message(got),
      fmt::format(
          "gemm: the loops of a work item need about 73746 steps, but the driver of {} stops them after 65535",
          device_->info().name));
  EXPECT_EQ(got.error().code(), ErrorCode::unsupported);
}

TEST_P(Gemm, IsTurnedWhereGpusAreSlowToScatter) {
  DeviceInfo device = device_->info();
  const auto turned = [&device](Language language, bool software, bool transpose_a = false) {
    device.language = language;
    device.software = software;
    const kernels::GemmSize size{.m = 512, .n = 512, .k = 512, .transpose_a = transpose_a};
    const Tunable tunable = kernels::gemm_tunable(device, "gemm", size);
    EXPECT_TRUE(tunable.fits(tunable.initial));
    return initial(tunable, "turned");
  };
  EXPECT_EQ(turned(Language::glsl, false), 1);
  EXPECT_EQ(turned(Language::vulkan_glsl, false), 0);
  EXPECT_EQ(turned(Language::glsl, true), 0);
  EXPECT_EQ(turned(Language::cuda, false), 0);
  EXPECT_EQ(turned(Language::opencl, false), 0);
  EXPECT_EQ(turned(Language::glsl, false, true), 0) << "nothing lies along the depth";
}

TEST_P(Gemm, IsUnrolledOnGpus) {
  DeviceInfo device = device_->info();
  const auto unrolled = [&device](Language language, bool software = false) {
    device.language = language;
    device.software = software;
    return initial(kernels::gemm_tunable(device, "gemm", {.m = 512, .n = 512, .k = 512}), "u");
  };
  EXPECT_EQ(unrolled(Language::cuda), 1);
  EXPECT_EQ(unrolled(Language::hip), 1);
  EXPECT_EQ(unrolled(Language::opencl), 1);
  EXPECT_EQ(unrolled(Language::opencl, true), 0);
  EXPECT_EQ(unrolled(Language::glsl), 1);
  EXPECT_EQ(unrolled(Language::vulkan_glsl), 1);
  EXPECT_EQ(unrolled(Language::glsl, true), 0);
}

TEST_P(Gemm, WithoutDepthIsWhatItIsAddedTo) {
  EXPECT_TRUE(multiplies({5, 0}, {0, 6}, {}, {}));
  EXPECT_TRUE(multiplies({5, 0}, {0, 6}, {.beta = 2}, Shape{5, 6}));
  EXPECT_TRUE(multiplies({0, 3}, {3, 6}, {}, {}));
  EXPECT_TRUE(multiplies({5, 3}, {3, 0}, {}, {}));
  EXPECT_TRUE(multiplies({0, 5, 3}, {3, 2}, {}, {}));
}

TEST_P(Gemm, NanAndInfinityTakeTheirCourse) {
  Array a = noise({40, 40});
  Array b = noise({40, 40});
  a.values[3 * 40 + 7] = std::nanf("");
  a.values[5 * 40 + 39] = infinity;
  b.values[39 * 40 + 2] = 0;
  b.values[11 * 40 + 38] = -infinity;
  EXPECT_TRUE(matches(gemm(*cache_, tensor(a), tensor(b)), reference::gemm(a, b, {}, {})));
}

TEST_P(Gemm, WithBetaZeroNothingIsReadOfC) {
  const Array a = noise({8, 8});
  const Array c{{8, 8}, std::vector<float>(64, std::nanf(""))};
  EXPECT_TRUE(
      matches(gemm(*cache_, tensor(a), tensor(a), {.beta = 0, .c = tensor(c)}), reference::gemm(a, a, {}, {})));
}

TEST_P(Gemm, ManyThreadsGetWhatOneGets) {
  const Tensor a = tensor(noise({65, 40}));
  const Tensor b = tensor(noise({40, 70}));
  const std::vector<float> alone = gemm(*cache_, a, b).value().read().value();
  std::vector<std::thread> threads;
  std::atomic<int> same = 0;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      for (int n = 0; n < 5; ++n) same += gemm(*cache_, a, b).value().read().value() == alone ? 1 : 0;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(same, 40);
}

TEST_P(Gemm, TakesAndGivesHalves) {
  const Array a = halved(noise({33, 20}));
  const Array b = halved(noise({20, 31}));
  const auto got = gemm(*cache_, tensor(a, Type::f16), tensor(b, Type::f16), {.output = Type::f16});
  EXPECT_TRUE(matches(got, reference::gemm(a, b, {}, {}), 2e-3)) << "f16 itself is as far off as 1e-3";
  EXPECT_EQ(got.value().type(), Type::f16);
}

TEST_P(Gemm, LessPrecisionIsWithinItsBounds) {
  const Array a = noise({150, 100});
  const Array b = noise({100, 72});
  const Array expected = reference::gemm(a, b, std::nullopt, {});
  for (const Precision precision : {Precision::tf32, Precision::f16}) {
    const bool units = kernels::precision_on(device_->info(), precision) != Precision::f32;
    EXPECT_TRUE(
        matches(gemm(*cache_, tensor(a), tensor(b), {.precision = precision}), expected, units ? 2e-2 : 1e-3));
    EXPECT_TRUE(matches(
        gemm(*cache_, tensor(b), tensor(a), {.transpose_a = true, .transpose_b = true, .precision = precision}),
        reference::gemm(b, a, std::nullopt, {.transpose_a = true, .transpose_b = true}), units ? 2e-2 : 1e-3));
  }
}

TEST_P(Gemm, ShapesThatDoNotFitAreNamed) {
  const auto of = [&](Shape shape) { return tensor(noise(std::move(shape))); };
  EXPECT_EQ(message(gemm(*cache_, of({2, 3}), of({4, 5}))),
            "gemm: b has 4 rows (dimension 0), but a has 3 columns (dimension 1); they must be equal");
  EXPECT_EQ(message(gemm(*cache_, of({2, 3}), of({5, 4}), {.transpose_b = true})),
            "gemm: b has 4 rows (dimension 1, transposed), but a has 3 columns (dimension 1); they must be equal");
  EXPECT_EQ(message(gemm(*cache_, of({2, 3}), of({3}))),
            "gemm: b has 1 dimensions; it must have 2, or 3 with a batch");
  EXPECT_EQ(message(gemm(*cache_, of({4, 2, 3}), of({3, 3, 5}))),
            "gemm: b has a batch of 3 (dimension 0), but a has a batch of 4; it must be 1 or the same");
  EXPECT_EQ(message(gemm(*cache_, of({2, 3}), of({3, 4}), {.beta = 1, .c = of({3, 4})})),
            "gemm: c has 3 rows (dimension 0), but the product has 2");
  EXPECT_EQ(message(gemm(*cache_, of({2, 3}), of({3, 4}), {.beta = 1, .c = of({2, 5})})),
            "gemm: c has 5 columns (dimension 1), but the product has 4");
  EXPECT_EQ(message(gemm(*cache_, of({2, 3}), of({3, 4}), {.beta = 1})), "gemm: beta is 1, but there is no c");
  EXPECT_EQ(gemm(*cache_, of({2, 3}), of({4, 5})).error().code(), ErrorCode::invalid_request);
}

INSTANTIATE_TEST_SUITE_P(EveryApi, Gemm, contract::every_api(), contract::name_of);

}  // namespace
}  // namespace kiln::tests
