#pragma once

#include <string>

#include <kiln/kernels/kernels.hpp>

#include "kernels/rows.hpp"

namespace kiln::kernels {

/// One of the forms of the kernel that sums rows up as it goes along them.
struct ScanVariant {
  RowGroup group = {};
  /// How many elements of a row a work item sums up between two steps of the group.
  int each = 4;

  /// As in "scan_x256_y1_each8".
  std::string name() const;
};

Kernel scan_kernel(const ScanVariant& variant);

}  // namespace kiln::kernels
