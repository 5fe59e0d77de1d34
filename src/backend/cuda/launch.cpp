#include "backend/cuda/launch.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "backend/cuda/memory.hpp"
#include "backend/launch_checks.hpp"
#include "base/try.hpp"

namespace kiln::cuda {
namespace {

Error invalid(const LoadedImage& kernel, std::string what) {
  return Error(ErrorCode::invalid_request, fmt::format("{}: {}", kernel.name(), what));
}

Result<void> check_sizes(const LoadedImage& kernel, const LoadedImage::Function& function,
                         const DeviceLimits& limits, const Launch& launch) {
  std::uint64_t items = 1;
  for (std::size_t i = 0; i < 3; ++i) {
    if (launch.groups[i] > limits.max_groups[i])
      return invalid(kernel, fmt::format("{} work groups in dimension {}; the device has at most {}",
                                         launch.groups[i], i, limits.max_groups[i]));
    if (launch.group_size[i] == 0 || launch.group_size[i] > limits.max_group_size[i])
      return invalid(kernel, fmt::format("{} work items in dimension {} of a group; the device takes 1 to {}",
                                         launch.group_size[i], i, limits.max_group_size[i]));
    items *= launch.group_size[i];
  }
  if (items > limits.max_group_items)
    return invalid(kernel, fmt::format("{} work items in a group; the device takes at most {}", items,
                                       limits.max_group_items));
  // Fewer than the device takes, where the kernel needs many registers or says so in its source.
  if (function.max_group_items != 0 && items > function.max_group_items)
    return invalid(kernel, fmt::format("{} work items in a group; this kernel takes at most {}", items,
                                       function.max_group_items));
  return {};
}

Result<void> check_arguments(const LoadedImage& kernel, const std::vector<std::size_t>& taken,
                             const Launch& launch) {
  const std::size_t given = launch.buffers.size() + (launch.parameters.empty() ? 0 : 1);
  for (std::size_t i = 0; i < std::min(given, taken.size()); ++i) {
    const std::size_t bytes = i < launch.buffers.size() ? sizeof(Address) : launch.parameters.size();
    if (bytes != taken[i])
      return invalid(kernel, fmt::format("argument {} takes {} bytes; {} were given{}", i, taken[i], bytes,
                                         i < launch.buffers.size() ? ", a buffer" : ""));
  }
  if (given != taken.size())
    return invalid(kernel, fmt::format("{} takes {} argument{}; {} buffer{} and {} were given", kernel.entry(),
                                       taken.size(), taken.size() == 1 ? "" : "s", launch.buffers.size(),
                                       launch.buffers.size() == 1 ? "" : "s",
                                       launch.parameters.empty() ? "no parameters" : "parameters"));
  return {};
}

/// Whether `launch` is one that the device and the kernel take.
Result<void> check_launch(const LoadedImage& kernel, const LoadedImage::Function& function, const DeviceInfo& info,
                          const Launch& launch) {
  if (launch.group_size == std::array<std::uint32_t, 3>{0, 0, 0})
    return invalid(kernel, fmt::format("{} programs do not say their group's size; set Launch::group_size",
                                       info.language == Language::cuda ? "CUDA" : "HIP"));
  KILN_TRY(check_sizes(kernel, function, info.limits, launch));
  // The driver takes arguments by their addresses alone, and would read past the end of a list that is too short.
  if (!function.arguments)
    return Error(ErrorCode::unsupported, fmt::format("{}: neither the driver nor the binary tells what {} takes",
                                                     kernel.name(), kernel.entry()));
  return check_arguments(kernel, *function.arguments, launch);
}

}  // namespace

Result<PreparedLaunch> PreparedLaunch::make(LoadedImage* kernel, const Launch& launch, const Context& context,
                                            const DeviceInfo& info) {
  if (kernel == nullptr || &kernel->context() != &context)
    return backend::foreign_program(kernel != nullptr ? kernel->name() : "the program", info.name);
  const auto function = KILN_TRY(kernel->function());
  KILN_TRY(check_launch(*kernel, *function, info, launch));
  const auto buffers = KILN_TRY(backend::own_buffers<CudaBuffer>(launch, context, info.name, kernel->name()));
  PreparedLaunch prepared(*kernel, function->native, launch);
  for (const CudaBuffer* buffer : buffers) prepared.addresses_.push_back(buffer->address());
  return prepared;
}

bool PreparedLaunch::is_work() const noexcept {
  return std::ranges::find(launch_->groups, 0U) == launch_->groups.end();
}

Status PreparedLaunch::enqueue(Handle stream) const {
  const auto& groups = launch_->groups;
  const auto& size = launch_->group_size;
  // The driver only reads them, whatever its signature says.
  std::vector<void*> arguments;
  for (const Address& address : addresses_) arguments.push_back(const_cast<Address*>(&address));
  if (!launch_->parameters.empty()) arguments.push_back(const_cast<std::byte*>(launch_->parameters.data()));
  return kernel_->context().driver()->launch(function_, groups[0], groups[1], groups[2], size[0], size[1], size[2],
                                             0, stream, arguments.data(), nullptr);
}

}  // namespace kiln::cuda
