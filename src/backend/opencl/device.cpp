#include "backend/opencl/device.hpp"

#include <algorithm>
#include <utility>

#include <CL/cl_ext.h>
#include <fmt/format.h>

#include "backend/device_info.hpp"
#include "backend/launch_checks.hpp"
#include "backend/opencl/launch.hpp"
#include "backend/opencl/memory.hpp"
#include "backend/opencl/program.hpp"
#include "backend/opencl/slot.hpp"
#include "backend/quirks/nvidia_opencl.hpp"
#include "base/try.hpp"

namespace kiln::opencl {
namespace {

Identity read_identity(const Library& cl, cl_device_id device) {
  const auto platform = cl.number<cl_platform_id>(device, CL_DEVICE_PLATFORM);
  return {
      "opencl",
      cl.text(device, CL_DEVICE_VENDOR),
      cl.text(device, CL_DEVICE_NAME),
      cl.text(device, CL_DRIVER_VERSION),
      fmt::format("{}, {}", cl.text(platform, CL_PLATFORM_VERSION), cl.text(device, CL_DEVICE_OPENCL_C_VERSION)),
      {binary_format}};
}

DeviceLimits read_limits(const Library& cl, cl_device_id device) {
  DeviceLimits limits;
  limits.max_groups.fill(std::numeric_limits<std::uint32_t>::max());
  std::array<std::size_t, 3> sizes{};
  cl.clGetDeviceInfo(device, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof sizes, sizes.data(), nullptr);
  std::transform(sizes.begin(), sizes.end(), limits.max_group_size.begin(), [](std::size_t size) {
    return static_cast<std::uint32_t>(std::min<std::size_t>(size, UINT32_MAX));
  });
  limits.max_group_items =
      static_cast<std::uint32_t>(cl.number<std::size_t>(device, CL_DEVICE_MAX_WORK_GROUP_SIZE));
  limits.shared_bytes = backend::quirks::NvidiaOpenCl::usable_local_bytes(cl, device);
  return limits;
}

/// As in "sm_90" or "gfx906"; empty if unknown. AMD's driver reports it as the device's name, with features after a
/// colon.
std::string read_architecture(const Library& cl, cl_device_id device) {
  if (cl.has_extension(device, "cl_nv_device_attribute_query")) {
    const auto major = cl.number<cl_uint>(device, CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV);
    const auto minor = cl.number<cl_uint>(device, CL_DEVICE_COMPUTE_CAPABILITY_MINOR_NV);
    return major > 0 ? fmt::format("sm_{}{}", major, minor) : "";
  }
  const std::string name = cl.text(device, CL_DEVICE_NAME);
  return name.starts_with("gfx") ? name.substr(0, name.find(':')) : "";
}

DeviceTraits read_traits(const Library& cl, cl_device_id device) {
  DeviceTraits traits{.vendor = backend::vendor_by_id(cl.number<cl_uint>(device, CL_DEVICE_VENDOR_ID)),
                      .architecture = read_architecture(cl, device),
                      .compute_units = cl.number<cl_uint>(device, CL_DEVICE_MAX_COMPUTE_UNITS),
                      .fp16 = cl.has_extension(device, "cl_khr_fp16")};
  if (traits.vendor.empty())
    traits.vendor = backend::vendor_by_name(cl.text(device, CL_DEVICE_VENDOR), cl.text(device, CL_DEVICE_NAME));
  if (cl.has_extension(device, "cl_nv_device_attribute_query"))
    traits.subgroup_width = cl.number<cl_uint>(device, CL_DEVICE_WARP_SIZE_NV);
  else if (cl.has_extension(device, "cl_amd_device_attribute_query"))
    traits.subgroup_width = cl.number<cl_uint>(device, CL_DEVICE_WAVEFRONT_WIDTH_AMD);
  traits.matrix_units = backend::has_matrix_units(traits.architecture);
  return traits;
}

/// Empty if unknown.
std::string read_uuid(const Library& cl, cl_device_id device) {
  constexpr cl_device_info uuid_khr = 0x106A;  // CL_DEVICE_UUID_KHR
  if (!cl.has_extension(device, "cl_khr_device_uuid")) return "";
  return backend::uuid_text(cl.number<std::array<std::uint8_t, 16>>(device, uuid_khr));
}

bool on_cpu(const Library& cl, cl_device_id device) {
  return (cl.number<cl_device_type>(device, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU) != 0;
}

std::string problem_of(const Library& cl, cl_device_id device) {
  if (cl.number<cl_bool>(device, CL_DEVICE_AVAILABLE) == CL_FALSE)
    return "its driver reports that it is not available";
  if (cl.number<cl_bool>(device, CL_DEVICE_COMPILER_AVAILABLE) == CL_FALSE) return "its driver has no compiler";
  return {};
}

/// All devices of all platforms, GPUs before CPUs.
Result<std::vector<cl_device_id>> find_devices(const Library& cl) {
  cl_uint count = 0;
  const cl_int error = cl.clGetPlatformIDs(0, nullptr, &count);
  if (error != CL_SUCCESS || count == 0)
    return Error(ErrorCode::no_device,
                 "there is no OpenCL driver; install the GPU's driver, or pocl-opencl-icd for the CPU");
  std::vector<cl_platform_id> platforms(count);
  cl.clGetPlatformIDs(count, platforms.data(), nullptr);
  std::vector<cl_device_id> all;
  for (cl_platform_id platform : platforms) {
    if (cl.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count) != CL_SUCCESS || count == 0) continue;
    std::vector<cl_device_id> devices(count);
    cl.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, devices.data(), nullptr);
    all.insert(all.end(), devices.begin(), devices.end());
  }
  if (all.empty()) return Error(ErrorCode::no_device, "the installed OpenCL drivers have no device");
  std::stable_partition(all.begin(), all.end(), [&cl](cl_device_id device) { return !on_cpu(cl, device); });
  return all;
}

/// The devices of a context; empty if `context` is not valid.
std::vector<cl_device_id> devices_of(const Library& cl, cl_context context) {
  std::size_t bytes = 0;
  if (cl.clGetContextInfo(context, CL_CONTEXT_DEVICES, 0, nullptr, &bytes) != CL_SUCCESS) return {};
  std::vector<cl_device_id> devices(bytes / sizeof(cl_device_id));
  if (cl.clGetContextInfo(context, CL_CONTEXT_DEVICES, bytes, devices.data(), nullptr) != CL_SUCCESS) return {};
  return devices;
}

DeviceInfo read_info(const Library& cl, cl_device_id device, std::string name) {
  return {.name = std::move(name),
          .identity = read_identity(cl, device),
          .uuid = read_uuid(cl, device),
          .language = Language::opencl,
          .limits = read_limits(cl, device),
          .traits = read_traits(cl, device),
          .software = on_cpu(cl, device),
          .problem = problem_of(cl, device)};
}

}  // namespace

template <class Enqueue, class Doing>
Result<void> ClDevice::run_on_queue(Enqueue enqueue, Doing doing) {
  auto queue = KILN_TRY(queues_.borrow([this] { return Queue::open(context_, 0); }));
  const cl_int error = enqueue(queue->get());
  if (error == CL_SUCCESS) return {};
  queue.discard();
  return cl_error(error, doing());
}

Result<std::unique_ptr<Buffer>> ClDevice::allocate(std::size_t bytes) {
  auto buffer = KILN_TRY(ClBuffer::allocate(context_, bytes, CL_MEM_READ_WRITE));
  return std::unique_ptr<Buffer>(std::move(buffer));
}

Result<void> ClDevice::write(Buffer& buffer, std::span<const std::byte> bytes, std::size_t offset) {
  const auto own = KILN_TRY(backend::own_buffer<ClBuffer>(buffer, *context_, info_.name, bytes.size(), offset));
  if (bytes.empty()) return {};
  return run_on_queue(
      [&](cl_command_queue queue) {
        return context_->cl().clEnqueueWriteBuffer(queue, own->memory(), CL_TRUE, offset, bytes.size(),
                                                   bytes.data(), 0, nullptr, nullptr);
      },
      [&] { return fmt::format("writing {} bytes", bytes.size()); });
}

Result<void> ClDevice::read(const Buffer& buffer, std::span<std::byte> bytes, std::size_t offset) {
  const auto own = KILN_TRY(backend::own_buffer<ClBuffer>(buffer, *context_, info_.name, bytes.size(), offset));
  if (bytes.empty()) return {};
  return run_on_queue(
      [&](cl_command_queue queue) {
        return context_->cl().clEnqueueReadBuffer(queue, own->memory(), CL_TRUE, offset, bytes.size(), bytes.data(),
                                                  0, nullptr, nullptr);
      },
      [&] { return fmt::format("reading {} bytes", bytes.size()); });
}

Result<void> ClDevice::launch(kiln::Module& module, const Launch& launch) {
  const auto prepared = KILN_TRY(PreparedLaunch::make(module, launch, *context_, info_));
  if (!prepared.is_work()) return {};
  return run_on_queue(
      [&](cl_command_queue queue) {
        const cl_int error = prepared.enqueue(queue, nullptr);
        return error == CL_SUCCESS ? context_->cl().clFinish(queue) : error;
      },
      [&] { return fmt::format("launching {}", prepared.name()); });
}

Result<std::vector<Parameter>> ClDevice::parameters(kiln::Module& module) {
  const auto* kernel = KILN_TRY(kernel_of(module, *context_, info_));
  std::vector<Parameter> parameters;
  for (const DeclaredArgument& declared : kernel->arguments())
    parameters.push_back({.kind = std::string(to_string(declared.kind)),
                          .type = declared.type,
                          .name = declared.name,
                          .place = fmt::format("argument {}", parameters.size()),
                          .bytes = declared.bytes()});
  return parameters;
}

Result<std::unique_ptr<Slot>> ClDevice::open_slot() { return ClSlot::open(context_, info_); }

std::vector<DeviceInfo> list_cl_devices(const Log&) {
  const auto none = [](const Error& error) {
    return std::vector<DeviceInfo>{{.name = "opencl",
                                    .identity = {.api = "opencl"},
                                    .language = Language::opencl,
                                    .problem = error.message()}};
  };
  auto library = Library::open();
  if (!library) return none(library.error());
  auto devices = find_devices(**library);
  if (!devices) return none(devices.error());
  std::vector<DeviceInfo> infos;
  for (cl_device_id device : *devices)
    infos.push_back(read_info(**library, device, fmt::format("opencl:{}", infos.size())));
  return infos;
}

Result<std::shared_ptr<Device>> open_cl_device(std::size_t number, const Log& log) {
  auto library = KILN_TRY(Library::open());
  auto devices = KILN_TRY(find_devices(*library));
  const std::string name = fmt::format("opencl:{}", number);
  if (number >= devices.size())
    return Error(ErrorCode::no_device, fmt::format("there is no {}; OpenCL has {} device{} here, counted from 0",
                                                   name, devices.size(), devices.size() == 1 ? "" : "s"));
  cl_device_id device = devices[number];
  DeviceInfo info = read_info(*library, device, name);
  if (!info.problem.empty()) return Error(ErrorCode::no_device, fmt::format("{}: {}", name, info.problem));
  cl_int error = CL_SUCCESS;
  cl_context context = library->clCreateContext(nullptr, 1, &device, nullptr, nullptr, &error);
  if (context == nullptr) return cl_error(error, fmt::format("creating a context on {}", name));
  return std::shared_ptr<Device>(std::make_shared<ClDevice>(
      std::make_shared<const Context>(std::move(library), context, device, log), std::move(info)));
}

Result<std::shared_ptr<Device>> adopt(_cl_context* context, _cl_device_id* device, const Log& log) {
  auto library = KILN_TRY(Library::open());
  if (context == nullptr || device == nullptr)
    return Error(ErrorCode::invalid_request, "adopting an OpenCL device needs a cl_context and one of its devices");
  if (const auto devices = devices_of(*library, context); std::ranges::find(devices, device) == devices.end())
    return Error(
        ErrorCode::invalid_request,
        fmt::format("the device to adopt is not in the cl_context, whose device count is {}", devices.size()));
  DeviceInfo info = read_info(*library, device, "opencl:adopted");
  if (!info.problem.empty())
    return Error(ErrorCode::no_device, fmt::format("cannot adopt the device: {}", info.problem));
  if (const cl_int error = library->clRetainContext(context); error != CL_SUCCESS)
    return cl_error(error, "retaining the context");
  return std::shared_ptr<Device>(std::make_shared<ClDevice>(
      std::make_shared<const Context>(std::move(library), context, device, log), std::move(info)));
}

}  // namespace kiln::opencl
