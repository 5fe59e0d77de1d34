#pragma once

#include <string>

#include <kiln/kernels/kernels.hpp>

#include "kernels/tile.hpp"

namespace kiln::kernels {

/// One of the forms of the kernel that convolves.
struct Conv2dVariant {
  Tile tile = {};
  /// Whether four elements are read of the filters and written at once: C / groups R S and P Q are multiples of
  /// four.
  bool vectors = false;
  /// The filters' extents where the kernel is for those alone; 0 for any.
  int filter_height = 0;
  int filter_width = 0;
  /// Whether it computes by Winograd's algorithm. The tile is then how that multiplies its matrices, and vectors
  /// can always be used.
  bool winograd = false;
  /// Whether filters, and pixels of the output, are read one by one, four at the same depth, and put into the
  /// panels four at once. Of Winograd's algorithm, it is how matrices are multiplied.
  bool turned = false;
  /// Whether a kernel that is turned is for outputs alone whose rows are a multiple of four wide.
  bool rows_of_quads = false;

  /// As in "conv2d_3x3_tm64_tn128_tk8_rm8_rn8_v4_turned4".
  std::string name() const;
};

/// What the shapes of a call come to.
struct Conv2dSize {
  std::int64_t images = 0;
  /// Those that a filter has.
  std::int64_t channels = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t filters = 0;
  std::int64_t filter_height = 0;
  std::int64_t filter_width = 0;
  std::int64_t out_height = 0;
  std::int64_t out_width = 0;

  std::int64_t taps() const { return channels * filter_height * filter_width; }
  std::int64_t pixels() const { return images * out_height * out_width; }
};

/// The error is that of shapes that do not fit each other.
Result<Conv2dSize> conv2d_size(const Shape& x, const Shape& w, const Conv2dOptions& options);
Result<Tunable> conv2d_tunable(const DeviceInfo& device, const Shape& x, const Shape& w,
                               const Conv2dOptions& options);
Kernel conv2d_kernel(const Conv2dVariant& variant);

/// conv2d() by a variant of the caller's choice.
Result<Tensor> conv2d(Runner on, const Tensor& x, const Tensor& w, const Conv2dOptions& options,
                      const Conv2dVariant* variant);

}  // namespace kiln::kernels
