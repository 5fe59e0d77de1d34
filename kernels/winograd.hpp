#pragma once

#include "kernels/conv2d.hpp"
#include "kernels/gemm.hpp"
#include "kernels/plan.hpp"

namespace kiln::kernels {

// Winograd's F(4x4, 3x3). A tile of 4 x 4 output pixels takes 36 products per channel, of transformed filters and a
// transformed piece of 6 x 6 pixels; the plain sum takes 144. Each of the 36 products belongs to a separate matrix
// product: filters x channels by channels x tiles.

constexpr std::int64_t winograd_products = 36;

/// Whether Winograd's algorithm can compute the call, and the options allow it.
bool takes_winograd(const Conv2dSize& size, const Conv2dOptions& options);

/// The tiles of all images are computed in `count` slices of `columns` columns each, one after the other. This
/// keeps intermediate results small enough for the cache of a large GPU. Columns past the last tile are zeros.
struct WinogradSlices {
  std::int64_t tiles = 0;
  std::int64_t count = 0;
  /// A multiple of four, so that rows can be read four elements at a time.
  std::int64_t columns = 0;
};
WinogradSlices winograd_slices(const Conv2dSize& size);

Kernel winograd_filters_kernel();
Kernel winograd_input_kernel();
/// With `vectors`, writes four output pixels at a time; requires that the output's width is a multiple of four.
Kernel winograd_output_kernel(bool vectors);

struct WinogradMemory {
  Plan::Place x = 0;
  Plan::Place w = 0;
  /// Any valid place if there is no bias.
  Plan::Place bias = 0;
  Plan::Place result = 0;
};
/// Adds the steps of the convolution; `variant` applies to its matrix products.
void add_winograd(Plan& plan, const GemmVariant& variant, const Conv2dSize& size, const Conv2dOptions& options,
                  const WinogradMemory& memory);

}  // namespace kiln::kernels
