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
#include "base/file_trust.hpp"

namespace kiln::base {

/// An open file descriptor; closed on destruction.
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
  /// Closes it now; returns whether close() succeeded. A network file system may report a lost write only here.
  bool close() noexcept;

 private:
  int descriptor_ = -1;
  const FileSystem* system_ = &FileSystem::system();
};

/// Writes all bytes; returns whether it succeeded, else errno says why.
bool write_all(const FileHandle& file, std::span<const std::byte> bytes);

/// The error of the last system call, from errno: "cannot WHAT PATH: REASON".
Error system_error(const std::string& what, const std::filesystem::path& path);

/// Creates or truncates a file that the user named, and writes `text` to it.
Result<void> write_file(const std::filesystem::path& path, std::string_view text);

/// Whether all compilers take the path as it is in their options, without quotes.
bool is_plain(const std::filesystem::path& path);

/// A temporary folder in $TMPDIR, removed with its contents on destruction. In /tmp if $TMPDIR is not plain. Its
/// path is absolute.
class ScratchFolder {
 public:
  /// How many characters at the end of path() are random.
  static constexpr std::ptrdiff_t random_characters = 6;

  static Result<ScratchFolder> create();

  ScratchFolder(ScratchFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ScratchFolder& operator=(ScratchFolder&&) = delete;
  ~ScratchFolder();

  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  explicit ScratchFolder(std::filesystem::path path) noexcept : path_(std::move(path)) {}

  std::filesystem::path path_;
};

/// The contents of a whole file.
struct FileContents {
  std::vector<std::byte> bytes;
  /// Modification time, in seconds since 1970.
  std::int64_t changed = 0;
};

/// An open folder that only this user or root can write to. Files are opened relative to its descriptor, so
/// replacing the folder at its path has no effect.
class Folder {
 public:
  /// Opens `path`; with `create`, first creates it (mode 0700) and its parents. Fails if it is not a folder,
  /// belongs to another user, or is writable by others.
  static Result<Folder> open(const std::filesystem::path& path, bool create,
                             const FileSystem& system = FileSystem::system());

  const std::filesystem::path& path() const noexcept { return path_; }
  int descriptor() const noexcept { return handle_.get(); }
  /// Whether the folder still exists in the file system; no file can be created in a removed folder.
  bool exists() const noexcept;

  /// Reads a regular file of at most `max_bytes` that belongs to this user or root; nothing if it does not exist.
  /// Symbolic links, FIFOs and files of other users are errors.
  Result<std::optional<FileContents>> read(const std::string& name, std::uint64_t max_bytes) const;
  /// Atomically replaces the file: writes a temporary file and renames it.
  Result<void> replace(const std::string& name, std::span<const std::byte> bytes,
                       Durability durability = Durability::none) const;
  /// Renames the file, in place of one with the new name. Returns whether it could: not if there is no such file.
  bool rename(const std::string& from, const std::string& to) const;
  /// Removes the file; returns whether it existed.
  Result<bool> remove(const std::string& name) const;
  /// Opens a file for locking; creates it if needed.
  Result<FileHandle> open_lock_file(const std::string& name) const;
  /// The names of all entries of the folder.
  Result<std::vector<std::string>> names() const;
  /// The file's status, without following symbolic links; nothing if there is no such file.
  std::optional<struct stat> status(const std::string& name) const;
  /// Sets the file's modification time to now.
  Result<void> touch(const std::string& name) const;

  /// fsyncs the directory entry of the folder, and those of the parents that open() created, as far as the file
  /// system supports it.
  void sync_name() const;

  /// Whether replace() makes temporary files with names like `name`.
  static bool is_temporary(const std::string& name);
  /// Whether the writer of a temporary file is gone: a writer holds a lock on the file until it is complete. If the
  /// file system has no locks, whether the file has not changed for an hour.
  bool is_abandoned(const std::string& name) const;
  /// Removes a temporary file if its writer is gone; returns whether it removed it.
  Result<bool> remove_abandoned(const std::string& name) const;

 private:
  Folder(std::filesystem::path path, std::filesystem::path made_in, FileHandle handle)
      : path_(std::move(path)), made_in_(std::move(made_in)), handle_(std::move(handle)) {}
  const FileSystem& system() const noexcept { return handle_.system(); }

  std::filesystem::path path_;
  /// The existing parent of the first folder that open() created; empty if it created none.
  std::filesystem::path made_in_;
  FileHandle handle_;
};

/// An advisory lock on one byte of a file. It excludes other processes and other open descriptions of the file in
/// this process. The kernel releases it when the process ends. Can be released on any thread.
class FileLock {
 public:
  /// Retries until `timeout`; nothing if the lock is still held then, or if the file system has no locks. The file
  /// must stay open as long as the lock.
  static std::optional<FileLock> acquire(const FileHandle& file, std::uint64_t byte,
                                         std::chrono::milliseconds timeout);

  /// Whether anyone holds the lock; nothing if the file system has no locks.
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
