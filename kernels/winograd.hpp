#pragma once

#include "kernels/conv2d.hpp"
#include "kernels/gemm.hpp"
#include "kernels/plan.hpp"

namespace kiln::kernels {

// Winograd's F(4x4, 3x3): a tile of 4 x 4 pixels of the output takes 36 products in each channel, of transformed
// filters and a transformed piece of 6 x 6 pixels, where the sum itself has 144. Each is an element of a matrix of
// its own: filters by channels, and channels by tiles.

constexpr std::int64_t winograd_products = 36;

/// Whether a call can be computed so, and its options allow it.
bool takes_winograd(const Conv2dSize& size, const Conv2dOptions& options);

/// How the tiles of all images are computed: so many slices, one after the other, of so many columns each. What
/// lies between the steps stays small by it, and in the cache of a large GPU. Columns past the last tile are zeros.
struct WinogradSlices {
  std::int64_t tiles = 0;
  std::int64_t count = 0;
  /// A multiple of four, so that rows can be read four elements at once.
  std::int64_t columns = 0;
};
WinogradSlices winograd_slices(const Conv2dSize& size);

Kernel winograd_filters_kernel();
Kernel winograd_input_kernel();
/// With `vectors`, four pixels of the output are written at once: its rows are a multiple of four.
Kernel winograd_output_kernel(bool vectors);

struct WinogradMemory {
  Plan::Place x = 0;
  Plan::Place w = 0;
  /// Any other place where there is none.
  Plan::Place bias = 0;
  Plan::Place result = 0;
};
/// Adds the steps of the convolution, whose matrices `variant` multiplies.
void add_winograd(Plan& plan, const GemmVariant& variant, const Conv2dSize& size, const Conv2dOptions& options,
                  const WinogradMemory& memory);

}  // namespace kiln::kernels
