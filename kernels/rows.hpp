#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <kiln/device.hpp>
#include <kiln/kernel.hpp>
#include <kiln/kernels/tensor.hpp>

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

}  // namespace kiln::kernels
