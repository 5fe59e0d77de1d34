#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string_view>

#include <kiln/log.hpp>

#include "backend/opencl/library.hpp"
#include "base/file.hpp"

namespace kiln::backend::quirks {

/// The folder of PoCL's kernel cache, by the same rules as PoCL.
std::filesystem::path folder_of_pocl();

/// PoCL before 6.0 assembles a binary from the files of its kernel cache. A process that compiles a source removes
/// the program's file before it writes it again. If another process queries the binary in between, it gets a binary
/// without the program. PoCL aborts a process that loads it.
///
/// Reported as https://github.com/pocl/pocl/issues/1480. Fixed in 6.0, by commit 01e32a956.
///
/// Work-around: only one process of a user compiles a source at a time. Kiln compiles again if the program is
/// missing, and refuses to load binaries without it.
class PoclKernelCache {
 public:
  /// Whether a driver has the bug, by its CL_DEVICE_VERSION and CL_DRIVER_VERSION.
  static bool affects(std::string_view device_version, std::string_view driver_version);
  /// The work-around for a device; nullopt if its driver does not have the bug.
  static std::optional<PoclKernelCache> of(const opencl::Library& cl, cl_device_id device, const Log& log);

  /// Whether a binary contains its program. Always true for binaries of other drivers.
  static bool has_program(std::string_view binary);

  /// A lock against other processes, held while a source is compiled.
  class CompileLock {
   public:
    /// False if another process held the lock until the timeout, or if files in the folder cannot be locked.
    bool held() const noexcept { return lock_.has_value(); }

   private:
    friend PoclKernelCache;
    base::FileHandle file_;
    std::optional<base::FileLock> lock_;
  };
  CompileLock lock(std::string_view source, std::string_view options, std::chrono::milliseconds timeout) const;

 private:
  explicit PoclKernelCache(std::optional<base::Folder> folder) : folder_(std::move(folder)) {}

  /// PoCL's kernel cache; nullopt if it cannot be opened or other users can write to it.
  std::optional<base::Folder> folder_;
};

}  // namespace kiln::backend::quirks
