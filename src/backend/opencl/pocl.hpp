#pragma once

#include <chrono>
#include <optional>
#include <string_view>

#include <kiln/log.hpp>

#include "backend/opencl/library.hpp"
#include "base/file.hpp"
#include "base/file_lock.hpp"

namespace kiln::opencl {

// PoCL puts a binary together from the files of its own cache, out of which another process that compiles the same
// takes the program before it puts it back. The binary then has none, or an empty one, and PoCL ends the process
// that hands it back.

/// Whether a driver's binary is not one that PoCL left the program out of.
bool is_whole(std::string_view image);

/// Whether a device is one of PoCL's.
bool is_pocl(const Library& cl, cl_device_id device);

/// Turns at having PoCL compile a text: no two of this user's have one for the same text at the same time, in this
/// process or another one.
class PoclTurns {
 public:
  /// Finds the folder of PoCL's files; nothing where there is none that only this user can write to.
  static std::optional<PoclTurns> open(const Log& log);

  class Turn {
   public:
    /// Whether it is one's own: others may take too long, or the file system have no locks. One does without then,
    /// and is_whole() tells how it went.
    bool held() const noexcept { return lock_.has_value(); }

   private:
    friend PoclTurns;
    base::FileHandle file_;
    std::optional<base::FileLock> lock_;
  };
  Turn take(std::string_view source, std::string_view options, std::chrono::milliseconds timeout) const;

 private:
  explicit PoclTurns(base::Folder folder) : folder_(std::move(folder)) {}

  base::Folder folder_;
};

}  // namespace kiln::opencl
