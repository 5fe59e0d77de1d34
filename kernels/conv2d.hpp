#pragma once

#include <string>

#include <kiln/kernels/kernels.hpp>

#include "kernels/tile.hpp"

namespace kiln::kernels {

/// A variant of the convolution kernel.
struct Conv2dVariant {
  Tile tile = {};
  /// Whether filters are read and results written four elements at a time; requires that C / groups R S and P Q are
  /// multiples of four.
  bool vectors = false;
  /// The filter size that the kernel is compiled for; 0 for any.
  int filter_height = 0;
  int filter_width = 0;
  /// Whether to use Winograd's algorithm. `tile` then applies to its matrix products, and vectors can always be
  /// used.
  bool winograd = false;
  /// Whether filters and output pixels are loaded element by element, four at the same depth, so that each store to
  /// a panel writes four. With `winograd`, this is GemmVariant::turned of its matrix products.
  bool turned = false;
  /// Whether a turned kernel requires that the width of the output is a multiple of four.
  bool rows_of_quads = false;

  /// For example "conv2d_3x3_tm64_tn128_tk8_rm8_rn8_v4_turned4".
  std::string name() const;
};

/// The sizes of a call.
struct Conv2dSize {
  std::int64_t images = 0;
  /// Per filter.
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

/// Fails if the shapes do not match.
Result<Conv2dSize> conv2d_size(const Shape& x, const Shape& w, const Conv2dOptions& options);
Result<Tunable> conv2d_tunable(const DeviceInfo& device, const Shape& x, const Shape& w,
                               const Conv2dOptions& options);
Kernel conv2d_kernel(const Conv2dVariant& variant);

/// conv2d() with a given variant; the default if null.
Result<Tensor> conv2d(Runner on, const Tensor& x, const Tensor& w, const Conv2dOptions& options,
                      const Conv2dVariant* variant);

}  // namespace kiln::kernels
