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

/// An entry of a DiskStore.
struct StoredItem {
  /// Its name comes from the file name, which may hold only part of the program's name.
  Key key = {};
  std::uint64_t stored_bytes = 0;
  std::chrono::system_clock::time_point last_use = {};
};

/// The programs of one identity, in one folder. Only the `<name>-<digest>.bin` files matter for lookups; the others
/// hold descriptions, counts and measurements. An entry that was put without a name, because it has no facts, gets
/// the name of the first request for it. Any number of stores, in this process and others, may share a folder. The
/// first put() or lock() creates the folder, also again after a removal. Safe from any thread.
class DiskStore final : public Store {
  struct Private {};

 public:
  /// Only for open().
  DiskStore(Private, const std::filesystem::path& root, const Identity& identity, Log log, Durability durability,
            const base::FileSystem& system);
  /// Fails if `root` cannot be a cache directory: a regular file, owned by another user, unreadable.
  static Result<std::unique_ptr<DiskStore>> open(const std::filesystem::path& root, const Identity& identity,
                                                 Log log, Durability durability = Durability::none,
                                                 const base::FileSystem& system = base::FileSystem::system());

  /// Nothing if the address has another identity.
  Result<std::optional<std::vector<std::byte>>> get(const EntryAddress& address) override;
  Result<void> put(const EntryAddress& address, std::span<const std::byte> sealed) override;
  /// put(), and writes `meta` to the .meta file.
  Result<void> put(const EntryAddress& address, std::span<const std::byte> sealed, std::string_view meta);
  /// Removes the entry. Removing an absent entry is no error.
  Result<void> remove(const Key& key);
  /// Records that the entry is used now; writes at most once an hour.
  Result<void> touch(const Key& key);
  /// Lists all entries. Takes time in proportion to their number.
  Result<std::vector<StoredItem>> list();

  /// A lock between processes: its holder compiles `key`, and may remove its entry if that is damaged or refused by
  /// the driver. Nothing if the lock is not free by the timeout, or if locks are not available.
  ///
  /// A holder of the first lock may be stopped, or take very long. The second lock is for one of those who do not
  /// wait for it any longer, so that not all of them compile the key.
  class KeyLock;
  enum class Turn { first, second };
  std::optional<KeyLock> lock(const Key& key, std::chrono::milliseconds timeout, Turn turn = Turn::first);
  /// Whether somebody has the first lock of this key.
  bool is_locked(const Key& key);
  /// Whether locks are available: not in a folder that this process may not write to, or on some file systems.
  bool has_locks();

  /// The number and size of the folder's programs. Lists the folder only if it has no usage.json.
  Usage usage();
  /// The performance last noted for a program, by any process; zeros if there is none.
  Performance performance(const Digest& key);
  /// Notes a measured performance. save_notes() writes it; this function writes only when the number of notes
  /// reaches the capacity of the file.
  void note_performance(const Digest& key, const Performance& performance);
  /// Writes pending performance notes and usage changes, and the manifest if it is missing or outdated. The cost
  /// does not depend on the number of entries.
  Result<void> save_notes();

  /// In a forked child: closes the lock file, so that the parent's locks end with the parent. Do not use the store
  /// afterwards.
  void leave_to_parent() noexcept;

  const std::filesystem::path& path() const noexcept { return path_; }
  const base::FileSystem& system() const noexcept { return system_; }

 private:
  /// An open folder and its lock file.
  struct Opened;

  /// Null if the folder was never opened. The folder may have been removed since.
  std::shared_ptr<const Opened> last_opened() const KILN_EXCLUDES(opened_mutex_);
  /// Null if the folder does not exist.
  std::shared_ptr<const Opened> opened();
  Result<std::shared_ptr<const Opened>> opened_or_made();
  Result<std::shared_ptr<const Opened>> reopen(bool create);

  Result<void> write(const Key& key, std::span<const std::byte> sealed, std::optional<std::string_view> meta);
  /// Adds a change that is not in usage.json yet. Writes pending changes after every puts_before_counting calls.
  void count(const base::Folder& folder, const UsageChange& change) KILN_EXCLUDES(notes_mutex_, save_mutex_);
  UsageChange uncounted() const KILN_EXCLUDES(notes_mutex_);
  /// Subtracts a change that usage.json now includes from the pending changes.
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
  // The lock file of opened_, or of its imminent replacement. Atomic, because a forked child may inherit the mutex
  // locked.
  std::atomic<int> lock_descriptor_{-1};

  // Held while writing counts or performance, which may wait for other processes. Locked before notes_mutex_.
  base::Mutex save_mutex_;
  // The counts of a folder that has no usage.json and is not writable.
  std::optional<Usage> counted_ KILN_GUARDED_BY(save_mutex_);

  // Every load from disk takes it, so its holder never waits for another process.
  mutable base::Mutex notes_mutex_;
  // performance.txt as last read; read on first use.
  std::optional<PerformanceFile> measured_ KILN_GUARDED_BY(notes_mutex_);
  // Notes that are not in performance.txt yet.
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
