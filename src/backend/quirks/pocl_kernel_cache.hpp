#pragma once

#include <chrono>
#include <optional>
#include <string_view>

#include <kiln/log.hpp>

#include "backend/opencl/library.hpp"
#include "base/file.hpp"

namespace kiln::backend::quirks {

/// PoCL before 6.0 puts a binary together from the files of its kernel cache. A process that compiles a text
/// removes the program's file before it writes it again. If another process asks for the binary at that moment, it
/// gets one without a program, and PoCL aborts the process that loads it.
///
/// Reported as https://github.com/pocl/pocl/issues/1480. Fixed in 6.0, by commit 01e32a956.
///
/// Kiln compiles each text in one process of a user at a time, compiles again if the program is missing, and
/// refuses to load binaries without one.
class PoclKernelCache {
 public:
  /// Whether a driver has the bug, by its CL_DEVICE_VERSION and CL_DRIVER_VERSION.
  static bool affects(std::string_view device_version, std::string_view driver_version);
  /// The work-around for a device; empty if its driver does not have the bug.
  static std::optional<PoclKernelCache> of(const opencl::Library& cl, cl_device_id device, const Log& log);

  /// Whether a binary has its program. Always true for binaries of other drivers.
  static bool has_program(std::string_view binary);

  /// Held while a text is compiled.
  class CompileLock {
   public:
    /// False if another process held it until the timeout, or the file system has no locks.
    bool held() const noexcept { return lock_.has_value(); }

   private:
    friend PoclKernelCache;
    base::FileHandle file_;
    std::optional<base::FileLock> lock_;
  };
  CompileLock lock(std::string_view source, std::string_view options, std::chrono::milliseconds timeout) const;

 private:
  explicit PoclKernelCache(std::optional<base::Folder> folder) : folder_(std::move(folder)) {}

  /// PoCL's kernel cache; empty if other users can write to it.
  std::optional<base::Folder> folder_;
};

}  // namespace kiln::backend::quirks
