#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <kiln/identity.hpp>
#include <kiln/log.hpp>
#include <kiln/store.hpp>

#include "base/file.hpp"
#include "base/file_lock.hpp"
#include "base/mutex.hpp"

namespace kiln::store {

/// The programs of one identity in one folder: `<name>-<digest>.bin` decides, `.meta` and manifest.json are for
/// people. Any number of stores, in this process and others, may share a folder. The folder is made at the
/// first put() or lock(), and made again when it was removed.
class DiskStore final : public Store {
  struct Private {};

 public:
  /// For open() alone.
  DiskStore(Private, const std::filesystem::path& root, const Identity& identity, Log log, Durability durability,
            const base::FileSystem& system);
  /// Fails where `root` cannot be a cache directory: a file, another user's, not to be read.
  static Result<std::unique_ptr<DiskStore>> open(const std::filesystem::path& root, const Identity& identity,
                                                 Log log, Durability durability = Durability::none,
                                                 const base::FileSystem& system = base::FileSystem::system());

  Result<std::optional<Entry>> get(const Key& key) override;
  Result<void> put(const Key& key, const Entry& entry) override;
  Result<void> remove(const Key& key) override;
  Result<void> touch(const Key& key) override;
  Result<std::vector<StoreItem>> list() override;

  /// The right to be the one process that compiles `key`; nothing where it could not be had in time or at all.
  class KeyLock;
  std::optional<KeyLock> lock(const Key& key, std::chrono::milliseconds timeout);

  /// Writes manifest.json anew from what the folder holds.
  Result<void> write_manifest();

  const std::filesystem::path& path() const noexcept { return path_; }
  const base::FileSystem& system() const noexcept { return system_; }

 private:
  /// The folder as it was last opened, with its lock file.
  struct Opened;

  /// Null where it never was; it may have been removed since.
  std::shared_ptr<const Opened> last_opened() const KILN_EXCLUDES(opened_mutex_);
  /// Null where the folder is not there.
  std::shared_ptr<const Opened> opened();
  Result<std::shared_ptr<const Opened>> opened_or_made();
  Result<std::shared_ptr<const Opened>> reopen(bool create);

  const Identity identity_;
  const Digest identity_digest_;
  const std::filesystem::path path_;
  const Log log_;
  const Durability durability_;
  const base::FileSystem& system_;
  mutable base::Mutex opened_mutex_;
  std::shared_ptr<const Opened> opened_ KILN_GUARDED_BY(opened_mutex_);
};

class DiskStore::KeyLock {
  friend class DiskStore;
  KeyLock(std::shared_ptr<const Opened> opened, base::FileLock lock)
      : opened_(std::move(opened)), lock_(std::move(lock)) {}

  std::shared_ptr<const Opened> opened_;
  base::FileLock lock_;
};

}  // namespace kiln::store
