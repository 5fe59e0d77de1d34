#pragma once

#include <cstddef>
#include <string_view>

#include "backend/opencl/library.hpp"

namespace kiln::backend::quirks {

/// Two bugs of NVIDIA's OpenCL compiler, seen with driver 580 on an H200. No public report and no fixed release are
/// known, so the work-arounds apply to all releases.
class NvidiaOpenCl {
 public:
  /// By CL_DEVICE_VENDOR.
  static bool affects(std::string_view vendor) { return vendor.starts_with("NVIDIA"); }

  /// With -cl-kernel-arg-info, kernels without arguments do not compile. Work-around: a failed build is retried
  /// without the option.
  static bool may_fail_with_argument_info(const opencl::Library& cl, cl_device_id device) {
    return affects(cl.text(device, CL_DEVICE_VENDOR));
  }

  /// The compiler adds up to 16 bytes to the local memory of a kernel, so a kernel that uses all of the reported
  /// local memory (48 KiB) does not fit.
  static std::size_t usable_local_bytes(const opencl::Library& cl, cl_device_id device) {
    constexpr cl_ulong reserved = 64;
    const auto reported = cl.number<cl_ulong>(device, CL_DEVICE_LOCAL_MEM_SIZE);
    const bool adds = affects(cl.text(device, CL_DEVICE_VENDOR)) && reported > reserved;
    return static_cast<std::size_t>(adds ? reported - reserved : reported);
  }
};

}  // namespace kiln::backend::quirks
