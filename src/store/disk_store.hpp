#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <kiln/identity.hpp>
#include <kiln/log.hpp>
#include <kiln/store.hpp>

#include "base/file.hpp"
#include "base/mutex.hpp"
#include "store/bookkeeping.hpp"
#include "store/performance.hpp"

namespace kiln::store {

/// One line of the disk store's listing.
struct StoredItem {
  /// Its name is that of the file, which holds as much of the program's name as a file name can.
  Key key = {};
  std::uint64_t stored_bytes = 0;
  std::chrono::system_clock::time_point last_use = {};
};

/// The programs of one identity in one folder: `<name>-<digest>.bin` decides, the other files are for people,
/// counts and measurements. Any number of stores, in this process and others, may share a folder. The folder is
/// made at the first put() or lock(), and made again if it was removed.
class DiskStore final : public Store {
  struct Private {};

 public:
  /// For open() alone.
  DiskStore(Private, const std::filesystem::path& root, const Identity& identity, Log log, Durability durability,
            const base::FileSystem& system);
  /// Fails if `root` cannot be a cache directory: a file, another user's, unreadable.
  static Result<std::unique_ptr<DiskStore>> open(const std::filesystem::path& root, const Identity& identity,
                                                 Log log, Durability durability = Durability::none,
                                                 const base::FileSystem& system = base::FileSystem::system());

  /// Nothing for addresses of another identity.
  Result<std::optional<std::vector<std::byte>>> get(const EntryAddress& address) override;
  Result<void> put(const EntryAddress& address, std::span<const std::byte> sealed) override;
  /// put(), with the text of the .meta file beside it.
  Result<void> put(const EntryAddress& address, std::span<const std::byte> sealed, std::string_view meta);
  /// Removes the entry. Removing an absent entry is no error.
  Result<void> remove(const Key& key);
  /// Notes that the entry was used now, at most once an hour.
  Result<void> touch(const Key& key);
  /// All entries. Takes time in proportion to their number.
  Result<std::vector<StoredItem>> list();

  /// The right to be the one process that compiles `key`, and the one that may remove its entry because it is
  /// damaged or refused. Nothing if it could not be had in time or at all.
  class KeyLock;
  std::optional<KeyLock> lock(const Key& key, std::chrono::milliseconds timeout);

  /// How many programs the folder holds. Lists the folder only if it has no counts yet.
  Usage usage();
  /// The performance last noted for a program, by this process or another; zeros if none was.
  Performance performance(const Digest& key);
  /// Notes a measured performance. save_notes() writes it; so does this, if there are as many as the file holds.
  void note_performance(const Digest& key, const Performance& performance);
  /// Writes what is kept beside the entries: noted performance, changed counts, a missing manifest. Its cost does
  /// not grow with the number of entries.
  Result<void> save_notes();

  /// In the child of a fork: closes the lock file, so that the parent's locks end with the parent. Nothing may be
  /// called afterwards.
  void leave_to_parent() noexcept;

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

  Result<void> write(const Key& key, std::span<const std::byte> sealed, std::optional<std::string_view> meta);
  /// Adds a change to those that usage.json does not have yet, and writes them if there are many.
  void count(const base::Folder& folder, const UsageChange& change) KILN_EXCLUDES(notes_mutex_, save_mutex_);
  UsageChange uncounted() const KILN_EXCLUDES(notes_mutex_);
  /// Takes a change that usage.json has now from those it does not have.
  void now_counted(const UsageChange& change) KILN_EXCLUDES(notes_mutex_);
  Result<void> save_performance(const base::Folder& folder) KILN_REQUIRES(save_mutex_) KILN_EXCLUDES(notes_mutex_);
  Result<void> save_counts(const base::Folder& folder, std::chrono::milliseconds timeout) KILN_REQUIRES(save_mutex_)
      KILN_EXCLUDES(notes_mutex_);

  const Identity identity_;
  const Digest identity_digest_;
  const std::filesystem::path path_;
  const Log log_;
  const Durability durability_;
  const base::FileSystem& system_;
  mutable base::Mutex opened_mutex_;
  std::shared_ptr<const Opened> opened_ KILN_GUARDED_BY(opened_mutex_);
  // The lock file of opened_, or of the one about to replace it. Atomic: a forked child may inherit the mutex
  // locked.
  std::atomic<int> lock_descriptor_{-1};

  // Held while counts or performance are written, which may wait for other processes. Taken before notes_mutex_.
  base::Mutex save_mutex_;
  // The counts of a folder without usage.json that cannot be written to.
  std::optional<Usage> counted_ KILN_GUARDED_BY(save_mutex_);

  // Every load from disk takes it, so nobody waits for another process under it.
  mutable base::Mutex notes_mutex_;
  // performance.txt as it was last read; read when it is first asked for.
  std::optional<PerformanceFile> measured_ KILN_GUARDED_BY(notes_mutex_);
  // Noted since, and not written yet.
  std::map<Digest, Performance> noted_ KILN_GUARDED_BY(notes_mutex_);
  UsageChange uncounted_ KILN_GUARDED_BY(notes_mutex_);
  std::size_t uncounted_puts_ KILN_GUARDED_BY(notes_mutex_) = 0;
};

/// Releases the lock on destruction.
class DiskStore::KeyLock {
 public:
  /// Removes the entry that the lock is for.
  Result<void> remove_entry() const { return store_->remove(key_); }

 private:
  friend class DiskStore;
  KeyLock(DiskStore& store, Key key, std::shared_ptr<const Opened> opened, base::FileLock lock)
      : store_(&store), key_(std::move(key)), opened_(std::move(opened)), lock_(std::move(lock)) {}

  DiskStore* store_;
  Key key_;
  std::shared_ptr<const Opened> opened_;
  base::FileLock lock_;
};

}  // namespace kiln::store
