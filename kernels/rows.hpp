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

/// How a group handles rows: `rows` at a time, with `items` work items each.
struct RowGroup {
  std::uint32_t items = 32;
  std::uint32_t rows = 4;

  /// For example "x32_y4".
  std::string name() const;
  std::array<std::uint32_t, 3> size() const { return {items, rows, 1}; }
};

/// A group for rows of this width: several short rows, or one long one.
RowGroup row_group_for(std::int64_t width);

/// The rows along a tensor's last dimension; a tensor without dimensions is one row of one element.
struct Rows {
  std::int64_t count = 1;
  std::int64_t width = 1;
};
Rows rows_of(const Shape& shape);

/// FOLD(value, of_two) reduces the values of a row's work items with a binary function or macro; all of them get
/// the result. Needs native_source before it and partial_array(). A row has a multiple of 32 work items.
extern const std::string_view fold_source;
/// An upper bound for its loop iterations.
std::int64_t fold_steps(const RowGroup& group);
SharedArray partial_array();

/// Copies elements, with conversion between f32 and f16.
Kernel copy_kernel(Type from, Type to);

struct Typed {
  Plan::Place place = 0;
  Type type = Type::f32;
};
/// Adds a step that copies `count` elements.
void add_conversion(Plan& plan, Typed from, Typed to, std::int64_t count);

/// A variant of the prefix sum kernel.
struct ScanVariant {
  RowGroup group = {};
  /// Elements that a work item sums sequentially between two steps of the group.
  int each = 4;

  /// For example "scan_x256_y1_each8".
  std::string name() const;
};

Kernel scan_kernel(const ScanVariant& variant);

/// A variant of the row reduction kernel; a mean is a scaled sum.
struct ReduceVariant {
  RowGroup group = {};
  Reduction reduction = Reduction::sum;
  /// Whether to read four elements at a time; requires that the widths of rows and chunks are multiples of four.
  bool vectors = false;

  /// For example "reduce_sum_x256_y1_v4".
  std::string name() const;
};

ReduceVariant reduce_variant(const DeviceInfo& device, std::int64_t width, Reduction reduction);
Kernel reduce_kernel(const ReduceVariant& variant);

/// A division of long rows among groups, for tensors with few rows.
struct Chunks {
  std::int64_t count = 1;
  std::int64_t width = 0;
};
Chunks chunks_for(const Rows& rows);

/// Adds a step that reduces each chunk of each row; the result is [rows, chunks].
void add_reduce(Plan& plan, const ReduceVariant& variant, const Rows& rows, const Chunks& chunks, Plan::Place from,
                Plan::Place to, float scale);

/// A variant of the softmax kernel.
struct SoftmaxVariant {
  RowGroup group = {};
  /// The number of quads that a work item keeps in registers; 0: rows of any length, which are read twice.
  int hold = 0;
  /// Whether to read and write four elements at a time; requires that the row width is a multiple of four.
  bool vectors = false;

  /// The widest row that the variant supports.
  std::int64_t widest() const;
  /// For example "softmax_x256_y1_hold8_v4".
  std::string name() const;
};

Tunable softmax_tunable(const DeviceInfo& device, const Shape& x);
Kernel softmax_kernel(const SoftmaxVariant& variant);

/// softmax() with a given variant; the default if null.
Result<Tensor> softmax(Runner on, const Tensor& x, const SoftmaxOptions& options, const SoftmaxVariant* variant);

}  // namespace kiln::kernels
