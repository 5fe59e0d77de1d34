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

/// Downcasts the buffer of an argument. Fails if the pointer is null, if the buffer has another owner, or if the
/// offset is behind its end. `describe()` returns the program and the argument, as in "saxpy: argument 2 (x)".
template <class T, class Owner, class Describe>
Result<const T*> own_argument(const Argument::Range& range, const Owner& owner, std::string_view device,
                              Describe describe) {
  if (range.buffer == nullptr)
    return Error(ErrorCode::invalid_request, fmt::format("{} is a null buffer", describe()));
  const auto* own = dynamic_cast<const T*>(range.buffer);
  if (own == nullptr || own->owner() != &owner)
    return Error(ErrorCode::invalid_request,
                 fmt::format("{} belongs to another device; allocate it on {}", describe(), device));
  if (range.offset > own->size())
    return Error(ErrorCode::invalid_request, fmt::format("{} begins at byte {} of a buffer of {} bytes", describe(),
                                                         range.offset, own->size()));
  return own;
}

/// The content of an argument, as error messages name it.
inline std::string content_of(const Argument& argument) {
  if (const auto* value = argument.as<Argument::Value>())
    return fmt::format("a value of {} bytes", value->bytes().size());
  if (argument.as<Argument::Range>() != nullptr) return "a buffer";
  if (argument.as<Argument::Null>() != nullptr) return "a null pointer";
  if (const auto* shared = argument.as<Argument::Local>())
    return fmt::format("local memory of {} bytes", shared->bytes);
  if (const auto* object = argument.as<NativeObject>()) {
    using Native = NativeObject::Kind;
    switch (object->kind) {
      case Native::cl_image:
      case Native::gl_image:
      case Native::vk_image: return "an image";
      case Native::gl_texture:
      case Native::vk_texture: return "a texture";
      case Native::cl_sampler:
      case Native::vk_sampler: return "a sampler";
      case Native::vk_texel_buffer: return "a texel buffer";
    }
  }
  return "memory of a job";
}

/// The error for an argument that can only be given in a job.
inline Error outside_of_job(std::string_view program) {
  return Error(ErrorCode::invalid_request,
               fmt::format("{}: job_memory() is only for the steps of a job; give the buffer", program));
}

/// The work groups of a launch: as given, or the work items divided by the group size, which must be whole groups.
/// Checks them against the device's limits, because not all drivers do.
inline Result<Extent> groups_of(const Launch& launch, const Extent& group_size, const DeviceLimits& limits,
                                std::string_view program) {
  Extent groups = launch.groups;
  for (std::size_t i = 0; i < 3; ++i) {
    if (launch.items.is_set()) {
      if (group_size[i] == 0 || launch.items[i] % group_size[i] != 0)
        return Error(
            ErrorCode::invalid_request,
            fmt::format("{}: {} work items in dimension {} are not whole groups of {}; round up, and check "
                        "the index in the kernel",
                        program, launch.items[i], i, group_size[i]));
      groups[i] = launch.items[i] / group_size[i];
    }
    if (groups[i] > limits.max_groups[i])
      return Error(ErrorCode::invalid_request,
                   fmt::format("{}: {} work groups in dimension {}; the device allows at most {}", program,
                               groups[i], i, limits.max_groups[i]));
  }
  return groups;
}

/// Fails if a launch uses what only other APIs have: `api` is the name of this one.
inline Result<void> refuse_offset(const Launch& launch, std::string_view program, std::string_view api) {
  if (launch.offset == decltype(launch.offset){}) return {};
  return Error(ErrorCode::unsupported,
               fmt::format("{}: {} has no Launch::offset; pass it as an argument", program, api));
}
inline Result<void> refuse_shared_bytes(const Launch& launch, std::string_view program, std::string_view instead) {
  if (launch.shared_bytes == 0) return {};
  return Error(ErrorCode::unsupported,
               fmt::format("{}: Launch::shared_bytes is for CUDA and HIP; {}", program, instead));
}

/// The error for a group size that contradicts the source.
inline Error other_group_size(std::string_view program, const Extent& declared, const Extent& given) {
  return Error(ErrorCode::invalid_request,
               fmt::format("{} declares groups of {} x {} x {}; the launch has {} x {} x {}", program, declared[0],
                           declared[1], declared[2], given[0], given[1], given[2]));
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

/// Whether there are work groups. Drivers treat empty launches differently.
inline bool has_work(const Extent& groups) { return std::ranges::find(groups, 0U) == groups.end(); }

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
