#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <sys/types.h>

#include "base/file.hpp"

namespace kiln::base {

/// A new file with a random name in a folder, to be renamed when it is complete. Removed on destruction if it was
/// not renamed.
class UnfinishedFile {
 public:
  /// `folder` is an open folder, which must stay open. If the file cannot be created, exists() is false and errno
  /// says why.
  UnfinishedFile(int folder, mode_t mode, const FileSystem& system);
  ~UnfinishedFile();
  UnfinishedFile(const UnfinishedFile&) = delete;
  UnfinishedFile& operator=(const UnfinishedFile&) = delete;

  bool exists() const noexcept { return exists_; }
  const FileHandle& handle() const noexcept { return handle_; }

  /// The following functions return whether they succeeded; otherwise errno says why.
  bool write(std::span<const std::byte> bytes) { return write_all(handle_, bytes); }
  /// NFS sends the last bytes, and reports a full disk, only when the file is closed.
  bool close_and_rename(const std::string& name);

 private:
  int folder_;
  const FileSystem& system_;
  std::string name_;
  FileHandle handle_;
  bool exists_ = false;
};

}  // namespace kiln::base
