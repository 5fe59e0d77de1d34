#pragma once

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <kiln/result.hpp>

#include "base/file.hpp"

namespace kiln::baking {

/// Gives the calling thread a working folder that is not that of the process, for as long as the thread runs.
/// Compilers of OpenCL search the working folder for included files. Some containers do not permit it: every
/// enter() then fails.
class WorkingFolder {
 public:
  WorkingFolder() : error_(::unshare(CLONE_FS) == 0 ? 0 : errno) {
    if (error_ == 0) before_ = base::FileHandle(::open(".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
  WorkingFolder(const WorkingFolder&) = delete;
  WorkingFolder& operator=(const WorkingFolder&) = delete;

  Result<void> enter(const std::filesystem::path& folder) const {
    if (error_ == 0 && ::chdir(folder.c_str()) == 0) return {};
    if (error_ != 0) errno = error_;
    return base::system_error("use the working folder", folder);
  }

  /// Returns to the working folder of the process: a process that is started in a removed folder has none.
  void leave() const {
    if (error_ == 0 && ::fchdir(before_.get()) != 0) static_cast<void>(!::chdir("/"));
  }

 private:
  const int error_;
  base::FileHandle before_;
};

}  // namespace kiln::baking
