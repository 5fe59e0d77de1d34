#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace kiln::cuda {

/// A T at an offset at which one is known to fit, however it is aligned.
template <class T>
T read_at(std::span<const std::byte> bytes, std::size_t offset) noexcept {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

/// Whether `size` bytes at `offset` are within `bytes`.
inline bool fits(std::span<const std::byte> bytes, std::uint64_t offset, std::uint64_t size) noexcept {
  return offset <= bytes.size() && size <= bytes.size() - offset;
}

}  // namespace kiln::cuda
