#pragma once

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/file_system.hpp"
#include "fakes/files.hpp"

namespace kiln::fakes {

/// The real file system, which also tracks the state that a power loss would leave: for a file, the synced bytes;
/// for a folder, the name changes before its last sync. A prefix of the later name changes may survive, too.
class PowerLoss final : public base::FileSystem {
 public:
  /// The fate of bytes that were not synced.
  enum class Unsynced { gone, half, zeros };

  explicit PowerLoss(std::filesystem::path root) : root_(std::move(root)) {}

  int make_folder(int folder, const char* name, mode_t mode) const override {
    const std::lock_guard lock(mutex_);
    const int result = FileSystem::make_folder(folder, name, mode);
    const std::filesystem::path path = folder == AT_FDCWD ? std::filesystem::path(name) : paths_[folder] / name;
    if (result == 0) changes_.push_back({Change::Kind::made_folder, path});
    return result;
  }
  int open(int folder, const char* name, int flags, mode_t mode) const override {
    const std::lock_guard lock(mutex_);
    const std::filesystem::path path = folder == AT_FDCWD ? std::filesystem::path(name) : paths_[folder] / name;
    struct stat before {};
    const bool is_new = (flags & O_CREAT) != 0 && ::lstat(path.c_str(), &before) != 0;
    const int file = FileSystem::open(folder, name, flags, mode);
    if (file < 0) return file;
    paths_[file] = path;
    if (is_new) changes_.push_back({Change::Kind::made_file, path, {}, inode(file)});
    return file;
  }
  ssize_t write(int file, const void* bytes, std::size_t count) const override {
    const std::lock_guard lock(mutex_);
    const ssize_t written = FileSystem::write(file, bytes, count);
    if (written > 0)
      files_[inode(file)].now.append(static_cast<const char*>(bytes), static_cast<std::size_t>(written));
    return written;
  }
  int sync(int file) const override {
    const std::lock_guard lock(mutex_);
    struct stat status {};
    if (::fstat(file, &status) != 0) return -1;
    if (S_ISDIR(status.st_mode)) {
      for (Change& change : changes_)
        if (change.path.parent_path() == paths_[file]) change.synced = true;
    } else {
      File& known = files_[status.st_ino];
      known.synced = known.now;
    }
    return 0;
  }
  int rename(int folder, const char* from, const char* to) const override {
    const std::lock_guard lock(mutex_);
    const int result = FileSystem::rename(folder, from, to);
    if (result == 0) changes_.push_back({Change::Kind::renamed, paths_[folder] / to, paths_[folder] / from});
    return result;
  }
  int unlink(int folder, const char* name) const override {
    const std::lock_guard lock(mutex_);
    const int result = FileSystem::unlink(folder, name);
    if (result == 0) changes_.push_back({Change::Kind::removed, paths_[folder] / name});
    return result;
  }

  /// The number of name changes that may be lost.
  std::size_t unsynced_changes() const {
    return static_cast<std::size_t>(
        std::count_if(changes_.begin(), changes_.end(), [](const Change& change) { return !change.synced; }));
  }

  /// Creates at `where` the state after a power loss, with the first `kept` unsynced name changes.
  void lose_power(const std::filesystem::path& where, std::size_t kept, Unsynced unsynced) const {
    std::map<std::filesystem::path, ino_t> names;
    std::vector<std::filesystem::path> folders;
    for (const Change& change : changes_) {
      if (!change.synced && kept == 0) continue;
      if (!change.synced) --kept;
      switch (change.kind) {
        case Change::Kind::made_folder: folders.push_back(change.path); break;
        case Change::Kind::made_file: names[change.path] = change.inode; break;
        case Change::Kind::removed: names.erase(change.path); break;
        case Change::Kind::renamed:
          if (const auto found = names.find(change.from); found != names.end()) {
            names[change.path] = found->second;
            names.erase(found);
          }
          break;
      }
    }
    const auto there = [&](const std::filesystem::path& path) { return where / path.lexically_relative(root_); };
    const auto is_left = [&](const std::filesystem::path& path) {
      return path == root_ || std::find(folders.begin(), folders.end(), path) != folders.end();
    };
    std::filesystem::create_directories(where);
    std::filesystem::permissions(where, std::filesystem::perms::owner_all);
    for (const auto& folder : folders)
      if (is_left(folder.parent_path())) {
        std::filesystem::create_directories(there(folder));
        std::filesystem::permissions(there(folder), std::filesystem::perms::owner_all);
      }
    for (const auto& [path, inode] : names) {
      if (!std::filesystem::exists(there(path.parent_path()))) continue;
      const auto file = files_.find(inode);
      if (file == files_.end()) continue;
      std::string bytes = file->second.synced;
      const std::string rest = file->second.now.substr(bytes.size());
      if (unsynced == Unsynced::half) bytes += rest.substr(0, rest.size() / 2);
      if (unsynced == Unsynced::zeros) bytes += std::string(rest.size(), '\0');
      write_file(there(path), bytes);
    }
  }

 private:
  struct Change {
    enum class Kind { made_folder, made_file, renamed, removed };
    Kind kind;
    std::filesystem::path path;
    std::filesystem::path from = {};
    ino_t inode = 0;
    bool synced = false;
  };
  struct File {
    std::string now;
    std::string synced;
  };

  static ino_t inode(int file) {
    struct stat status {};
    if (::fstat(file, &status) != 0) std::abort();
    return status.st_ino;
  }

  const std::filesystem::path root_;
  mutable std::mutex mutex_;
  mutable std::map<int, std::filesystem::path> paths_;
  mutable std::map<ino_t, File> files_;
  mutable std::vector<Change> changes_;
};

}  // namespace kiln::fakes
