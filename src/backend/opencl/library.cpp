#include "backend/opencl/library.hpp"

#include <array>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "backend/quirks/opencl_loader.hpp"
#include "backend/symbols.hpp"

namespace kiln::opencl {
namespace {

/// NVIDIA's error code for a kernel that accessed memory out of bounds.
constexpr cl_int nvidia_illegal_access = -9999;

template <class Get>
std::string text_by(Get get) {
  std::size_t size = 0;
  if (get(0, nullptr, &size) != CL_SUCCESS || size == 0) return {};
  std::string text(size, '\0');
  if (get(size, text.data(), nullptr) != CL_SUCCESS) return {};
  // Drivers terminate strings with a NUL; some pad them with spaces.
  text.resize(std::min(text.find('\0'), text.size()));
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

}  // namespace

Result<std::shared_ptr<const Library>> Library::open() {
  const backend::quirks::KeepOpenClVariables keep_variables;
  auto opened = base::DynamicLibrary::open_for_good("libOpenCL.so.1");
  if (!opened)
    return Error(ErrorCode::no_device,
                 opened.error().message() +
                     "; install the GPU's driver, or ocl-icd-libopencl1 and pocl-opencl-icd for the CPU");
  auto library = std::make_shared<Library>();
  library->library_ = std::move(*opened);
  backend::SymbolLookup lookup(library->library_);
  library->fill(lookup);
  if (lookup.missing() != nullptr)
    return Error(ErrorCode::unsupported,
                 fmt::format("libOpenCL.so.1 has no {}; Kiln needs OpenCL 1.2", lookup.missing()));
  lookup.optional(library->clCreateProgramWithIL, "clCreateProgramWithIL");
  // The loader reads its environment variables at the first call, so make it before `keep_variables` ends.
  cl_uint platforms = 0;
  library->clGetPlatformIDs(0, nullptr, &platforms);
  return std::shared_ptr<const Library>(std::move(library));
}

std::shared_ptr<const Library> Library::stubs() {
  auto library = std::make_shared<Library>();
  const backend::StubLookup<cl_int{CL_DEVICE_NOT_AVAILABLE}> lookup;
  library->fill(lookup);
  return library;
}

std::string Library::text(cl_platform_id platform, cl_platform_info what) const {
  return text_by([&](std::size_t size, void* text, std::size_t* needed) {
    return clGetPlatformInfo(platform, what, size, text, needed);
  });
}

std::string Library::text(cl_device_id device, cl_device_info what) const {
  return text_by([&](std::size_t size, void* text, std::size_t* needed) {
    return clGetDeviceInfo(device, what, size, text, needed);
  });
}

bool Library::has_extension(cl_device_id device, std::string_view name) const {
  const std::string all = fmt::format(" {} ", text(device, CL_DEVICE_EXTENSIONS));
  return all.find(fmt::format(" {} ", name)) != std::string::npos;
}

std::string Library::argument_type(cl_kernel kernel, cl_uint argument) const {
  return text_by([&](std::size_t size, void* text, std::size_t* needed) {
    return clGetKernelArgInfo(kernel, argument, CL_KERNEL_ARG_TYPE_NAME, size, text, needed);
  });
}

std::string Library::argument_name(cl_kernel kernel, cl_uint argument) const {
  return text_by([&](std::size_t size, void* text, std::size_t* needed) {
    return clGetKernelArgInfo(kernel, argument, CL_KERNEL_ARG_NAME, size, text, needed);
  });
}

std::optional<int> pocl_major_version(std::string_view device_version, std::string_view driver_version) {
  // As in "OpenCL 3.0 pocl HSTR: pthread-x86_64-pc-linux-gnu-skylake-avx512"; later versions write PoCL.
  if (device_version.find("pocl HSTR") == std::string_view::npos &&
      device_version.find("PoCL HSTR") == std::string_view::npos)
    return std::nullopt;
  int major = 0;
  std::from_chars(driver_version.data(), driver_version.data() + driver_version.size(), major);
  return major;
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
    case nvidia_illegal_access: return "-9999 (illegal memory access)";
    default: return fmt::format("{}", error);
  }
}

Error cl_error(cl_int error, const std::string& doing) {
  constexpr std::array memory = {CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_OUT_OF_HOST_MEMORY, CL_INVALID_BUFFER_SIZE};
  for (const cl_int out : memory)
    if (error == out)
      return Error(ErrorCode::out_of_memory,
                   fmt::format("the device ran out of memory while {} ({})", doing, error_name(error)));
  std::string_view advice;
  if (error == CL_DEVICE_NOT_AVAILABLE || error == CL_INVALID_COMMAND_QUEUE || error == nvidia_illegal_access)
    advice = ": the device was lost; open it again";
  // Drivers also return this error for a kernel that crashed.
  if (error == CL_OUT_OF_RESOURCES)
    advice = ": too few resources on the device, or the device was lost; if it was lost, open it again";
  return Error(ErrorCode::device_failed,
               fmt::format("OpenCL error {} while {}{}", error_name(error), doing, advice));
}

}  // namespace kiln::opencl
