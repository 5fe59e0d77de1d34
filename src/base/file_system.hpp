#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

namespace kiln::base {

/// The system calls under folders, files and their locks. Each returns what the system's does and sets errno; a
/// test overrides them to make them fail, or end the process, wherever it likes. Safe from any thread.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  virtual int make_folder(const char* path, mode_t mode) const;
  /// openat(). The system's own never returns 0, 1 or 2: where a standard stream is closed, whoever writes to it
  /// would write into the file.
  virtual int open(int folder, const char* name, int flags, mode_t mode) const;
  virtual int close(int file) const;
  virtual ssize_t read(int file, void* bytes, std::size_t count) const;
  virtual ssize_t write(int file, const void* bytes, std::size_t count) const;
  /// fsync(), of a folder as well.
  virtual int sync(int file) const;
  virtual int rename(int folder, const char* from, const char* to) const;
  virtual int unlink(int folder, const char* name) const;
  /// fstat().
  virtual int status(int file, struct stat* status) const;
  /// fstatat(), of a symlink itself.
  virtual int status(int folder, const char* name, struct stat* status) const;
  /// Sets the time of last change to now.
  virtual int touch(int folder, const char* name) const;
  /// fcntl() with F_OFD_SETLK or F_OFD_GETLK.
  virtual int lock(int file, int command, struct flock* request) const;
  /// Adds the names of everything in a folder.
  virtual int list(int folder, std::vector<std::string>* names) const;

  /// The system's own, or the one that a ScopedFileSystem of this thread has put in its place.
  static const FileSystem& system() noexcept;
};

/// While it lives, FileSystem::system() returns another file system on this thread. For tests: a cache uses the one
/// that it was constructed with.
class ScopedFileSystem {
 public:
  explicit ScopedFileSystem(const FileSystem& system) noexcept;
  ~ScopedFileSystem();
  ScopedFileSystem(const ScopedFileSystem&) = delete;
  ScopedFileSystem& operator=(const ScopedFileSystem&) = delete;

 private:
  const FileSystem* before_;
};

}  // namespace kiln::base
