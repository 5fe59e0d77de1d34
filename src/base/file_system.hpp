#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

namespace kiln::base {

/// The system calls that folders, files and locks use. Each function returns the result of its system call and sets
/// errno. Tests override them to inject failures. Safe from any thread.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  /// mkdirat().
  virtual int make_folder(int folder, const char* name, mode_t mode) const;
  /// openat(). The default never returns 0, 1 or 2: if a standard stream is closed, output to that stream would go
  /// into the file.
  virtual int open(int folder, const char* name, int flags, mode_t mode) const;
  virtual int close(int file) const;
  virtual ssize_t read(int file, void* bytes, std::size_t count) const;
  /// pread().
  virtual ssize_t read_at(int file, void* bytes, std::size_t count, off_t place) const;
  virtual ssize_t write(int file, const void* bytes, std::size_t count) const;
  /// ftruncate().
  virtual int truncate(int file, off_t size) const;
  /// fsync(), also for folders.
  virtual int sync(int file) const;
  virtual int rename(int folder, const char* from, const char* to) const;
  virtual int unlink(int folder, const char* name) const;
  /// fstat().
  virtual int status(int file, struct stat* status) const;
  /// fstatat(), without following symbolic links.
  virtual int status(int folder, const char* name, struct stat* status) const;
  /// Sets the modification time to now.
  virtual int touch(int folder, const char* name) const;
  /// fcntl() with F_OFD_SETLK or F_OFD_GETLK.
  virtual int lock(int file, int command, struct flock* request) const;
  /// Appends the names of all entries of a folder.
  virtual int list(int folder, std::vector<std::string>* names) const;

  /// The real system calls, or the replacement that a ScopedFileSystem set on this thread.
  static const FileSystem& system() noexcept;
};

/// Replaces FileSystem::system() on this thread during its lifetime, for tests. A cache keeps the file system that
/// was current at its construction.
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
