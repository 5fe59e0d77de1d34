#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/stat.h>

#include <kiln/durability.hpp>
#include <kiln/result.hpp>

#include "base/file_system.hpp"

namespace kiln::base {

/// An open file descriptor of a file system; closed on destruction.
class FileHandle {
 public:
  FileHandle() = default;
  explicit FileHandle(int descriptor, const FileSystem& system = FileSystem::system()) noexcept
      : descriptor_(descriptor), system_(&system) {}
  FileHandle(FileHandle&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)), system_(other.system_) {}
  FileHandle& operator=(FileHandle&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    std::swap(system_, other.system_);
    return *this;
  }
  ~FileHandle();

  int get() const noexcept { return descriptor_; }
  const FileSystem& system() const noexcept { return *system_; }
  explicit operator bool() const noexcept { return descriptor_ >= 0; }
  /// Closes it now; whether that went well. A network file system may tell only then that it has lost something.
  bool close() noexcept;

 private:
  int descriptor_ = -1;
  const FileSystem* system_ = &FileSystem::system();
};

/// The error of the system call that just failed: "cannot WHAT PATH: REASON".
Error system_error(const std::string& what, const std::filesystem::path& path);

/// Writes a file of the user's: made if it is not there, emptied if it is.
Result<void> write_file(const std::filesystem::path& path, std::string_view text);

/// A file that was read whole.
struct FileContents {
  std::vector<std::byte> bytes;
  /// When it was last changed, in seconds since 1970.
  std::int64_t changed = 0;
};

/// A folder that only this user (or root) can have put files into, held open; every file in it is reached from
/// the handle, so that a folder swapped under its name changes nothing.
class Folder {
 public:
  /// Opens `path`; with `create`, makes it (0700) and its parents first. Refuses what is no folder, belongs to
  /// another user, or can be written by others.
  static Result<Folder> open(const std::filesystem::path& path, bool create,
                             const FileSystem& system = FileSystem::system());

  const std::filesystem::path& path() const noexcept { return path_; }
  int descriptor() const noexcept { return handle_.get(); }
  /// Whether it is still in the file system; a folder that was removed takes no files.
  bool exists() const noexcept;

  /// The whole of a regular file of this user's (or root's) of at most `max_bytes`; nothing where there is none.
  /// Symlinks, FIFOs and other people's files are errors and are not opened.
  Result<std::optional<FileContents>> read(const std::string& name, std::uint64_t max_bytes) const;
  /// Replaces the file whole by way of a temporary file and a rename.
  Result<void> replace(const std::string& name, std::span<const std::byte> bytes,
                       Durability durability = Durability::none) const;
  /// Removes the file; whether there was one.
  Result<bool> remove(const std::string& name) const;
  /// Opens a file to lock, making it if need be.
  Result<FileHandle> open_lock_file(const std::string& name) const;
  /// The names of everything in the folder.
  Result<std::vector<std::string>> names() const;
  /// The state of a file, not following symlinks; nothing where there is none.
  std::optional<struct stat> status(const std::string& name) const;
  /// Sets the file's time of last change to now.
  Result<void> touch(const std::string& name) const;

  /// fsyncs the directory entry of the folder, and those of the parents that open() created, as far as the file
  /// system supports it.
  void sync_name() const;

  /// Whether `name` is that of a temporary file of replace().
  static bool is_temporary(const std::string& name);
  /// Whether nobody writes the temporary file any more: who writes one holds a lock on it until it is whole. Where
  /// the file system has no locks, whether nobody has for an hour.
  bool is_abandoned(const std::string& name) const;

 private:
  Folder(std::filesystem::path path, std::filesystem::path made_in, FileHandle handle)
      : path_(std::move(path)), made_in_(std::move(made_in)), handle_(std::move(handle)) {}
  const FileSystem& system() const noexcept { return handle_.system(); }

  std::filesystem::path path_;
  /// The folder in which the first was made that was not there; empty where all were.
  std::filesystem::path made_in_;
  FileHandle handle_;
};

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
