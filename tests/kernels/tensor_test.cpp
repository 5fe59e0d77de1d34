#include <cmath>

#include "kernels/half.hpp"
#include "kernels/kernel_suite.hpp"

namespace kiln::tests {
namespace {

TEST(Half, EveryOneSurvivesBeingAFloat) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = kernels::from_half(half);
    if (std::isnan(value)) {
      EXPECT_EQ(bits & 0x7c00, 0x7c00U);
    } else {
      ASSERT_EQ(kernels::to_half(value), half);
    }
  }
}

TEST(Half, TheNearestIsTaken) {
  EXPECT_EQ(kernels::to_half(65519.0F), 0x7bff);
  EXPECT_EQ(kernels::to_half(65520.0F), 0x7c00);
  EXPECT_EQ(kernels::to_half(1 + 1.0F / 2048), 0x3c00) << "halfway: to the even one";
  EXPECT_EQ(kernels::to_half(1 + 3.0F / 2048), 0x3c02);
  EXPECT_EQ(kernels::to_half(std::ldexp(1.5F, -25)), 0x0001);
  EXPECT_EQ(kernels::to_half(-0.0F), 0x8000);
}

class Tensors : public KernelSuite {};

TEST_P(Tensors, HoldWhatTheyWereMadeOf) {
  const Array x = noise({3, 5, 7});
  EXPECT_TRUE(matches(tensor(x), x, 0));
  EXPECT_TRUE(matches(tensor(x, Type::f16), halved(x), 0));
  EXPECT_TRUE(matches(tensor({{4, 0, 2}, {}}), {{4, 0, 2}, {}}));
  EXPECT_TRUE(matches(tensor({{}, {7}}), {{}, {7}})) << "no dimensions: one element";
  EXPECT_TRUE(matches(tensor(x).reshaped({15, 7}), {{15, 7}, x.values}, 0));
}

TEST_P(Tensors, ShapesThatCannotBeAreRefused) {
  const auto empty = [&](Shape shape) { return Tensor::empty(device_, std::move(shape)); };
  EXPECT_EQ(message(empty({3, -1})), "a tensor of shape [3, -1]: dimension 1 is negative");
  EXPECT_EQ(message(empty({65536, 32768})), "a tensor of shape [65536, 32768] has more than 2146435072 elements");
  EXPECT_EQ(message(empty({2146435073})), "a tensor of shape [2146435073] has more than 2146435072 elements");
  EXPECT_EQ(empty({65536, 32768}).error().code(), ErrorCode::unsupported);
  EXPECT_EQ(message(Tensor::from(device_, {2, 3}, std::vector<float>(5))),
            "a tensor of shape [2, 3] has 6 elements, but 5 were given");
  EXPECT_EQ(message(empty({2, 3}).value().reshaped({7})),
            "a tensor of shape [2, 3] has 6 elements, but shape [7] needs 7");
}

TEST_P(Tensors, ThoseOfAnotherDeviceAreRefused) {
  const auto other = open_device(GetParam()).value();
  if (other == device_) GTEST_SKIP() << "the driver has one device object";
  const Tensor x = Tensor::from(other, {1}, std::vector<float>{1}).value();
  EXPECT_TRUE(message(copy(*cache_, x)).starts_with("copy: x is on another device; the call runs on "));
}

TEST_P(Tensors, AResultNobodyCouldMakeIsTheErrorOfWhoReadsIt) {
  const Promise<void> promise;
  promise.set(Error(ErrorCode::cancelled, "it was not to be"));
  const Tensor x = tensor(noise({4})).with(promise.future());
  EXPECT_EQ(x.read().error().message(), "it was not to be");
  EXPECT_EQ(message(copy(*cache_, x)), "it was not to be");
}

TEST_P(Tensors, AnEmptyResultOfWhatFailedIsItsErrorToo) {
  const Promise<void> promise;
  const Tensor x = tensor({{0, 3}, {}}).with(promise.future());
  const auto executor = Executor::create(device_, *cache_).value();
  const auto later = copy(*executor, x);
  const auto half = copy(*executor, x, Type::f16);
  const auto product = gemm(*executor, x, tensor(noise({3, 2})));
  promise.set(Error(ErrorCode::cancelled, "it was not to be"));
  EXPECT_EQ(later.value().read().error().message(),
            "copy was not run because a dependency failed: it was not to be");
  EXPECT_EQ(half.value().read().error().message(),
            "copy was not run because a dependency failed: it was not to be");
  EXPECT_EQ(product.value().read().error().message(),
            "gemm was not run because a dependency failed: it was not to be");
  EXPECT_EQ(message(copy(*cache_, x)), "it was not to be");
  const Promise<void> kept;
  const auto waits = copy(*executor, tensor({{0, 3}, {}}).with(kept.future()));
  EXPECT_FALSE(waits.value().pending().ready());
  kept.set({});
  EXPECT_TRUE(matches(waits, {{0, 3}, {}}));
}

class Copy : public KernelSuite {};

TEST_P(Copy, CopiesAndConvertsAnyLength) {
  for (int i = 0; i < shapes_to_try(); ++i) {
    const Array x = noise({between(0, 9), between(1, 700)}, -4, 4);
    const Array halves = halved(x);
    ASSERT_TRUE(matches(copy(*cache_, tensor(x)), x, 0));
    ASSERT_TRUE(matches(copy(*cache_, tensor(x), Type::f16), halves, 1e-3));
    ASSERT_TRUE(matches(copy(*cache_, tensor(x, Type::f16), Type::f32), halves, 0));
    ASSERT_TRUE(matches(copy(*cache_, tensor(x, Type::f16)), halves, 0));
  }
}

TEST_P(Copy, KeepsNanAndInfinity) {
  const Array x{{5}, {1, std::nanf(""), infinity, -infinity, -0.0F}};
  EXPECT_TRUE(matches(copy(*cache_, tensor(x)), x, 0));
  EXPECT_TRUE(matches(copy(*cache_, tensor(x), Type::f16), x, 0));
  EXPECT_TRUE(matches(copy(*cache_, tensor(x, Type::f16), Type::f32), x, 0));
}

INSTANTIATE_TEST_SUITE_P(EveryApi, Tensors, contract::every_api(), contract::name_of);
INSTANTIATE_TEST_SUITE_P(EveryApi, Copy, contract::every_api(), contract::name_of);

}  // namespace
}  // namespace kiln::tests
