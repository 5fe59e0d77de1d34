#pragma once

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

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
  WorkingFolder() : error_(::unshare(CLONE_FS) == 0 ? 0 : errno) {}
  WorkingFolder(const WorkingFolder&) = delete;
  WorkingFolder& operator=(const WorkingFolder&) = delete;

  Result<void> enter(const std::filesystem::path& folder) const {
    if (error_ == 0 && ::chdir(folder.c_str()) == 0) return {};
    if (error_ != 0) errno = error_;
    return base::system_error("use the working folder", folder);
  }

 private:
  const int error_;
};

}  // namespace kiln::baking
