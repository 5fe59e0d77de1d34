#include "backend/opencl/library.hpp"

#include <array>
#include <utility>

#include <fmt/format.h>

namespace kiln::opencl {
namespace {

/// Finds functions, and remembers the first that is not there.
class Finder {
 public:
  explicit Finder(const base::DynamicLibrary& library) : library_(library) {}

  template <class Function>
  void find(Function*& function, const char* name) {
    function = library_.function<Function>(name);
    if (function == nullptr && missing_ == nullptr) missing_ = name;
  }
  const char* missing() const noexcept { return missing_; }

 private:
  const base::DynamicLibrary& library_;
  const char* missing_ = nullptr;
};

/// What NVIDIA's driver says of a kernel that left its memory.
constexpr cl_int nvidia_illegal_access = -9999;

template <class Get>
std::string text_by(Get get) {
  std::size_t size = 0;
  if (get(0, nullptr, &size) != CL_SUCCESS || size == 0) return {};
  std::string text(size, '\0');
  if (get(size, text.data(), nullptr) != CL_SUCCESS) return {};
  // Drivers end their texts with a NUL, and some with spaces.
  text.resize(std::min(text.find('\0'), text.size()));
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

}  // namespace

Result<std::shared_ptr<const Library>> Library::open() {
  auto opened = base::DynamicLibrary::open_for_good("libOpenCL.so.1");
  if (!opened)
    return Error(
        ErrorCode::no_device,
        opened.error().message() +
            "; OpenCL comes with the GPU's driver, or on Debian with ocl-icd-libopencl1 and pocl-opencl-icd");
  auto library = std::make_shared<Library>();
  library->library_ = std::move(*opened);
  Finder finder(library->library_);
  finder.find(library->get_platform_ids, "clGetPlatformIDs");
  finder.find(library->get_platform_info, "clGetPlatformInfo");
  finder.find(library->get_device_ids, "clGetDeviceIDs");
  finder.find(library->get_device_info, "clGetDeviceInfo");
  finder.find(library->create_context, "clCreateContext");
  finder.find(library->get_context_info, "clGetContextInfo");
  finder.find(library->retain_context, "clRetainContext");
  finder.find(library->release_context, "clReleaseContext");
  finder.find(library->create_command_queue, "clCreateCommandQueue");
  finder.find(library->release_command_queue, "clReleaseCommandQueue");
  finder.find(library->create_buffer, "clCreateBuffer");
  finder.find(library->release_mem_object, "clReleaseMemObject");
  finder.find(library->create_program_with_source, "clCreateProgramWithSource");
  finder.find(library->create_program_with_binary, "clCreateProgramWithBinary");
  finder.find(library->build_program, "clBuildProgram");
  finder.find(library->get_program_info, "clGetProgramInfo");
  finder.find(library->get_program_build_info, "clGetProgramBuildInfo");
  finder.find(library->release_program, "clReleaseProgram");
  finder.find(library->create_kernel, "clCreateKernel");
  finder.find(library->release_kernel, "clReleaseKernel");
  finder.find(library->set_kernel_arg, "clSetKernelArg");
  finder.find(library->get_kernel_info, "clGetKernelInfo");
  finder.find(library->get_kernel_arg_info, "clGetKernelArgInfo");
  finder.find(library->get_kernel_work_group_info, "clGetKernelWorkGroupInfo");
  finder.find(library->enqueue_read_buffer, "clEnqueueReadBuffer");
  finder.find(library->enqueue_write_buffer, "clEnqueueWriteBuffer");
  finder.find(library->enqueue_nd_range_kernel, "clEnqueueNDRangeKernel");
  finder.find(library->enqueue_map_buffer, "clEnqueueMapBuffer");
  finder.find(library->enqueue_unmap_mem_object, "clEnqueueUnmapMemObject");
  finder.find(library->flush, "clFlush");
  finder.find(library->finish, "clFinish");
  finder.find(library->wait_for_events, "clWaitForEvents");
  finder.find(library->get_event_info, "clGetEventInfo");
  finder.find(library->get_event_profiling_info, "clGetEventProfilingInfo");
  finder.find(library->release_event, "clReleaseEvent");
  if (finder.missing() != nullptr)
    return Error(ErrorCode::unsupported,
                 fmt::format("libOpenCL.so.1 has no {}; Kiln needs OpenCL 1.2", finder.missing()));
  return std::shared_ptr<const Library>(std::move(library));
}

std::string Library::text(cl_platform_id platform, cl_platform_info what) const {
  return text_by([&](std::size_t size, void* text, std::size_t* needed) {
    return get_platform_info(platform, what, size, text, needed);
  });
}

std::string Library::text(cl_device_id device, cl_device_info what) const {
  return text_by([&](std::size_t size, void* text, std::size_t* needed) {
    return get_device_info(device, what, size, text, needed);
  });
}

bool Library::has_extension(cl_device_id device, std::string_view name) const {
  const std::string all = fmt::format(" {} ", text(device, CL_DEVICE_EXTENSIONS));
  return all.find(fmt::format(" {} ", name)) != std::string::npos;
}

std::string Library::argument_type(cl_kernel kernel, cl_uint argument) const {
  return text_by([&](std::size_t size, void* text, std::size_t* needed) {
    return get_kernel_arg_info(kernel, argument, CL_KERNEL_ARG_TYPE_NAME, size, text, needed);
  });
}

std::string error_name(cl_int error) {
  switch (error) {
    case CL_DEVICE_NOT_FOUND: return "CL_DEVICE_NOT_FOUND";
    case CL_DEVICE_NOT_AVAILABLE: return "CL_DEVICE_NOT_AVAILABLE";
    case CL_COMPILER_NOT_AVAILABLE: return "CL_COMPILER_NOT_AVAILABLE";
    case CL_MEM_OBJECT_ALLOCATION_FAILURE: return "CL_MEM_OBJECT_ALLOCATION_FAILURE";
    case CL_OUT_OF_RESOURCES: return "CL_OUT_OF_RESOURCES";
    case CL_OUT_OF_HOST_MEMORY: return "CL_OUT_OF_HOST_MEMORY";
    case CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST: return "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST";
    case CL_BUILD_PROGRAM_FAILURE: return "CL_BUILD_PROGRAM_FAILURE";
    case CL_INVALID_VALUE: return "CL_INVALID_VALUE";
    case CL_INVALID_CONTEXT: return "CL_INVALID_CONTEXT";
    case CL_INVALID_COMMAND_QUEUE: return "CL_INVALID_COMMAND_QUEUE";
    case CL_INVALID_BINARY: return "CL_INVALID_BINARY";
    case CL_INVALID_BUILD_OPTIONS: return "CL_INVALID_BUILD_OPTIONS";
    case CL_INVALID_PROGRAM_EXECUTABLE: return "CL_INVALID_PROGRAM_EXECUTABLE";
    case CL_INVALID_KERNEL_NAME: return "CL_INVALID_KERNEL_NAME";
    case CL_INVALID_ARG_INDEX: return "CL_INVALID_ARG_INDEX";
    case CL_INVALID_ARG_VALUE: return "CL_INVALID_ARG_VALUE";
    case CL_INVALID_ARG_SIZE: return "CL_INVALID_ARG_SIZE";
    case CL_INVALID_KERNEL_ARGS: return "CL_INVALID_KERNEL_ARGS";
    case CL_INVALID_WORK_GROUP_SIZE: return "CL_INVALID_WORK_GROUP_SIZE";
    case CL_INVALID_WORK_ITEM_SIZE: return "CL_INVALID_WORK_ITEM_SIZE";
    case CL_INVALID_BUFFER_SIZE: return "CL_INVALID_BUFFER_SIZE";
    case nvidia_illegal_access: return "-9999, an illegal access";
    default: return fmt::format("{}", error);
  }
}

Error cl_error(cl_int error, const std::string& doing) {
  constexpr std::array memory = {CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_OUT_OF_HOST_MEMORY, CL_INVALID_BUFFER_SIZE};
  for (const cl_int out : memory)
    if (error == out)
      return Error(ErrorCode::out_of_memory,
                   fmt::format("the device ran out of memory {} ({})", doing, error_name(error)));
  std::string_view advice;
  if (error == CL_DEVICE_NOT_AVAILABLE || error == CL_INVALID_COMMAND_QUEUE || error == nvidia_illegal_access)
    advice = ": the device was lost; open it anew";
  // Drivers say so too of a kernel that crashed.
  if (error == CL_OUT_OF_RESOURCES)
    advice = ": it needs more than the device has, or the device was lost; then open it anew";
  return Error(ErrorCode::device_failed, fmt::format("OpenCL error {} {}{}", error_name(error), doing, advice));
}

}  // namespace kiln::opencl
