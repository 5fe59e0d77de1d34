#pragma once

#include <string>

#include <kiln/kernels/kernels.hpp>

#include "kernels/plan.hpp"
#include "kernels/rows.hpp"

namespace kiln::kernels {

/// One of the forms of the kernel that folds rows; a mean is a sum that is scaled.
struct ReduceVariant {
  RowGroup group = {};
  Reduction reduction = Reduction::sum;
  /// Whether four elements are read at once: rows and their chunks are a multiple of four wide.
  bool vectors = false;

  /// As in "reduce_sum_x256_y1_v4".
  std::string name() const;
};

ReduceVariant reduce_variant(const DeviceInfo& device, std::int64_t width, Reduction reduction);
Kernel reduce_kernel(const ReduceVariant& variant);

/// Long rows, when there are few of them, are divided among groups.
struct Chunks {
  std::int64_t count = 1;
  std::int64_t width = 0;
};
Chunks chunks_for(const Rows& rows);

/// Adds the step that folds each chunk of each row: [rows, chunks].
void add_reduce(Plan& plan, const ReduceVariant& variant, const Rows& rows, const Chunks& chunks, Plan::Place from,
                Plan::Place to, float scale);

}  // namespace kiln::kernels
