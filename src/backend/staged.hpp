#pragma once

#include <cstddef>

#include <fmt/format.h>

#include <kiln/result.hpp>

/// What every backend's slots check of their staging memory.
namespace kiln::backend {

/// Whether there are `bytes` bytes at `staged` in staging memory of `size`.
inline Result<void> check_staged(std::size_t staged, std::size_t bytes, std::size_t size) {
  if (staged <= size && bytes <= size - staged) return {};
  return Error(ErrorCode::invalid_request,
               fmt::format("{} bytes at {} do not fit in staging memory of {}", bytes, staged, size));
}

/// The error of staging memory that is to grow while the device may use it.
inline Error staging_in_use() {
  return Error(ErrorCode::invalid_request, "staging memory cannot grow while work is queued or under way");
}

}  // namespace kiln::backend
