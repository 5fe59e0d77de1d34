#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/kernel_suite.hpp"
#include "kernels/plan.hpp"
#include "kernels/rows.hpp"

// The kernels that work along the last dimension: softmax, reduce and scan.
namespace kiln::tests {
namespace {

const float nan = std::nanf("");

class Softmax : public KernelSuite {};

TEST_P(Softmax, ComputesWhatTheReferenceDoes) {
  for (int i = 0; i < shapes_to_try(); ++i) {
    const int width = i % 3 == 0 ? between(1, 40) : i % 3 == 1 ? between(41, 1100) : between(1, 4000);
    const Shape shape = {between(1, 3), between(1, 3), width};
    const Array x = noise(shape, -8, 8);
    std::optional<Array> mask;
    SoftmaxOptions options;
    if (coin()) {
      mask = noise(i % 4 == 0 ? Shape{width} : i % 4 == 1 ? Shape{1, shape[1], width} : shape);
      for (float& value : mask->values)
        if (between(0, 3) == 0) value = -infinity;
      options.mask = tensor(*mask);
    }
    ASSERT_TRUE(matches(softmax(*cache_, tensor(x), options), reference::softmax(x, mask), 1e-5)) << width;
  }
}

TEST_P(Softmax, EveryVariantComputesTheSame) {
  using kernels::RowGroup;
  for (const RowGroup& group : {RowGroup{}, RowGroup{.items = 256, .rows = 1}, RowGroup{.items = 512, .rows = 1}})
    for (const int hold : {0, 1, 8}) {
      if (group.items == 512 && hold > 0) continue;
      // What a CPU is not asked to do takes long to compile for one.
      if (device_->info().software && shapes_to_try() <= 100 && (hold == 1) != (group.items == 32)) continue;
      const kernels::SoftmaxVariant variant{.group = group, .hold = hold, .vectors = true};
      const int width = group.items == 32 ? 124 : hold == 1 ? 1020 : 1212;
      const Array x = noise({7, width}, -8, 8);
      const Array mask = noise({7, width});
      const SoftmaxOptions options{.mask = tensor(mask)};
      EXPECT_TRUE(
          matches(kernels::softmax(*cache_, tensor(x), options, &variant), reference::softmax(x, mask), 1e-5))
          << variant.name();
    }
}

TEST_P(Softmax, ARowThatIsMaskedAltogetherIsZeros) {
  for (const std::int64_t width : {5, 3000}) {
    Array x = noise({3, width});
    for (std::int64_t i = 0; i < width; ++i) x.values[static_cast<std::size_t>(width + i)] = -infinity;
    EXPECT_TRUE(matches(softmax(*cache_, tensor(x)), reference::softmax(x, {}), 1e-5));
    const auto values = softmax(*cache_, tensor(x)).value().read().value();
    EXPECT_EQ(values[static_cast<std::size_t>(width + 2)], 0);
  }
}

TEST_P(Softmax, NanAndInfinityTakeTheirCourse) {
  for (const std::int64_t width : {7, 2501}) {
    Array x = noise({5, width});
    const auto at = [&](std::int64_t row, std::int64_t column) -> float& {
      return x.values[static_cast<std::size_t>(row * width + column)];
    };
    at(0, 3) = nan;
    at(1, 4) = infinity;
    at(2, 5) = -infinity;
    at(3, 6) = 1e30F;
    EXPECT_TRUE(matches(softmax(*cache_, tensor(x)), reference::softmax(x, {}), 1e-5));
  }
}

TEST_P(Softmax, OfNothingIsNothing) {
  EXPECT_TRUE(matches(softmax(*cache_, tensor(noise({3, 0}))), noise({3, 0})));
  EXPECT_TRUE(matches(softmax(*cache_, tensor(noise({0, 3}))), noise({0, 3})));
}

TEST_P(Softmax, TakesAndGivesHalves) {
  const Array x = halved(noise({3, 50}, -4, 4));
  EXPECT_TRUE(matches(softmax(*cache_, tensor(x, Type::f16), {.output = Type::f16}), reference::softmax(x, {})));
}

TEST_P(Softmax, LoopsThatTheDriverWouldEndAreRefused) {
  if (!kernels::ends_long_loops(device_->info())) GTEST_SKIP() << "the driver ends no loops";
  constexpr std::int64_t widest = 33534976;
  const Array zeros{{1, widest}, std::vector<float>(static_cast<std::size_t>(widest))};
  const std::vector<float> got = softmax(*cache_, tensor(zeros)).value().read().value();
  constexpr float each = 1.0F / float{widest};
  const auto wrong = [](float value) { return std::abs(value - each) > 1e-3F * each; };
  EXPECT_EQ(std::count_if(got.begin(), got.end(), wrong), 0);
  const auto refused = softmax(*cache_, Tensor::empty(device_, {1, widest + 1}).value());
  EXPECT_TRUE(message(refused).starts_with("softmax: the loops of a work item need about 65537 steps"))
      << message(refused);
}

TEST_P(Softmax, NoTunedVariantIsRefusedWhereTheFirstIsNot) {
  DeviceInfo device = device_->info();
  device.software = true;
  const auto tunable = kernels::softmax_tunable(device, {1, 6'000'000});
  EXPECT_TRUE(tunable.fits(tunable.initial));
  Variant slow = tunable.initial;
  std::ranges::copy(std::array{32, 1, 0, 0}, slow.begin());
  EXPECT_EQ(tunable.fits(slow), !kernels::ends_long_loops(device));
}

TEST_P(Softmax, ShapesThatDoNotFitAreNamed) {
  const auto of = [&](Shape shape) { return tensor(noise(std::move(shape))); };
  EXPECT_EQ(message(softmax(*cache_, of({2, 3, 4}), {.mask = of({2, 4})})),
            "softmax: mask has 2 in dimension 0, but x has 3 in dimension 1; they must be equal");
  EXPECT_EQ(message(softmax(*cache_, of({3, 4}), {.mask = of({2, 3, 4})})),
            "softmax: mask has 3 dimensions, but x has 2");
  EXPECT_EQ(message(softmax(*cache_, of({}))), "softmax: x has no dimensions; it must have 1 or more");
  EXPECT_EQ(message(softmax(*cache_, of({3}), {.mask = of({})})),
            "softmax: mask has no dimensions; it must have 1 or more");
}

class Reduce : public KernelSuite {};

TEST_P(Reduce, ComputesWhatTheReferenceDoes) {
  for (int i = 0; i < shapes_to_try(); ++i) {
    const Array x = noise({between(1, 4), between(1, 4), i % 2 == 0 ? between(1, 70) : between(1, 3000)});
    const auto reduction = static_cast<Reduction>(i % 4);
    ASSERT_TRUE(matches(reduce(*cache_, tensor(x), reduction), reference::reduce(x, reduction)))
        << x.shape[2] << ", reduction " << i % 4;
  }
}

TEST_P(Reduce, DividesLongRowsAmongGroups) {
  const Array x = noise({3, 70001});
  for (const Reduction reduction : {Reduction::sum, Reduction::max, Reduction::min, Reduction::mean})
    EXPECT_TRUE(matches(reduce(*cache_, tensor(x), reduction), reference::reduce(x, reduction)));
}

TEST_P(Reduce, OfEmptyRowsIsWhatMathematicsSays) {
  for (const Reduction reduction : {Reduction::sum, Reduction::max, Reduction::min, Reduction::mean}) {
    EXPECT_TRUE(
        matches(reduce(*cache_, tensor(noise({3, 0})), reduction), reference::reduce(noise({3, 0}), reduction)));
    EXPECT_TRUE(matches(reduce(*cache_, tensor(noise({0, 3})), reduction), noise({0})));
  }
}

TEST_P(Reduce, NanAndInfinityTakeTheirCourse) {
  for (const std::int64_t width : {9, 2000}) {
    Array x = noise({4, width});
    const auto at = [&](std::int64_t row, std::int64_t column) -> float& {
      return x.values[static_cast<std::size_t>(row * width + column)];
    };
    at(0, 3) = nan;
    at(1, 4) = infinity;
    at(2, 5) = -infinity;
    at(3, 1) = infinity;
    at(3, 8) = -infinity;
    for (const Reduction reduction : {Reduction::sum, Reduction::max, Reduction::min, Reduction::mean})
      EXPECT_TRUE(matches(reduce(*cache_, tensor(x), reduction), reference::reduce(x, reduction)))
          << width << ", reduction " << static_cast<int>(reduction);
  }
}

TEST_P(Reduce, TakesAndGivesHalvesAndNamesWhatDoesNotFit) {
  const Array x = halved(noise({3, 50}));
  EXPECT_TRUE(matches(reduce(*cache_, tensor(x, Type::f16), Reduction::mean, {.output = Type::f16}),
                      reference::reduce(x, Reduction::mean)));
  EXPECT_EQ(message(reduce(*cache_, tensor(noise({})), Reduction::sum)),
            "reduce: x has no dimensions; it must have 1 or more");
}

class Scan : public KernelSuite {};

// The errors of the sums before it add up in each: they are compared relative to what was summed up.
TEST_P(Scan, ComputesWhatTheReferenceDoes) {
  for (int i = 0; i < shapes_to_try(); ++i) {
    const Array x = noise({between(1, 3), between(1, 3), i % 2 == 0 ? between(1, 70) : between(1, 5000)});
    const bool exclusive = coin();
    ASSERT_TRUE(matches(scan(*cache_, tensor(x), {.exclusive = exclusive}), reference::scan(x, exclusive)))
        << x.shape[2] << ", exclusive " << exclusive;
  }
}

TEST_P(Scan, DividesLongRowsAmongGroups) {
  const Array x = noise({2, 70001});
  for (const bool exclusive : {false, true})
    EXPECT_TRUE(matches(scan(*cache_, tensor(x), {.exclusive = exclusive}), reference::scan(x, exclusive)));
}

TEST_P(Scan, NanAndInfinityLeaveWhatIsBeforeThemAlone) {
  for (const std::int64_t width : {100, 3000}) {
    Array x = noise({2, width});
    x.values[40] = infinity;
    x.values[90] = -infinity;
    x.values[static_cast<std::size_t>(width) + 50] = nan;
    for (const bool exclusive : {false, true})
      EXPECT_TRUE(matches(scan(*cache_, tensor(x), {.exclusive = exclusive}), reference::scan(x, exclusive)));
  }
}

TEST_P(Scan, TakesNothingAndHalvesAndNamesWhatDoesNotFit) {
  const Array x = halved(noise({3, 50}));
  EXPECT_TRUE(matches(scan(*cache_, tensor(x, Type::f16), {.output = Type::f16}), reference::scan(x, false), 2e-3))
      << "f16 itself is as far off as 1e-3";
  EXPECT_TRUE(matches(scan(*cache_, tensor(noise({3, 0}))), noise({3, 0})));
  EXPECT_EQ(message(scan(*cache_, tensor(noise({})))), "scan: x has no dimensions; it must have 1 or more");
}

INSTANTIATE_TEST_SUITE_P(EveryApi, Softmax, contract::every_api(), contract::name_of);
INSTANTIATE_TEST_SUITE_P(EveryApi, Reduce, contract::every_api(), contract::name_of);
INSTANTIATE_TEST_SUITE_P(EveryApi, Scan, contract::every_api(), contract::name_of);

}  // namespace
}  // namespace kiln::tests
