#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <kiln/device.hpp>

/// Argument checks shared by all devices and slots. `T` is the backend's buffer class; `T::owner()` is the object
/// that all buffers and programs of a device share. `device` is the device's name for open_device().
namespace kiln::backend {

/// Downcasts a caller's buffer to T. Fails if it has another owner, or if `bytes` bytes at `offset` exceed it.
template <class T, class Owner>
Result<const T*> own_buffer(const Buffer& buffer, const Owner& owner, std::string_view device, std::size_t bytes,
                            std::size_t offset) {
  const auto* own = dynamic_cast<const T*>(&buffer);
  if (own == nullptr || own->owner() != &owner)
    return Error(ErrorCode::invalid_request,
                 fmt::format("the buffer belongs to another device; allocate it on {}", device));
  if (offset > buffer.size() || bytes > buffer.size() - offset)
    return Error(ErrorCode::invalid_request, fmt::format("{} bytes at offset {} do not fit in a buffer of {} bytes",
                                                         bytes, offset, buffer.size()));
  return own;
}

/// Downcasts the buffers of a launch of `program`. Fails if one is null or has another owner.
template <class T, class Owner>
Result<std::vector<const T*>> own_buffers(const Launch& launch, const Owner& owner, std::string_view device,
                                          std::string_view program) {
  std::vector<const T*> buffers;
  for (const Buffer* buffer : launch.buffers) {
    if (buffer == nullptr)
      return Error(ErrorCode::invalid_request,
                   fmt::format("{}: argument {} is a null buffer", program, buffers.size()));
    const auto* own = dynamic_cast<const T*>(buffer);
    if (own == nullptr || own->owner() != &owner)
      return Error(ErrorCode::invalid_request,
                   fmt::format("{}: argument {} belongs to another device; allocate it on {}", program,
                               buffers.size(), device));
    buffers.push_back(own);
  }
  return buffers;
}

/// Checks the number of work groups: not all drivers do.
inline Result<void> check_groups(const Launch& launch, const DeviceLimits& limits, std::string_view program) {
  for (std::size_t i = 0; i < 3; ++i)
    if (launch.groups[i] > limits.max_groups[i])
      return Error(ErrorCode::invalid_request,
                   fmt::format("{} work groups in dimension {} for {}; the device allows at most {}",
                               launch.groups[i], i, program, limits.max_groups[i]));
  return {};
}

/// Checks the work groups that a program declares, before the driver gets it: not all drivers do. The error names
/// the program, its requirement and the limit.
inline Result<void> check_group_size(std::string_view program, const std::array<std::uint32_t, 3>& size,
                                     std::uint64_t shared_bytes, const DeviceLimits& limits) {
  const auto beyond = [program](const std::string& what, std::uint64_t most) {
    return Error(ErrorCode::unsupported, fmt::format("{} {}; the device allows at most {}", program, what, most));
  };
  if (shared_bytes > limits.shared_bytes)
    return beyond(fmt::format("uses {} bytes of shared memory in a work group", shared_bytes), limits.shared_bytes);
  std::uint64_t items = 1;
  for (std::size_t i = 0; i < 3; ++i) {
    if (size[i] > limits.max_group_size[i])
      return beyond(fmt::format("has work groups of {} items in dimension {}", size[i], i),
                    limits.max_group_size[i]);
    items *= size[i];
    if (items > limits.max_group_items)
      return beyond(fmt::format("has work groups of {}x{}x{} items", size[0], size[1], size[2]),
                    limits.max_group_items);
  }
  return {};
}

/// Whether a launch has work items. Drivers treat empty launches differently.
inline bool has_work(const Launch& launch) { return std::ranges::find(launch.groups, 0U) == launch.groups.end(); }

/// The error for launching a program of another device on `device`.
inline Error foreign_program(std::string_view program, std::string_view device) {
  return Error(ErrorCode::invalid_request,
               fmt::format("{} belongs to another device; compile or load it on {}", program, device));
}

/// The error for launching a program of several entry points as a whole.
inline Error no_entry_chosen(std::string_view program, std::size_t entries) {
  return Error(
      ErrorCode::invalid_request,
      fmt::format("{} has {} entry points; choose one with Program::entry() or Step::entry", program, entries));
}

/// The size to allocate for a buffer: whole 4-byte words, at least one. Drivers refuse empty buffers, and programs
/// may read a 16-bit value as part of its word.
constexpr std::size_t allocated_bytes(std::size_t bytes) noexcept {
  if (bytes == 0) return 4;
  return bytes % 4 == 0 || bytes + 3 < bytes ? bytes : (bytes + 3) / 4 * 4;
}

}  // namespace kiln::backend
