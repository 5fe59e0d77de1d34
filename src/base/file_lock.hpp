#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "base/file.hpp"

namespace kiln::base {

/// An advisory lock on one byte of a file, against other processes and other openings of the file in this
/// one. The kernel drops it with the process. Released on destruction, on any thread.
class FileLock {
 public:
  /// Tries until `timeout`. Nothing where another one held it all the time, or the file system has no locks.
  /// The file must stay open as long as the lock.
  static std::optional<FileLock> acquire(const FileHandle& file, std::uint64_t byte,
                                         std::chrono::milliseconds timeout);

  /// Whether somebody holds it; nothing where the file system has no locks.
  static std::optional<bool> is_held(const FileHandle& file, std::uint64_t byte);

  FileLock(FileLock&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)), byte_(other.byte_), system_(other.system_) {}
  FileLock& operator=(FileLock&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    std::swap(byte_, other.byte_);
    std::swap(system_, other.system_);
    return *this;
  }
  ~FileLock();

 private:
  FileLock(const FileHandle& file, std::uint64_t byte)
      : descriptor_(file.get()), byte_(byte), system_(&file.system()) {}

  int descriptor_;
  std::uint64_t byte_;
  const FileSystem* system_;
};

}  // namespace kiln::base
