#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <kiln/result.hpp>

#include "base/dynamic_library.hpp"

namespace kiln::opencl {

/// The functions of libOpenCL, opened at run time.
class Library {
 public:
  /// The error says what is missing and what provides it.
  static Result<std::shared_ptr<const Library>> open();
  /// What stands for it when the process ends.
  static std::shared_ptr<const Library> ended();

  decltype(&::clGetPlatformIDs) get_platform_ids = nullptr;
  decltype(&::clGetPlatformInfo) get_platform_info = nullptr;
  decltype(&::clGetDeviceIDs) get_device_ids = nullptr;
  decltype(&::clGetDeviceInfo) get_device_info = nullptr;
  decltype(&::clCreateContext) create_context = nullptr;
  decltype(&::clGetContextInfo) get_context_info = nullptr;
  decltype(&::clRetainContext) retain_context = nullptr;
  decltype(&::clReleaseContext) release_context = nullptr;
  decltype(&::clCreateCommandQueue) create_command_queue = nullptr;
  decltype(&::clReleaseCommandQueue) release_command_queue = nullptr;
  decltype(&::clCreateBuffer) create_buffer = nullptr;
  decltype(&::clReleaseMemObject) release_mem_object = nullptr;
  decltype(&::clCreateProgramWithSource) create_program_with_source = nullptr;
  decltype(&::clCreateProgramWithBinary) create_program_with_binary = nullptr;
  decltype(&::clBuildProgram) build_program = nullptr;
  decltype(&::clGetProgramInfo) get_program_info = nullptr;
  decltype(&::clGetProgramBuildInfo) get_program_build_info = nullptr;
  decltype(&::clReleaseProgram) release_program = nullptr;
  decltype(&::clCreateKernel) create_kernel = nullptr;
  decltype(&::clReleaseKernel) release_kernel = nullptr;
  decltype(&::clSetKernelArg) set_kernel_arg = nullptr;
  decltype(&::clGetKernelInfo) get_kernel_info = nullptr;
  decltype(&::clGetKernelArgInfo) get_kernel_arg_info = nullptr;
  decltype(&::clGetKernelWorkGroupInfo) get_kernel_work_group_info = nullptr;
  decltype(&::clEnqueueReadBuffer) enqueue_read_buffer = nullptr;
  decltype(&::clEnqueueWriteBuffer) enqueue_write_buffer = nullptr;
  decltype(&::clEnqueueNDRangeKernel) enqueue_nd_range_kernel = nullptr;
  decltype(&::clEnqueueMapBuffer) enqueue_map_buffer = nullptr;
  decltype(&::clEnqueueUnmapMemObject) enqueue_unmap_mem_object = nullptr;
  decltype(&::clFlush) flush = nullptr;
  decltype(&::clFinish) finish = nullptr;
  decltype(&::clWaitForEvents) wait_for_events = nullptr;
  decltype(&::clGetEventInfo) get_event_info = nullptr;
  decltype(&::clGetEventProfilingInfo) get_event_profiling_info = nullptr;
  decltype(&::clReleaseEvent) release_event = nullptr;
  decltype(&::clSetEventCallback) set_event_callback = nullptr;

  /// A platform's or device's text.
  std::string text(cl_platform_id platform, cl_platform_info what) const;
  std::string text(cl_device_id device, cl_device_info what) const;
  bool has_extension(cl_device_id device, std::string_view name) const;
  /// The name of the type of a kernel's argument; empty where the driver does not tell.
  std::string argument_type(cl_kernel kernel, cl_uint argument) const;
  /// A device's number of any kind; T{} where it has none.
  template <class T>
  T number(cl_device_id device, cl_device_info what) const {
    T value{};
    get_device_info(device, what, sizeof value, &value, nullptr);
    return value;
  }

 private:
  template <class Find>
  void find_each(Find& find);

  base::DynamicLibrary library_;
};

/// The name of an error, such as CL_INVALID_BINARY.
std::string error_name(cl_int error);

/// The error for what could not be done: "OpenCL error NAME DOING", and what to do where the device was lost.
Error cl_error(cl_int error, const std::string& doing);

}  // namespace kiln::opencl
