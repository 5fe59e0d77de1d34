#pragma once

#include <string>

#include <kiln/kernels.hpp>

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

  /// As in "conv2d_3x3_tm64_tn128_tk8_rm8_rn8_v4".
  std::string name() const;
};

/// The error is that of shapes that do not fit each other.
Result<Tunable> conv2d_tunable(const DeviceInfo& device, const Shape& x, const Shape& w,
                               const Conv2dOptions& options);
Kernel conv2d_kernel(const Conv2dVariant& variant);

/// conv2d() by a variant of the caller's choice.
Result<Tensor> conv2d(Runner on, const Tensor& x, const Tensor& w, const Conv2dOptions& options,
                      const Conv2dVariant* variant);

}  // namespace kiln::kernels
