#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <kiln/device.hpp>

/// How a backend finds its own in what callers hand it. `T` is its type of buffer; `T::owner()` is what all buffers
/// and programs of a device share, and `device` what open_device() calls that device.
namespace kiln::backend {

/// The buffer as a T of `owner` that has `bytes` bytes at `offset`.
template <class T, class Owner>
Result<const T*> own_buffer(const Buffer& buffer, const Owner& owner, std::string_view device, std::size_t bytes,
                            std::size_t offset) {
  const auto* own = dynamic_cast<const T*>(&buffer);
  if (own == nullptr || own->owner() != &owner)
    return Error(ErrorCode::invalid_request,
                 fmt::format("the buffer belongs to another device; allocate it on {}", device));
  if (offset > buffer.size() || bytes > buffer.size() - offset)
    return Error(ErrorCode::invalid_request,
                 fmt::format("{} bytes at {} do not fit in a buffer of {}", bytes, offset, buffer.size()));
  return own;
}

/// The buffers of a launch of `program`, all of which are there and of `owner`.
template <class T, class Owner>
Result<std::vector<const T*>> own_buffers(const Launch& launch, const Owner& owner, std::string_view device,
                                          std::string_view program) {
  std::vector<const T*> buffers;
  for (const Buffer* buffer : launch.buffers) {
    if (buffer == nullptr)
      return Error(ErrorCode::invalid_request, fmt::format("{}: argument {} is missing", program, buffers.size()));
    const auto* own = dynamic_cast<const T*>(buffer);
    if (own == nullptr || own->owner() != &owner)
      return Error(ErrorCode::invalid_request,
                   fmt::format("{}: argument {} belongs to another device; allocate it on {}", program,
                               buffers.size(), device));
    buffers.push_back(own);
  }
  return buffers;
}

/// The error of a launch on `device` of a program that was made on another.
inline Error foreign_program(std::string_view program, std::string_view device) {
  return Error(ErrorCode::invalid_request,
               fmt::format("{} belongs to another device; compile or load it on {}", program, device));
}

/// How much is allocated for a buffer of so many bytes: whole words, at least one. Drivers refuse buffers of no
/// size, and programs that read halves read the word they are in.
constexpr std::size_t allocated_bytes(std::size_t bytes) noexcept {
  if (bytes == 0) return 4;
  return bytes % 4 == 0 || bytes + 3 < bytes ? bytes : (bytes + 3) / 4 * 4;
}

}  // namespace kiln::backend
