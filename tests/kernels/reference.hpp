#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <kiln/kernels/kernels.hpp>

namespace kiln::reference {

/// Numbers of the host's, in the order of their shape.
struct Array {
  Shape shape = {};
  std::vector<float> values = {};
};

// What the kernels of the library compute, by plain loops and in double precision.

struct Conv2d {
  std::array<int, 2> stride = {1, 1};
  std::array<int, 2> padding = {0, 0};
  std::array<int, 2> dilation = {1, 1};
  int groups = 1;
};
Array conv2d(const Array& x, const Array& w, const std::optional<Array>& bias, const Conv2d& options);

struct Gemm {
  bool transpose_a = false;
  bool transpose_b = false;
  double alpha = 1;
  double beta = 0;
};
Array gemm(const Array& a, const Array& b, const std::optional<Array>& c, const Gemm& options);

Array softmax(const Array& x, const std::optional<Array>& mask);
Array weighted_matmul(const Array& weights, const Array& values);
Array flash_attention(const Array& q, const Array& k, const Array& v, bool causal, std::optional<float> scale);
Array reduce(const Array& x, Reduction reduction);
Array scan(const Array& x, bool exclusive);

}  // namespace kiln::reference
