#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <kiln/result.hpp>

#include "base/dynamic_library.hpp"

namespace kiln::opencl {

/// The functions that Kiln calls, all of them in OpenCL 1.2.
// clang-format off
#define KILN_OPENCL_FUNCTIONS(X) \
  X(clGetPlatformIDs) \
  X(clGetPlatformInfo) \
  X(clGetDeviceIDs) \
  X(clGetDeviceInfo) \
  X(clCreateContext) \
  X(clGetContextInfo) \
  X(clRetainContext) \
  X(clReleaseContext) \
  X(clCreateCommandQueue) \
  X(clRetainCommandQueue) \
  X(clReleaseCommandQueue) \
  X(clGetCommandQueueInfo) \
  X(clCreateBuffer) \
  X(clCreateSubBuffer) \
  X(clRetainMemObject) \
  X(clGetMemObjectInfo) \
  X(clReleaseMemObject) \
  X(clCreateProgramWithSource) \
  X(clCreateProgramWithBinary) \
  X(clBuildProgram) \
  X(clGetProgramInfo) \
  X(clGetProgramBuildInfo) \
  X(clReleaseProgram) \
  X(clCreateKernel) \
  X(clReleaseKernel) \
  X(clSetKernelArg) \
  X(clGetKernelInfo) \
  X(clGetKernelArgInfo) \
  X(clGetKernelWorkGroupInfo) \
  X(clEnqueueReadBuffer) \
  X(clEnqueueWriteBuffer) \
  X(clEnqueueNDRangeKernel) \
  X(clEnqueueMarkerWithWaitList) \
  X(clEnqueueMapBuffer) \
  X(clEnqueueUnmapMemObject) \
  X(clFlush) \
  X(clFinish) \
  X(clWaitForEvents) \
  X(clGetEventInfo) \
  X(clGetEventProfilingInfo) \
  X(clReleaseEvent) \
  X(clSetEventCallback)
// clang-format on

/// The functions of libOpenCL, opened at run time.
class Library {
 public:
  /// The error says what is missing and what provides it.
  static Result<std::shared_ptr<const Library>> open();
  /// Stubs for all functions, used once exit() has begun.
  static std::shared_ptr<const Library> stubs();

#define KILN_DECLARE(name) decltype(&::name) name = nullptr;
  KILN_OPENCL_FUNCTIONS(KILN_DECLARE)
#undef KILN_DECLARE

  /// clCreateProgramWithIL, since OpenCL 2.1; null in older libraries.
  cl_program (*clCreateProgramWithIL)(cl_context context, const void* il, std::size_t length,
                                      cl_int* error) = nullptr;

  /// A string property of a platform or device; empty if the query fails.
  std::string text(cl_platform_id platform, cl_platform_info what) const;
  std::string text(cl_device_id device, cl_device_info what) const;
  bool has_extension(cl_device_id device, std::string_view name) const;
  /// The name of an argument's type, and of the argument; empty if the driver does not report it.
  std::string argument_type(cl_kernel kernel, cl_uint argument) const;
  std::string argument_name(cl_kernel kernel, cl_uint argument) const;
  /// A property of a device that is one value; T{} if the query fails.
  template <class T>
  T number(cl_device_id device, cl_device_info what) const {
    T value{};
    clGetDeviceInfo(device, what, sizeof value, &value, nullptr);
    return value;
  }

 private:
  template <class Lookup>
  void fill(Lookup& lookup) {
#define KILN_FILL(name) lookup(name, #name);
    KILN_OPENCL_FUNCTIONS(KILN_FILL)
#undef KILN_FILL
  }

  base::DynamicLibrary library_;
};

/// The major version of PoCL, by a device's CL_DEVICE_VERSION and CL_DRIVER_VERSION: 3 for "3.1+debian". nullopt
/// for other drivers, 0 if PoCL's version cannot be read.
std::optional<int> pocl_major_version(std::string_view device_version, std::string_view driver_version);

/// The name of an error, as in CL_INVALID_BINARY.
std::string error_name(cl_int error);

/// Converts the error of a call that failed. `doing` names the operation, as in "writing 12 bytes". The message
/// says what to do if the device was lost.
Error cl_error(cl_int error, const std::string& doing);

}  // namespace kiln::opencl
