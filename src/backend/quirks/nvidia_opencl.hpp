#pragma once

#include <cstddef>

#include "backend/opencl/library.hpp"

namespace kiln::backend::quirks {

/// Two faults of NVIDIA's OpenCL compiler. Seen with driver 580 on an H200; no public report and no fixed release
/// are known, so they apply to all releases.
class NvidiaOpenCl {
 public:
  static bool affects(const opencl::Library& cl, cl_device_id device) {
    return cl.text(device, CL_DEVICE_VENDOR).starts_with("NVIDIA");
  }

  /// With -cl-kernel-arg-info, kernels without arguments do not compile. A build that failed is tried again
  /// without.
  static bool may_fail_with_argument_info(const opencl::Library& cl, cl_device_id device) {
    return affects(cl, device);
  }

  /// The compiler adds up to 16 bytes of its own to the local memory of a kernel, so a kernel that uses all that
  /// the device reports (48 KiB) does not fit.
  static std::size_t usable_local_bytes(const opencl::Library& cl, cl_device_id device) {
    constexpr cl_ulong reserved = 64;
    const auto reported = cl.number<cl_ulong>(device, CL_DEVICE_LOCAL_MEM_SIZE);
    return static_cast<std::size_t>(affects(cl, device) && reported > reserved ? reported - reserved : reported);
  }
};

}  // namespace kiln::backend::quirks
