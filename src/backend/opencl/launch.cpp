#include "backend/opencl/launch.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "backend/launch_checks.hpp"
#include "backend/opencl/memory.hpp"
#include "base/try.hpp"

namespace kiln::opencl {
namespace {

/// Checks the number and the kinds of a launch's arguments. Drivers do not: they read a value as a handle and
/// crash.
Result<void> check_arguments(const ProgramKernel& kernel, const Launch& launch) {
  const std::size_t buffers = launch.buffers.size();
  const std::size_t given = buffers + (launch.parameters.empty() ? 0 : 1);
  const auto refuse = [&](std::string why) {
    return Error(ErrorCode::invalid_request, fmt::format("{}{}", kernel.program().name(), why));
  };
  if (kernel.argument_count() != given)
    return refuse(fmt::format(" takes {} arguments; the launch has {} buffers{}", kernel.argument_count(), buffers,
                              launch.parameters.empty() ? "" : " and parameters"));
  for (std::size_t i = 0; i < given; ++i) {
    switch (kernel.argument(i)) {
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

/// The group size: that of the launch, or the one that the source requires.
Result<std::array<std::size_t, 3>> group_size(const BuiltProgram& program, const Launch& launch, cl_kernel kernel,
                                              const DeviceLimits& limits) {
  std::array<std::size_t, 3> demanded{};
  program.context().cl().clGetKernelWorkGroupInfo(kernel, program.context().device(),
                                                  CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof demanded,
                                                  demanded.data(), nullptr);
  const bool demands = demanded[0] != 0;
  const bool given = launch.group_size[0] != 0;
  if (!demands && !given)
    return Error(ErrorCode::invalid_request,
                 fmt::format("{} does not declare a group size; set Launch::group_size", program.name()));
  std::array<std::size_t, 3> size = demanded;
  if (given) size = {launch.group_size[0], launch.group_size[1], launch.group_size[2]};
  if (demands && size != demanded)
    return Error(ErrorCode::invalid_request,
                 fmt::format("{} requires groups of {} x {} x {}; the launch has {} x {} x {}", program.name(),
                             demanded[0], demanded[1], demanded[2], size[0], size[1], size[2]));
  std::size_t items = 1;
  for (std::size_t i = 0; i < 3; ++i) {
    items *= size[i];
    if (size[i] == 0 || size[i] > limits.max_group_size[i] || items > limits.max_group_items)
      return Error(
          ErrorCode::invalid_request,
          fmt::format("{} is launched in groups of {} x {} x {}; the device allows {} x {} x {} and at most {} "
                      "work items",
                      program.name(), size[0], size[1], size[2], limits.max_group_size[0], limits.max_group_size[1],
                      limits.max_group_size[2], limits.max_group_items));
  }
  return size;
}

Result<void> set_arguments(const ProgramKernel& of, const Launch& launch, cl_kernel kernel,
                           std::string_view device) {
  KILN_TRY(check_arguments(of, launch));
  const BuiltProgram& program = of.program();
  const Library& cl = program.context().cl();
  const auto buffers = KILN_TRY(backend::own_buffers<ClBuffer>(launch, program.context(), device, program.name()));
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const cl_mem memory = buffers[i]->memory();
    if (const cl_int error = cl.clSetKernelArg(kernel, static_cast<cl_uint>(i), sizeof(cl_mem), &memory);
        error != CL_SUCCESS)
      return Error(ErrorCode::invalid_request, fmt::format("{}: argument {} is not a buffer in the source ({})",
                                                           program.name(), i, error_name(error)));
  }
  if (launch.parameters.empty()) return {};
  const std::size_t last = launch.buffers.size();
  if (const cl_int error =
          cl.clSetKernelArg(kernel, static_cast<cl_uint>(last), launch.parameters.size(), launch.parameters.data());
      error != CL_SUCCESS)
    return Error(ErrorCode::invalid_request,
                 fmt::format("{}: argument {} does not take {} bytes ({})", program.name(), last,
                             launch.parameters.size(), error_name(error)));
  return {};
}

}  // namespace

Result<PreparedLaunch> PreparedLaunch::make(const kiln::Module& module, const Launch& launch,
                                            const Context& context, const DeviceInfo& info) {
  const auto* own = dynamic_cast<const ProgramModule*>(&module);
  if (own == nullptr || &own->built().context() != &context)
    return backend::foreign_program(own != nullptr ? own->built().name() : "the program", info.name);
  if (own->kernel() == nullptr) return backend::no_entry_chosen(own->built().name(), own->built().kernels().size());
  const ProgramKernel& kernel = *own->kernel();
  auto object = KILN_TRY(kernel.borrow());
  const auto local = KILN_TRY(group_size(own->built(), launch, object->get(), info.limits));
  KILN_TRY(set_arguments(kernel, launch, object->get(), info.name));
  Sizes global{};
  for (std::size_t i = 0; i < 3; ++i) global[i] = launch.groups[i] * local[i];
  return PreparedLaunch(kernel, std::move(object), global, local);
}

bool PreparedLaunch::is_work() const noexcept {
  return std::ranges::find(global_, std::size_t{0}) == global_.end();
}

cl_int PreparedLaunch::enqueue(cl_command_queue queue, cl_event* event) const {
  return kernel_.enqueue(queue, object_->get(), global_, local_, event);
}

}  // namespace kiln::opencl
