#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/conv2d.hpp"
#include "kernels/kernel_suite.hpp"
#include "kernels/plan.hpp"
#include "kernels/winograd.hpp"

namespace kiln::tests {
namespace {

class Conv2d : public KernelSuite {
 protected:
  testing::AssertionResult convolves(const Array& x, const Array& w, Conv2dOptions options, bool with_bias,
                                     const kernels::Conv2dVariant* variant = nullptr) {
    std::optional<Array> bias;
    if (with_bias) {
      bias = noise({w.shape[0]});
      options.bias = tensor(*bias);
    }
    return matches(kernels::conv2d(*cache_, tensor(x), tensor(w), options, variant),
                   reference::conv2d(x, w, bias,
                                     {.stride = options.stride,
                                      .padding = options.padding,
                                      .dilation = options.dilation,
                                      .groups = options.groups}));
  }
};

TEST_P(Conv2d, ComputesWhatTheReferenceDoes) {
  for (int i = 0; i < shapes_to_try(); ++i) {
    const int filter = between(0, 3);
    const int filter_h = filter == 0 ? between(1, 4) : 2 * filter - 1;
    const int filter_w = filter == 0 ? between(1, 7) : filter_h;
    Conv2dOptions options{.stride = {between(1, 3), between(1, 3)},
                          .padding = {between(0, 3), between(0, 3)},
                          .dilation = {between(1, 2), between(1, 2)},
                          .groups = between(1, 3)};
    const int channels = options.groups * between(1, 5);
    const int filters = options.groups * between(1, 14);
    const int height = options.dilation[0] * (filter_h - 1) + between(1, 16);
    const int width = options.dilation[1] * (filter_w - 1) + between(1, 16);
    ASSERT_TRUE(convolves(noise({between(1, 3), channels, height, width}),
                          noise({filters, channels / options.groups, filter_h, filter_w}), options, coin()))
        << channels << " channels, " << filters << " filters of " << filter_h << " x " << filter_w << ", " << height
        << " x " << width << ", groups " << options.groups;
  }
}

TEST_P(Conv2d, EveryVariantComputesTheSame) {
  using kernels::Tile;
  const bool all = !device_->info().software || shapes_to_try() > 100;
  for (const Tile& tile : {Tile{64, 128, 8, 8, 8}, Tile{}, Tile{64, 64, 16, 4, 4}, Tile{128, 128, 8, 8, 8}}) {
    if (!tile.fits(device_->info().limits) || (!all && tile.rows != 64)) continue;
    for (const int filter : {3, 1, 5, 0}) {
      if (!all && filter != 3) continue;
      const int extent = filter == 0 ? 2 : filter;
      const int padding = extent / 2;
      const int beyond = extent - 1 - 2 * padding;
      kernels::Conv2dVariant variant{
          .tile = tile, .vectors = true, .filter_height = filter, .filter_width = filter};
      const auto is_right = [&](int width) {
        return convolves(noise({2, 8, 12 + beyond, width + beyond}), noise({70, 8, extent, extent}),
                         {.padding = {padding, padding}}, true, &variant);
      };
      EXPECT_TRUE(is_right(11)) << variant.name();
      variant.turned = true;
      if (all) {
        EXPECT_TRUE(is_right(11)) << variant.name();
      }
      variant.rows_of_quads = true;
      EXPECT_TRUE(is_right(16)) << variant.name();
      variant.tile.unroll = true;
      if (all) {
        EXPECT_TRUE(is_right(16)) << variant.name();
      }
    }
    if (!all) break;
  }
}

TEST_P(Conv2d, TurnedComputesWhatTheReferenceDoes) {
  for (int i = 0; i < shapes_to_try(); ++i) {
    const Shape filter = {between(1, 4), between(1, 5)};
    Conv2dOptions options{.stride = {between(1, 3), between(1, 3)},
                          .padding = {between(0, 3), between(0, 3)},
                          .dilation = {between(1, 2), between(1, 2)},
                          .groups = between(1, 3)};
    const bool quads = coin();
    const int out_width = quads ? 4 * between(1, 5) : between(1, 20);
    const std::int64_t span = options.dilation[1] * (filter[1] - 1) + 1;
    const std::int64_t width = (out_width - 1) * options.stride[1] + span - 2 * options.padding[1];
    if (width < 1) continue;
    const int channels = between(1, 5);
    const Shape x = {between(1, 3), options.groups * channels,
                     options.dilation[0] * (filter[0] - 1) + between(1, 16), width};
    kernels::Conv2dVariant variant{.turned = true, .rows_of_quads = quads};
    if (coin()) {
      variant.filter_height = static_cast<int>(filter[0]);
      variant.filter_width = static_cast<int>(filter[1]);
    }
    ASSERT_TRUE(convolves(noise(x), noise({options.groups * between(1, 14), channels, filter[0], filter[1]}),
                          options, coin(), &variant))
        << to_string(x) << ", filters of " << to_string(filter) << ", groups " << options.groups << ", "
        << variant.name();
  }
}

TEST_P(Conv2d, WinogradComputesWhatTheReferenceDoes) {
  const kernels::Conv2dVariant plain{.filter_height = 3, .filter_width = 3, .winograd = true};
  const kernels::Conv2dVariant vectors{.vectors = true, .filter_height = 3, .filter_width = 3, .winograd = true};
  const kernels::Conv2dVariant turned{
      .vectors = true, .filter_height = 3, .filter_width = 3, .winograd = true, .turned = true};
  EXPECT_TRUE(convolves(noise({1, 1, 1, 1}), noise({1, 1, 3, 3}), {.padding = {1, 1}, .allow_winograd = true}, true,
                        &plain))
      << "one pixel";
  EXPECT_TRUE(convolves(noise({3, 70, 12, 16}), noise({66, 70, 3, 3}), {.padding = {1, 1}, .allow_winograd = true},
                        true, &vectors))
      << "more than one tile of the product";
  EXPECT_TRUE(convolves(noise({1, 6, 9, 8}), noise({7, 6, 3, 3}), {.allow_winograd = true}, true, &turned))
      << "turned";
  for (int i = 0; i < shapes_to_try(); ++i) {
    const Conv2dOptions options{.padding = {between(0, 3), between(0, 3)}, .allow_winograd = true};
    const Shape x = {between(1, 3), between(1, 9), between(3, 18), between(3, 18)};
    const Shape w = {between(1, 14), x[1], 3, 3};
    ASSERT_TRUE(convolves(noise(x), noise(w), options, coin(), coin() ? &vectors : &plain))
        << to_string(x) << ", " << w[0] << " filters, padding " << options.padding[0] << " " << options.padding[1];
  }
}

TEST_P(Conv2d, WinogradTakesManyTilesInSlices) {
  if (device_->info().software && shapes_to_try() <= 100) GTEST_SKIP() << "takes seconds where a CPU does it";
  const kernels::Conv2dVariant variant{.vectors = true, .filter_height = 3, .filter_width = 3, .winograd = true};
  ASSERT_EQ(
      kernels::winograd_slices({.images = 3, .channels = 3, .filters = 2, .out_height = 808, .out_width = 801})
          .count,
      2);
  EXPECT_TRUE(convolves(noise({3, 3, 810, 803}), noise({2, 3, 3, 3}), {.allow_winograd = true}, true, &variant));
}

TEST_P(Conv2d, WinogradSpreadsANanNoFurtherThanItSays) {
  const kernels::Conv2dVariant variant{.filter_height = 3, .filter_width = 3, .winograd = true};
  const Array x = noise({1, 1, 24, 24});
  const Array w = noise({1, 1, 3, 3});
  const Array sound = reference::conv2d(x, w, {}, {.padding = {1, 1}});
  const auto apart = [](std::size_t a, std::size_t b) { return a > b ? a - b : b - a; };
  for (std::size_t i = 8; i < 12; ++i) {
    Array spoilt = x;
    spoilt.values[25 * i] = std::nanf("");
    const auto got =
        kernels::conv2d(*cache_, tensor(spoilt), tensor(w), {.padding = {1, 1}, .allow_winograd = true}, &variant)
            .value()
            .read()
            .value();
    for (std::size_t at = 0; at < got.size(); ++at) {
      const std::size_t away = std::max(apart(at / 24, i), apart(at % 24, i));
      if (away > 1 && away <= 4) continue;
      ASSERT_TRUE(away <= 1 ? std::isnan(got[at]) : std::abs(got[at] - sound.values[at]) < 1e-3F)
          << at / 24 << " " << at % 24 << " is " << got[at];
    }
  }
}

TEST_P(Conv2d, WinogradOfNothingIsTheBias) {
  const kernels::Conv2dVariant variant{.filter_height = 3, .filter_width = 3, .winograd = true};
  EXPECT_TRUE(convolves(noise({2, 0, 5, 5}), noise({4, 0, 3, 3}), {.allow_winograd = true}, true, &variant));
  EXPECT_TRUE(convolves(noise({0, 3, 5, 5}), noise({4, 3, 3, 3}), {.allow_winograd = true}, true, &variant));
}

TEST_P(Conv2d, WinogradIsOnlyForWhatItCanDo) {
  const kernels::Conv2dVariant variant{.filter_height = 3, .filter_width = 3, .winograd = true};
  const auto is_taken = [&](int filter, const Conv2dOptions& options) {
    const Shape x = {1, 4, 9, 9};
    const Shape w = {4, 4 / options.groups, filter, filter};
    const auto tunable = kernels::conv2d_tunable(device_->info(), x, w, options).value();
    const bool tuned = std::any_of(tunable.parameters.begin(), tunable.parameters.end(), [](const auto& parameter) {
      return parameter.name == "winograd" && parameter.values.size() > 1;
    });
    const auto result = kernels::conv2d(*cache_, tensor(noise(x)), tensor(noise(w)), options, &variant);
    EXPECT_EQ(result.ok(), tuned);
    EXPECT_TRUE(tuned || result.error().code() == ErrorCode::unsupported);
    return tuned;
  };
  EXPECT_TRUE(is_taken(3, {.allow_winograd = true}));
  EXPECT_FALSE(is_taken(3, {}));
  EXPECT_FALSE(is_taken(5, {.allow_winograd = true}));
  EXPECT_FALSE(is_taken(3, {.stride = {1, 2}, .allow_winograd = true}));
  EXPECT_FALSE(is_taken(3, {.dilation = {2, 1}, .allow_winograd = true}));
  EXPECT_FALSE(is_taken(3, {.groups = 2, .allow_winograd = true}));
}

TEST_P(Conv2d, WinogradIsTheDefaultOfGpusWhereThereIsEnoughToDo) {
  DeviceInfo gpu = device_->info();
  gpu.software = false;
  DeviceInfo cpu = gpu;
  cpu.software = true;
  const auto is_chosen = [](const DeviceInfo& device, const Shape& x, std::int64_t filters) {
    return initial(kernels::conv2d_tunable(device, x, {filters, x[1], 3, 3}, {.allow_winograd = true}).value(),
                   "winograd");
  };
  EXPECT_EQ(is_chosen(gpu, {1, 64, 66, 66}, 64), 1);
  EXPECT_EQ(is_chosen(cpu, {1, 64, 66, 66}, 64), 0);
  EXPECT_EQ(is_chosen(gpu, {1, 32, 66, 66}, 64), 0);
  EXPECT_EQ(is_chosen(gpu, {1, 64, 66, 66}, 32), 0);
  EXPECT_EQ(is_chosen(gpu, {1, 64, 16, 16}, 64), 0);
}

TEST_P(Conv2d, IsTurnedWhereGpusAreSlowToScatter) {
  DeviceInfo device = device_->info();
  const auto turned = [&device](Language language, bool software) {
    device.language = language;
    device.software = software;
    const auto tunable = kernels::conv2d_tunable(device, {1, 64, 66, 66}, {64, 64, 3, 3}, {}).value();
    EXPECT_TRUE(tunable.fits(tunable.initial));
    return initial(tunable, "turned");
  };
  EXPECT_EQ(turned(Language::glsl, false), 1);
  EXPECT_EQ(turned(Language::vulkan_glsl, false), 1);
  EXPECT_EQ(turned(Language::vulkan_glsl, true), 0);
  EXPECT_EQ(turned(Language::cuda, false), 0);
}

TEST_P(Conv2d, OfNothingIsTheBias) {
  EXPECT_TRUE(convolves(noise({2, 0, 5, 5}), noise({4, 0, 3, 3}), {}, true)) << "no channels";
  EXPECT_TRUE(convolves(noise({0, 3, 5, 5}), noise({4, 3, 3, 3}), {}, true)) << "no images";
  EXPECT_TRUE(convolves(noise({2, 3, 5, 5}), noise({0, 3, 3, 3}), {}, false)) << "no filters";
  EXPECT_TRUE(convolves(noise({1, 2, 0, 4}), noise({3, 2, 3, 3}), {.padding = {2, 0}}, true)) << "padding alone";
}

TEST_P(Conv2d, NanAndInfinityTakeTheirCourse) {
  Array x = noise({1, 3, 9, 9});
  const Array w = noise({5, 3, 3, 3});
  x.values[40] = std::nanf("");
  x.values[81 + 5] = infinity;
  x.values[2 * 81 + 80] = -infinity;
  EXPECT_TRUE(convolves(x, w, {.padding = {1, 1}}, true));
}

TEST_P(Conv2d, TakesAndGivesHalves) {
  const Array x = halved(noise({1, 3, 9, 9}));
  const Array w = halved(noise({5, 3, 3, 3}));
  const auto got = conv2d(*cache_, tensor(x, Type::f16), tensor(w, Type::f16), {.output = Type::f16});
  EXPECT_TRUE(matches(got, reference::conv2d(x, w, {}, {}), 2e-3)) << "f16 itself is as far off as 1e-3";
}

TEST_P(Conv2d, LessPrecisionIsWithinItsBounds) {
  const Array x = noise({2, 12, 13, 20});
  const Array w = noise({70, 12, 3, 3});
  for (const Precision precision : {Precision::tf32, Precision::f16}) {
    const bool units = kernels::precision_on(device_->info(), precision) != Precision::f32;
    EXPECT_TRUE(matches(conv2d(*cache_, tensor(x), tensor(w), {.padding = {1, 1}, .precision = precision}),
                        reference::conv2d(x, w, std::nullopt, {.padding = {1, 1}}), units ? 2e-2 : 1e-3));
  }
}

TEST_P(Conv2d, LoopsThatTheDriverWouldEndAreRefused) {
  if (!kernels::ends_long_loops(device_->info())) GTEST_SKIP() << "the driver ends no loops";
  constexpr std::int64_t most_channels = 58247;
  EXPECT_TRUE(convolves(noise({1, most_channels, 3, 6}), noise({1, most_channels, 3, 3}), {}, false));
  const auto of = [&](Shape shape) { return Tensor::empty(device_, std::move(shape)).value(); };
  const auto got = conv2d(*cache_, of({1, most_channels + 1, 3, 6}), of({1, most_channels + 1, 3, 3}));
  EXPECT_TRUE(message(got).starts_with("conv2d: the loops of a work item need about 65536 steps")) << message(got);
  EXPECT_EQ(got.error().code(), ErrorCode::unsupported);
  EXPECT_TRUE(conv2d(*cache_, of({0, 60000, 3, 3}), of({1, 60000, 3, 3}))) << "nothing to compute";
}

TEST_P(Conv2d, NoTunedVariantIsRefusedWhereTheFirstIsNot) {
  DeviceInfo device = device_->info();
  device.software = true;
  const auto tunable = kernels::conv2d_tunable(device, {1, 8192, 10, 10}, {64, 8192, 3, 3}, {}).value();
  Variant slow = tunable.initial;
  std::ranges::copy(std::array{64, 64, 8, 16, 4, 0}, slow.begin());
  const auto few = kernels::conv2d_tunable(device, {1, 64, 10, 10}, {64, 64, 3, 3}, {}).value();
  EXPECT_TRUE(tunable.fits(tunable.initial));
  EXPECT_EQ(tunable.fits(slow), few.fits(slow) && !kernels::ends_long_loops(device));
}

TEST_P(Conv2d, ShapesThatDoNotFitAreNamed) {
  const auto of = [&](Shape shape) { return tensor(noise(std::move(shape))); };
  const auto said = [&](Shape x, Shape w, const Conv2dOptions& options = {}) {
    return message(conv2d(*cache_, of(std::move(x)), of(std::move(w)), options));
  };
  EXPECT_EQ(said({1, 8, 5, 5}, {4, 3, 3, 3}, {.groups = 2}),
            "conv2d: w has 3 input channels (dimension 1); x has 8 and groups is 2, so it must have 4");
  EXPECT_EQ(said({8, 5, 5}, {4, 3, 3, 3}), "conv2d: x has 3 dimensions; it must have 4");
  EXPECT_EQ(said({1, 3, 5, 5}, {4, 3, 3}), "conv2d: w has 3 dimensions; it must have 4");
  EXPECT_EQ(said({1, 3, 5, 5}, {4, 3, 3, 3}, {.groups = 2}),
            "conv2d: x has 3 channels (dimension 1), which is not a multiple of groups, 2");
  EXPECT_EQ(said({1, 4, 5, 5}, {3, 2, 3, 3}, {.groups = 2}),
            "conv2d: w has 3 filters (dimension 0), which is not a multiple of groups, 2");
  EXPECT_EQ(said({1, 3, 5, 5}, {4, 3, 3, 3}, {.bias = of({3})}),
            "conv2d: bias has shape [3]; w has 4 filters (dimension 0), so it must be [4]");
  EXPECT_EQ(said({1, 3, 4, 9}, {4, 3, 3, 3}, {.dilation = {2, 1}}),
            "conv2d: w spans 5 rows (dimension 2), but x has only 4 with its padding");
  EXPECT_EQ(said({1, 3, 4, 1}, {4, 3, 3, 3}),
            "conv2d: w spans 3 columns (dimension 3), but x has only 1 with its padding");
  EXPECT_EQ(said({1, 3, 4, 4}, {4, 3, 0, 3}), "conv2d: w has filters of 0 rows (dimension 2)");
  EXPECT_EQ(said({1, 3, 4, 4}, {4, 3, 3, 3}, {.stride = {1, 0}}),
            "conv2d: a stride of 0 in width; it must be 1 or more");
  EXPECT_EQ(said({1, 3, 4, 4}, {4, 3, 3, 3}, {.padding = {-1, 0}}),
            "conv2d: a padding of -1 in height; it must be 0 or more");
  EXPECT_EQ(said({1, 3, 4, 4}, {4, 3, 3, 3}, {.dilation = {0, 1}}),
            "conv2d: a dilation of 0 in height; it must be 1 or more");
  EXPECT_EQ(said({1, 3, 4, 4}, {4, 3, 3, 3}, {.groups = 0}), "conv2d: groups is 0; it must be 1 or more");
}

INSTANTIATE_TEST_SUITE_P(EveryApi, Conv2d, contract::every_api(), contract::name_of);

}  // namespace
}  // namespace kiln::tests
