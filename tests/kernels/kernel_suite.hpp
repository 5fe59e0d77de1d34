#pragma once

#include <limits>
#include <memory>
#include <random>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include <kiln/cache.hpp>
#include <kiln/kernels/kernels.hpp>
#include <kiln/kernels/tuner.hpp>

#include "contract/contract.hpp"
#include "kernels/reference.hpp"

namespace kiln::tests {

using reference::Array;

inline constexpr float infinity = std::numeric_limits<float>::infinity();

/// How many random shapes a test tries: `KILN_KERNEL_SHAPES`, else 25.
int shapes_to_try();

/// A kernel on every API against the reference. Programs are kept between tests.
class KernelSuite : public contract::Contract {
 protected:
  void SetUp() override;
  void TearDown() override { cache_.reset(); }

  Tensor tensor(const Array& array, Type type = Type::f32) const {
    return Tensor::from(device_, array.shape, array.values, type).value();
  }
  /// Numbers between -1 and 1.
  Array noise(Shape shape) { return noise(std::move(shape), -1, 1); }
  Array noise(Shape shape, float low, float high);
  /// The same numbers, as f16 has them.
  static Array halved(Array array);
  int between(int low, int high) { return std::uniform_int_distribution(low, high)(random_); }
  bool coin() { return between(0, 1) == 1; }

  /// Within 1e-3 of `expected`, or 1e-3 of its size where that is larger; infinities and NaN where it has them.
  static testing::AssertionResult matches(const Result<Tensor>& got, const Array& expected,
                                          double tolerance = 1e-3);
  /// What a parameter is as long as nothing is known.
  static int initial(const Tunable& tunable, std::string_view parameter);
  static std::string message(const Result<Tensor>& result) {
    return result ? "no error" : result.error().message();
  }

  std::unique_ptr<Cache> cache_;
  std::mt19937 random_{20240229};
};

}  // namespace kiln::tests
