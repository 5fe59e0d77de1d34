#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <kiln/device.hpp>
#include <kiln/kernel.hpp>
#include <kiln/kernels/kernels.hpp>
#include <kiln/kernels/tensor.hpp>

#include "kernels/plan.hpp"

namespace kiln::kernels {

/// How a group takes rows: so many at once, with so many work items for each.
struct RowGroup {
  std::uint32_t items = 32;
  std::uint32_t rows = 4;

  /// As in "x32_y4".
  std::string name() const;
  std::array<std::uint32_t, 3> size() const { return {items, rows, 1}; }
};

/// One for rows of `width`: many short ones, or one long one.
RowGroup row_group_for(std::int64_t width);

/// The rows along a tensor's last dimension; no dimensions are one row of one element.
struct Rows {
  std::int64_t count = 1;
  std::int64_t width = 1;
};
Rows rows_of(const Shape& shape);

/// FOLD(value, of_two): makes of the value of each work item of a row that of all, by a function or macro of two.
/// native_source comes before it, and partial_array() is what it needs declared. A row has a multiple of 32 work
/// items.
extern const std::string_view fold_source;
/// At most so many steps of loops it takes.
std::int64_t fold_steps(const RowGroup& group);
SharedArray partial_array();

/// The kernel that copies between types of tensors.
Kernel copy_kernel(Type from, Type to);

struct Typed {
  Plan::Place place = 0;
  Type type = Type::f32;
};
/// Adds the step that copies `count` elements.
void add_conversion(Plan& plan, Typed from, Typed to, std::int64_t count);

/// One of the forms of the kernel that sums rows up as it goes along them.
struct ScanVariant {
  RowGroup group = {};
  /// How many elements of a row a work item sums up between two steps of the group.
  int each = 4;

  /// As in "scan_x256_y1_each8".
  std::string name() const;
};

Kernel scan_kernel(const ScanVariant& variant);

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
