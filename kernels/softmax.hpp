#pragma once

#include <string>

#include <kiln/kernels/kernels.hpp>

#include "kernels/rows.hpp"

namespace kiln::kernels {

/// One of the forms of the softmax kernel.
struct SoftmaxVariant {
  RowGroup group = {};
  /// How many times four elements a work item holds in registers; 0: rows of any length are read twice.
  int hold = 0;
  /// Whether four elements are read and written at once: rows are a multiple of four wide.
  bool vectors = false;

  /// The widest row it takes.
  std::int64_t widest() const;
  /// As in "softmax_x256_y1_hold8_v4".
  std::string name() const;
};

Tunable softmax_tunable(const DeviceInfo& device, const Shape& x);
Kernel softmax_kernel(const SoftmaxVariant& variant);

/// softmax() by a variant of the caller's choice.
Result<Tensor> softmax(Runner on, const Tensor& x, const SoftmaxOptions& options, const SoftmaxVariant* variant);

}  // namespace kiln::kernels
