#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kiln::backend::quirks {

/// PoCL compiles the code of a kernel for a group size when it is first launched with it, and keeps it in its own
/// kernel cache only: the binary of a program holds the kernel for any group size, and PoCL does not use that if it
/// can compile (pocl_check_kernel_disk_cache() in common.c). So if PoCL's cache is empty, PoCL repeats the last
/// part of the compilation at the first launch of a program that Kiln loaded: 25 ms for a small kernel, a second
/// for a large one. This applies to all releases; PoCL's developers consider it an optimisation.
///
/// Kiln cannot prevent it, and reports such programs: see Module::is_complete().
struct PoclSpecialisation {
  /// Whether a driver is PoCL, by its CL_DEVICE_VERSION and CL_DRIVER_VERSION.
  static bool affects(std::string_view device_version, std::string_view driver_version);
  /// Whether PoCL's kernel cache has code for some group size of each of these kernels. `binary` is PoCL's.
  static bool has_code(std::string_view binary, const std::vector<std::string>& kernels);
};

}  // namespace kiln::backend::quirks
