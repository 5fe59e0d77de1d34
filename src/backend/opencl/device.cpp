#include "backend/opencl/device.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <kiln/slot.hpp>

#include "backend/own_buffer.hpp"

namespace kiln::opencl {
namespace {

class ClBuffer final : public Buffer {
 public:
  ClBuffer(std::shared_ptr<const Context> context, cl_mem memory, std::size_t size) noexcept
      : context_(std::move(context)), memory_(memory), size_(size) {}
  ~ClBuffer() override { context_->cl().release_mem_object(memory_); }

  std::size_t size() const noexcept override { return size_; }
  cl_mem memory() const noexcept { return memory_; }
  const Context* owner() const noexcept { return context_.get(); }

 private:
  std::shared_ptr<const Context> context_;
  cl_mem memory_;
  std::size_t size_;
};

/// Whether a kernel takes as many arguments as a launch has, and of their kinds: drivers read the bytes of one kind
/// as the handle of another, and crash.
Result<void> check_arguments(const Program& program, const Launch& launch) {
  const std::size_t buffers = launch.buffers.size();
  const std::size_t given = buffers + (launch.parameters.empty() ? 0 : 1);
  const auto refuse = [&](std::string why) {
    return Error(ErrorCode::invalid_request, fmt::format("{}{}", program.name(), why));
  };
  if (program.argument_count() != given)
    return refuse(fmt::format(" takes {} arguments; the launch has {} buffers{}", program.argument_count(), buffers,
                              launch.parameters.empty() ? "" : " and parameters"));
  for (std::size_t i = 0; i < given; ++i) {
    switch (program.argument(i)) {
      case ArgumentKind::buffer:
        if (i == buffers) return refuse(fmt::format(": argument {} takes a buffer; the launch has parameters", i));
        break;
      case ArgumentKind::value:
        if (i < buffers) return refuse(fmt::format(": argument {} takes a value; the launch has a buffer", i));
        break;
      case ArgumentKind::local:
        return refuse(fmt::format(": argument {} is local memory; declare it in the kernel instead", i));
      case ArgumentKind::object:
        return refuse(
            fmt::format(": argument {} is an image or a sampler; launches have buffers and parameters", i));
      case ArgumentKind::unknown: break;
    }
  }
  return {};
}

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
  cl.get_device_info(device, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof sizes, sizes.data(), nullptr);
  std::transform(sizes.begin(), sizes.end(), limits.max_group_size.begin(), [](std::size_t size) {
    return static_cast<std::uint32_t>(std::min<std::size_t>(size, UINT32_MAX));
  });
  limits.max_group_items =
      static_cast<std::uint32_t>(cl.number<std::size_t>(device, CL_DEVICE_MAX_WORK_GROUP_SIZE));
  limits.shared_bytes = cl.number<cl_ulong>(device, CL_DEVICE_LOCAL_MEM_SIZE);
  return limits;
}

bool on_cpu(const Library& cl, cl_device_id device) {
  return (cl.number<cl_device_type>(device, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU) != 0;
}

std::string problem_of(const Library& cl, cl_device_id device) {
  if (cl.number<cl_bool>(device, CL_DEVICE_AVAILABLE) == CL_FALSE) return "the driver says it is not available";
  if (cl.number<cl_bool>(device, CL_DEVICE_COMPILER_AVAILABLE) == CL_FALSE) return "its driver has no compiler";
  return {};
}

/// All devices of all platforms, GPUs before CPUs.
Result<std::vector<cl_device_id>> find_devices(const Library& cl) {
  cl_uint count = 0;
  const cl_int error = cl.get_platform_ids(0, nullptr, &count);
  if (error != CL_SUCCESS || count == 0)
    return Error(
        ErrorCode::no_device,
        "there is no OpenCL driver; it comes with the GPU's, or on Debian pocl-opencl-icd runs OpenCL on the CPU");
  std::vector<cl_platform_id> platforms(count);
  cl.get_platform_ids(count, platforms.data(), nullptr);
  std::vector<cl_device_id> all;
  for (cl_platform_id platform : platforms) {
    if (cl.get_device_ids(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count) != CL_SUCCESS || count == 0) continue;
    std::vector<cl_device_id> devices(count);
    cl.get_device_ids(platform, CL_DEVICE_TYPE_ALL, count, devices.data(), nullptr);
    all.insert(all.end(), devices.begin(), devices.end());
  }
  if (all.empty()) return Error(ErrorCode::no_device, "the OpenCL drivers here have no device");
  std::stable_partition(all.begin(), all.end(), [&cl](cl_device_id device) { return !on_cpu(cl, device); });
  return all;
}

/// The devices that a context was made for; none where it is no context.
std::vector<cl_device_id> devices_of(const Library& cl, cl_context context) {
  std::size_t bytes = 0;
  if (cl.get_context_info(context, CL_CONTEXT_DEVICES, 0, nullptr, &bytes) != CL_SUCCESS) return {};
  std::vector<cl_device_id> devices(bytes / sizeof(cl_device_id));
  if (cl.get_context_info(context, CL_CONTEXT_DEVICES, bytes, devices.data(), nullptr) != CL_SUCCESS) return {};
  return devices;
}

DeviceInfo read_info(const Library& cl, cl_device_id device, std::string name) {
  return {.name = std::move(name),
          .identity = read_identity(cl, device),
          .language = Language::opencl,
          .limits = read_limits(cl, device),
          .software = on_cpu(cl, device),
          .problem = problem_of(cl, device)};
}

}  // namespace

Result<ClDevice::QueueLoan> ClDevice::borrow_queue() {
  return queues_.borrow([this]() -> Result<std::unique_ptr<Queue>> {
    cl_int error = CL_SUCCESS;
    cl_command_queue queue =
        context_->cl().create_command_queue(context_->context(), context_->device(), 0, &error);
    if (queue == nullptr) return cl_error(error, "making a command queue");
    return std::make_unique<Queue>(context_, queue);
  });
}

Result<std::unique_ptr<Buffer>> ClDevice::allocate(std::size_t bytes) {
  // Some drivers promise more than there is, and fail when it is used.
  const auto largest = context_->cl().number<cl_ulong>(context_->device(), CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  if (bytes > largest)
    return Error(ErrorCode::out_of_memory,
                 fmt::format("{} bytes are more than the device gives at once ({})", bytes, largest));
  cl_int error = CL_SUCCESS;
  cl_mem memory = context_->cl().create_buffer(context_->context(), CL_MEM_READ_WRITE,
                                               backend::allocated_bytes(bytes), nullptr, &error);
  if (memory == nullptr)
    return cl_error(error == CL_OUT_OF_RESOURCES ? CL_MEM_OBJECT_ALLOCATION_FAILURE : error,
                    fmt::format("allocating {} bytes", bytes));
  return std::unique_ptr<Buffer>(std::make_unique<ClBuffer>(context_, memory, bytes));
}

Result<void> ClDevice::write(Buffer& buffer, std::span<const std::byte> bytes, std::size_t offset) {
  const auto own = backend::own_buffer<ClBuffer>(buffer, *context_, info_.name, bytes.size(), offset);
  if (!own) return own.error();
  if (bytes.empty()) return {};
  auto queue = borrow_queue();
  if (!queue) return std::move(queue).error();
  const cl_int error = context_->cl().enqueue_write_buffer((*queue)->get(), (*own)->memory(), CL_TRUE, offset,
                                                           bytes.size(), bytes.data(), 0, nullptr, nullptr);
  if (error == CL_SUCCESS) return {};
  queue->discard();
  return cl_error(error, fmt::format("writing {} bytes", bytes.size()));
}

Result<void> ClDevice::read(const Buffer& buffer, std::span<std::byte> bytes, std::size_t offset) {
  const auto own = backend::own_buffer<ClBuffer>(buffer, *context_, info_.name, bytes.size(), offset);
  if (!own) return own.error();
  if (bytes.empty()) return {};
  auto queue = borrow_queue();
  if (!queue) return std::move(queue).error();
  const cl_int error = context_->cl().enqueue_read_buffer((*queue)->get(), (*own)->memory(), CL_TRUE, offset,
                                                          bytes.size(), bytes.data(), 0, nullptr, nullptr);
  if (error == CL_SUCCESS) return {};
  queue->discard();
  return cl_error(error, fmt::format("reading {} bytes", bytes.size()));
}

Result<void> ClDevice::launch(kiln::Module& module, const Launch& launch) {
  const auto* own = dynamic_cast<const Module*>(&module);
  if (own == nullptr || &own->inside().context() != context_.get())
    return backend::foreign_program(own != nullptr ? own->inside().name() : "the program", info_.name);
  Program& program = own->inside();
  auto kernel = program.borrow_kernel();
  if (!kernel) return std::move(kernel).error();
  return run(program, launch, (*kernel)->get());
}

Result<void> ClDevice::run(const Program& program, const Launch& launch, cl_kernel kernel) {
  auto local = group_size(program, launch, kernel);
  if (!local) return std::move(local).error();
  if (auto set = set_arguments(program, launch, kernel); !set) return set;
  std::array<std::size_t, 3> global{};
  for (std::size_t i = 0; i < 3; ++i) global[i] = launch.groups[i] * (*local)[i];
  // No groups, no work; drivers disagree on whether that is an error.
  if (std::ranges::find(global, std::size_t{0}) != global.end()) return {};
  auto queue = borrow_queue();
  if (!queue) return std::move(queue).error();
  cl_int error = context_->cl().enqueue_nd_range_kernel((*queue)->get(), kernel, 3, nullptr, global.data(),
                                                        local->data(), 0, nullptr, nullptr);
  if (error == CL_SUCCESS) error = context_->cl().finish((*queue)->get());
  if (error == CL_SUCCESS) return {};
  queue->discard();
  return cl_error(error, fmt::format("launching {}", program.name()));
}

Result<std::array<std::size_t, 3>> ClDevice::group_size(const Program& program, const Launch& launch,
                                                        cl_kernel kernel) const {
  std::array<std::size_t, 3> demanded{};
  context_->cl().get_kernel_work_group_info(kernel, context_->device(), CL_KERNEL_COMPILE_WORK_GROUP_SIZE,
                                            sizeof demanded, demanded.data(), nullptr);
  const bool demands = demanded[0] != 0;
  const bool given = launch.group_size[0] != 0;
  if (!demands && !given)
    return Error(ErrorCode::invalid_request,
                 fmt::format("{} does not say its group's size; set Launch::group_size", program.name()));
  std::array<std::size_t, 3> size = demanded;
  if (given) size = {launch.group_size[0], launch.group_size[1], launch.group_size[2]};
  if (demands && size != demanded)
    return Error(ErrorCode::invalid_request,
                 fmt::format("{} is made for groups of {} x {} x {}; the launch has {} x {} x {}", program.name(),
                             demanded[0], demanded[1], demanded[2], size[0], size[1], size[2]));
  std::size_t items = 1;
  for (std::size_t i = 0; i < 3; ++i) {
    items *= size[i];
    if (size[i] == 0 || size[i] > info_.limits.max_group_size[i] || items > info_.limits.max_group_items)
      return Error(
          ErrorCode::invalid_request,
          fmt::format("{} is launched in groups of {} x {} x {}; the device takes {} x {} x {}, and at most {} "
                      "work items",
                      program.name(), size[0], size[1], size[2], info_.limits.max_group_size[0],
                      info_.limits.max_group_size[1], info_.limits.max_group_size[2],
                      info_.limits.max_group_items));
  }
  return size;
}

Result<void> ClDevice::set_arguments(const Program& program, const Launch& launch, cl_kernel kernel) const {
  if (auto ok = check_arguments(program, launch); !ok) return ok;
  const Library& cl = context_->cl();
  const auto buffers = backend::own_buffers<ClBuffer>(launch, *context_, info_.name, program.name());
  if (!buffers) return buffers.error();
  for (std::size_t i = 0; i < buffers->size(); ++i) {
    const cl_mem memory = (*buffers)[i]->memory();
    if (const cl_int error = cl.set_kernel_arg(kernel, static_cast<cl_uint>(i), sizeof memory, &memory);
        error != CL_SUCCESS)
      return Error(ErrorCode::invalid_request, fmt::format("{}: argument {} is no buffer in the source ({})",
                                                           program.name(), i, error_name(error)));
  }
  if (launch.parameters.empty()) return {};
  const std::size_t last = launch.buffers.size();
  if (const cl_int error =
          cl.set_kernel_arg(kernel, static_cast<cl_uint>(last), launch.parameters.size(), launch.parameters.data());
      error != CL_SUCCESS)
    return Error(ErrorCode::invalid_request,
                 fmt::format("{}: argument {} does not take {} bytes ({})", program.name(), last,
                             launch.parameters.size(), error_name(error)));
  return {};
}

_cl_mem* memory(const Buffer& buffer) noexcept {
  const auto* own = dynamic_cast<const ClBuffer*>(&buffer);
  return own != nullptr ? own->memory() : nullptr;
}

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
  auto library = Library::open();
  if (!library) return std::move(library).error();
  auto devices = find_devices(**library);
  if (!devices) return std::move(devices).error();
  const std::string name = fmt::format("opencl:{}", number);
  if (number >= devices->size())
    return Error(ErrorCode::no_device, fmt::format("there is no {}; OpenCL has {} device{} here, counted from 0",
                                                   name, devices->size(), devices->size() == 1 ? "" : "s"));
  cl_device_id device = (*devices)[number];
  DeviceInfo info = read_info(**library, device, name);
  if (!info.problem.empty()) return Error(ErrorCode::no_device, fmt::format("{}: {}", name, info.problem));
  cl_int error = CL_SUCCESS;
  cl_context context = (*library)->create_context(nullptr, 1, &device, nullptr, nullptr, &error);
  if (context == nullptr) return cl_error(error, fmt::format("making a context on {}", name));
  return std::shared_ptr<Device>(std::make_shared<ClDevice>(
      std::make_shared<const Context>(std::move(*library), context, device, log), std::move(info)));
}

Result<std::shared_ptr<Device>> adopt(_cl_context* context, _cl_device_id* device, const Log& log) {
  auto library = Library::open();
  if (!library) return std::move(library).error();
  if (context == nullptr || device == nullptr)
    return Error(ErrorCode::invalid_request, "adopting takes a cl_context and one of its devices");
  if (const auto devices = devices_of(**library, context); std::ranges::find(devices, device) == devices.end())
    return Error(
        ErrorCode::invalid_request,
        fmt::format("the device to adopt is none of the {} that the cl_context was made for", devices.size()));
  DeviceInfo info = read_info(**library, device, "opencl:adopted");
  if (!info.problem.empty()) return Error(ErrorCode::no_device, fmt::format("the device: {}", info.problem));
  if (const cl_int error = (*library)->retain_context(context); error != CL_SUCCESS)
    return cl_error(error, "retaining the context");
  return std::shared_ptr<Device>(std::make_shared<ClDevice>(
      std::make_shared<const Context>(std::move(*library), context, device, log), std::move(info)));
}

Result<std::unique_ptr<Slot>> ClDevice::open_slot() {
  return Error(ErrorCode::unsupported, "no slots yet");
}

}  // namespace kiln::opencl
