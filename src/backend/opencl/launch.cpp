#include "backend/opencl/launch.hpp"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <variant>

#include <fmt/format.h>

#include "backend/launch_checks.hpp"
#include "backend/opencl/memory.hpp"
#include "base/try.hpp"

namespace kiln::opencl {
namespace {

/// The work items of a group in all.
std::size_t items_of(const std::array<std::size_t, 3>& size) { return size[0] * size[1] * size[2]; }

std::array<std::size_t, 3> sizes_of(const Extent& extent) { return {extent[0], extent[1], extent[2]}; }

/// The largest divisor of `items` that is at most `most`.
std::size_t divisor(std::size_t items, std::size_t most) {
  for (std::size_t size = std::min(items, most); size > 1; --size)
    if (items % size == 0) return size;
  return 1;
}

/// What an argument of this kind takes, for error messages.
std::string_view taken_by(ArgumentKind kind) {
  switch (kind) {
    case ArgumentKind::buffer: return "a buffer";
    case ArgumentKind::value: return "a value";
    case ArgumentKind::local: return "local memory, as local(bytes)";
    case ArgumentKind::image: return "an image";
    case ArgumentKind::sampler: return "a sampler";
    case ArgumentKind::unknown: break;
  }
  return "an argument of another kind";
}

/// Whether an argument can be passed. Drivers do not check it: they read a value as a handle and crash.
bool fits(ArgumentKind kind, const Argument& argument) {
  const auto* object = argument.as<NativeObject>();
  switch (kind) {
    case ArgumentKind::buffer:
      return argument.as<Argument::Range>() != nullptr || argument.as<Argument::Null>() != nullptr;
    case ArgumentKind::value: return argument.as<Argument::Value>() != nullptr;
    case ArgumentKind::local: return argument.as<Argument::Local>() != nullptr;
    case ArgumentKind::image: return object != nullptr && object->kind == NativeObject::Kind::cl_image;
    case ArgumentKind::sampler: return object != nullptr && object->kind == NativeObject::Kind::cl_sampler;
    case ArgumentKind::unknown: return true;
  }
  return false;
}

}  // namespace

Result<const ProgramKernel*> kernel_of(const kiln::Module& module, const Context& context, const DeviceInfo& info) {
  const auto* own = dynamic_cast<const ProgramModule*>(&module);
  if (own == nullptr || &own->built().context() != &context)
    return backend::foreign_program(own != nullptr ? own->built().name() : "the program", info.name);
  if (own->kernel() == nullptr) return backend::no_entry_chosen(own->built().name(), own->built().kernels().size());
  return own->kernel();
}

Result<PreparedLaunch> PreparedLaunch::make(const kiln::Module& module, const Launch& launch,
                                            const Context& context, const DeviceInfo& info) {
  const auto* kernel = KILN_TRY(kernel_of(module, context, info));
  PreparedLaunch prepared(*kernel, KILN_TRY(kernel->borrow()));
  KILN_TRY(prepared.set_sizes(launch, info.limits));
  KILN_TRY(prepared.set_arguments(launch, info));
  return prepared;
}

Result<void> PreparedLaunch::set_sizes(const Launch& launch, const DeviceLimits& limits) {
  const Context& context = kernel_.program().context();
  const auto refuse = [this](const std::string& why) {
    return Error(ErrorCode::invalid_request, fmt::format("{}{}", name(), why));
  };
  KILN_TRY(backend::refuse_shared_bytes(launch, name(), "give local(bytes) as an argument"));
  Sizes demanded{};
  context.cl().clGetKernelWorkGroupInfo(object_->get(), context.device(), CL_KERNEL_COMPILE_WORK_GROUP_SIZE,
                                        sizeof demanded, demanded.data(), nullptr);
  local_ = launch.group_size.is_set() ? sizes_of(launch.group_size) : demanded;
  if (demanded[0] != 0 && local_ != demanded)
    return refuse(fmt::format(" requires groups of {} x {} x {}; the launch has {} x {} x {}", demanded[0],
                              demanded[1], demanded[2], local_[0], local_[1], local_[2]));
  if (!launch.items.is_set() && local_ == Sizes{})
    return refuse(" does not declare a group size; set Launch::group_size, or Launch::items");
  for (std::size_t i = 0; i < 3; ++i) {
    offset_[i] = launch.offset[i];
    global_[i] = launch.items.is_set() ? launch.items[i] : launch.groups[i] * local_[i];
  }
  if (local_ == Sizes{} && kernel_.needs_group_size())
    local_ = {divisor(global_[0], std::min<std::size_t>(64, limits.max_group_size[0])), 1, 1};
  if (local_ == Sizes{}) return {};
  bool is_within = items_of(local_) <= limits.max_group_items;
  for (std::size_t i = 0; i < 3; ++i)
    is_within = is_within && local_[i] != 0 && local_[i] <= limits.max_group_size[i];
  if (!is_within)
    return refuse(
        fmt::format(" is launched in groups of {} x {} x {}; the device allows {} x {} x {} and at most {} "
                    "work items",
                    local_[0], local_[1], local_[2], limits.max_group_size[0], limits.max_group_size[1],
                    limits.max_group_size[2], limits.max_group_items));
  // CL_DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT of OpenCL 3.0; drivers of 2.x refuse the launch if they cannot.
  constexpr cl_device_info non_uniform = 0x1065;
  const bool takes_parts = context.cl().number<cl_bool>(context.device(), non_uniform) == CL_TRUE ||
                           context.cl().text(context.device(), CL_DEVICE_VERSION).starts_with("OpenCL 2.");
  for (std::size_t i = 0; i < 3; ++i)
    if (global_[i] % local_[i] != 0 && !takes_parts)
      return refuse(
          fmt::format(": {} work items in dimension {} are not whole groups of {}, which this device needs; "
                      "round up, and check the index in the kernel",
                      global_[i], i, local_[i]));
  return {};
}

Result<void> PreparedLaunch::set_arguments(const Launch& launch, const DeviceInfo& info) {
  const std::size_t taken = kernel_.arguments().size();
  if (taken != launch.arguments.size())
    return Error(
        ErrorCode::invalid_request,
        fmt::format("{} takes {} argument{}; the launch has {}{}", name(), taken, taken == 1 ? "" : "s",
                    launch.arguments.size(),
                    taken > launch.arguments.size()
                        ? fmt::format(" and lacks {}", describe(launch.arguments.size()).substr(name().size() + 2))
                        : ""));
  std::uint64_t shared = kernel_.local_bytes();
  for (std::size_t i = 0; i < taken; ++i) {
    if (const auto* local = launch.arguments[i].as<Argument::Local>()) {
      if (local->bytes > info.limits.shared_bytes - std::min(shared, info.limits.shared_bytes))
        return Error(
            ErrorCode::invalid_request,
            fmt::format("{}: {} bytes of local memory, beside {} bytes of the kernel and of other arguments; the "
                        "device has {}",
                        describe(i), local->bytes, shared, info.limits.shared_bytes));
      shared += local->bytes;
    }
    KILN_TRY(set_argument(i, launch.arguments[i], info.name));
  }
  return {};
}

std::string PreparedLaunch::describe(std::size_t i) const {
  const DeclaredArgument& declared = kernel_.arguments()[i];
  if (declared.name.empty()) return fmt::format("{}: argument {}", name(), i);
  return fmt::format("{}: argument {} ({} {})", name(), i, declared.type, declared.name);
}

Result<void> PreparedLaunch::set_argument(std::size_t i, const Argument& argument, std::string_view device) {
  const DeclaredArgument& declared = kernel_.arguments()[i];
  const auto refuse = [&](std::string_view why) {
    return Error(ErrorCode::invalid_request, fmt::format("{} {}", describe(i), why));
  };
  if (argument.as<Argument::Memory>() != nullptr) return backend::outside_of_job(name());
  if (!std::holds_alternative<std::monostate>(argument.place()))
    return refuse("has a place; OpenCL takes arguments in order");
  if (!fits(declared.kind, argument))
    return refuse(
        fmt::format("takes {}; the launch has {}", taken_by(declared.kind), backend::content_of(argument)));
  if (const auto* range = argument.as<Argument::Range>()) return set_buffer(i, *range, device);
  if (argument.as<Argument::Null>() != nullptr) {
    const cl_mem none = nullptr;
    return set(i, sizeof none, &none);
  }
  if (const auto* local = argument.as<Argument::Local>()) {
    if (local->bytes == 0) return refuse("needs at least 1 byte of local memory");
    return set(i, local->bytes, nullptr);
  }
  if (const auto* value = argument.as<Argument::Value>()) {
    const auto bytes = value->bytes();
    if (declared.bytes() != 0 && declared.bytes() != bytes.size())
      return refuse(
          fmt::format("takes {} bytes; the launch has a value of {} bytes", declared.bytes(), bytes.size()));
    return set(i, bytes.size(), bytes.data());
  }
  const auto* object = argument.as<NativeObject>();
  if (object->kind != NativeObject::Kind::cl_image && object->kind != NativeObject::Kind::cl_sampler)
    return refuse("is an object of another API");
  const auto* handle = reinterpret_cast<const void*>(static_cast<std::uintptr_t>(object->handle));
  return set(i, sizeof handle, &handle);
}

Result<void> PreparedLaunch::set_buffer(std::size_t i, const Argument::Range& range, std::string_view device) {
  const auto own = KILN_TRY(
      backend::own_argument<ClBuffer>(range, kernel_.program().context(), device, [&] { return describe(i); }));
  cl_mem memory = own->memory();
  if (range.offset > 0) memory = KILN_TRY(part_of(memory, range.offset, i));
  return set(i, sizeof memory, &memory);
}

Result<cl_mem> PreparedLaunch::part_of(cl_mem memory, std::size_t offset, std::size_t i) {
  const Context& context = kernel_.program().context();
  const Library& cl = context.cl();
  cl_mem whole = nullptr;
  std::size_t bytes = 0;
  cl_int error = cl.clGetMemObjectInfo(memory, CL_MEM_SIZE, sizeof bytes, &bytes, nullptr);
  if (error == CL_SUCCESS)
    error = cl.clGetMemObjectInfo(memory, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof whole, &whole, nullptr);
  std::size_t begin = 0;
  // A part of a buffer has no parts of its own.
  if (error == CL_SUCCESS && whole != nullptr)
    error = cl.clGetMemObjectInfo(memory, CL_MEM_OFFSET, sizeof begin, &begin, nullptr);
  if (error != CL_SUCCESS) return cl_error(error, fmt::format("reading the size of {}", describe(i)));
  const auto alignment = cl.number<cl_uint>(context.device(), CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8;
  const cl_buffer_region region{begin + offset, bytes - std::min(offset, bytes)};
  if (region.size == 0 || (alignment != 0 && region.origin % alignment != 0))
    return Error(ErrorCode::invalid_request,
                 fmt::format("{} begins at byte {} of its buffer; on this device, use a multiple of {} within the "
                             "buffer, or pass the offset as a value",
                             describe(i), region.origin, alignment));
  cl_mem part =
      cl.clCreateSubBuffer(whole != nullptr ? whole : memory, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &error);
  if (part == nullptr) return cl_error(error, fmt::format("preparing {}", describe(i)));
  parts_.emplace_back(part, [&context](cl_mem done) { context.cl().clReleaseMemObject(done); });
  return part;
}

Result<void> PreparedLaunch::set(std::size_t i, std::size_t bytes, const void* value) {
  const Library& cl = kernel_.program().context().cl();
  const cl_int error = cl.clSetKernelArg(object_->get(), static_cast<cl_uint>(i), bytes, value);
  switch (error) {
    case CL_SUCCESS: return {};
    case CL_INVALID_ARG_SIZE:
    case CL_INVALID_ARG_VALUE:
    case CL_INVALID_MEM_OBJECT:
    case CL_INVALID_SAMPLER:
      return Error(ErrorCode::invalid_request, fmt::format("{} does not take the {} bytes of the launch ({})",
                                                           describe(i), bytes, error_name(error)));
    default: return cl_error(error, fmt::format("setting {}", describe(i)));
  }
}

bool PreparedLaunch::is_work() const noexcept {
  return std::ranges::find(global_, std::size_t{0}) == global_.end();
}

cl_int PreparedLaunch::enqueue(cl_command_queue queue, cl_event* event) const {
  return kernel_.enqueue(queue, object_->get(), offset_, global_, local_, event);
}

}  // namespace kiln::opencl
