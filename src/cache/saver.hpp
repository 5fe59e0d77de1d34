#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <kiln/identity.hpp>
#include <kiln/log.hpp>
#include <kiln/request.hpp>
#include <kiln/result.hpp>
#include <kiln/store.hpp>

#include "base/mutex.hpp"
#include "cache/guarded_store.hpp"
#include "memory/program_table.hpp"
#include "store/disk_store.hpp"
#include "store/sealed_entry.hpp"

namespace kiln::cache {

/// One thread that saves in the background, behind a bounded queue. Destruction does what is queued.
class Writer {
 public:
  explicit Writer(std::size_t bound) : bound_(bound) {}
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  /// Queues the job; where the queue is full or there is no thread, does it here and now instead.
  void write(std::function<void()> job) KILN_EXCLUDES(mutex_);
  /// Waits until everything queued before is done; on the writer's own thread, where a store may call it, for
  /// nothing.
  void flush() KILN_EXCLUDES(mutex_);

 private:
  /// Starts the thread unless it runs already; false where none can be had.
  bool start() KILN_REQUIRES(mutex_);
  void run() KILN_EXCLUDES(mutex_);

  const std::size_t bound_;
  base::Mutex mutex_;
  base::Condition changed_;
  std::deque<std::function<void()>> queue_ KILN_GUARDED_BY(mutex_);
  // Jobs ever queued and ever done.
  std::uint64_t queued_ KILN_GUARDED_BY(mutex_) = 0;
  std::uint64_t done_ KILN_GUARDED_BY(mutex_) = 0;
  bool stopping_ KILN_GUARDED_BY(mutex_) = false;
  std::thread thread_ KILN_GUARDED_BY(mutex_);
  std::thread::id runner_ KILN_GUARDED_BY(mutex_);
};

/// Puts entries into a shared store on a thread of its own, so that neither a compile, nor a save to disk, nor a
/// lock waits for a server. The thread is started by the first upload. If the store does not return from put() in
/// time, the thread is left behind: it keeps alive what it uses, and ends when the store returns.
class Uploader {
 public:
  /// Queues at most `bound` entries.
  Uploader(GuardedStore store, Log log, std::size_t bound);
  Uploader(const Uploader&) = delete;
  Uploader& operator=(const Uploader&) = delete;
  /// Drops what is still queued. Does not wait for the store: call wait() before.
  ~Uploader();

  /// Queues the entry. If the queue is full, or no thread can be had, the entry is dropped and counted as a
  /// failure.
  void upload(EntryAddress address, std::shared_ptr<const std::vector<std::byte>> sealed);
  /// Waits until everything queued was tried, at most until the limit. Whether it was.
  bool wait(std::chrono::milliseconds limit);
  /// Uploads that failed or were dropped.
  std::uint64_t failures() const noexcept;

 private:
  struct State;
  static void run(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;
  std::thread thread_;
};

/// Seals programs and keeps them, on disk and in the shared store, both in the background. A program that waits to
/// be saved can be read here, so that one evicted meanwhile is not compiled again.
class Saver {
 public:
  using Entry = std::shared_ptr<const store::UnsavedEntry>;
  using KeyLock = store::DiskStore::KeyLock;
  /// Whether an entry goes to the shared store as well.
  enum class Publish { yes, no };

  struct Options {
    /// Otherwise programs are kept for save_unsaved().
    bool save = true;
    /// How many programs may wait to be saved, and how many to be uploaded.
    std::size_t queue = 0;
    Log log;
  };

  /// `identity`, with its digest, and `table` must outlive this; `disk` and `shared` may be missing.
  Saver(const Identity& identity, const Digest& digest, std::shared_ptr<store::DiskStore> disk,
        const std::optional<GuardedStore>& shared, memory::ProgramTable& table, Options options);

  /// Saves the entry in the background, and holds the key's lock until it is on disk, where the next process looks.
  void save(const Key& key, Entry entry, std::optional<KeyLock> lock, Publish publish);
  /// The entry while it waits to be saved; null for all others.
  Entry waiting(const Digest& key) KILN_EXCLUDES(waiting_mutex_);
  /// Saves programs in memory that are not on disk, now. The first failure, if any.
  Result<void> save_unsaved();

  /// Runs other work on the thread that saves.
  void run_later(std::function<void()> work) { writer_.write(std::move(work)); }
  /// Waits until everything that was to be saved so far is on disk, as far as it can be.
  void flush() { writer_.flush(); }
  /// Waits for uploads, at most until the limit. Whether all were done.
  bool wait_for_uploads(std::chrono::milliseconds limit) { return !uploader_ || uploader_->wait(limit); }

  std::uint64_t saves() const noexcept { return saves_; }
  std::uint64_t failures() const noexcept { return failures_; }
  std::uint64_t upload_failures() const noexcept { return uploader_ ? uploader_->failures() : 0; }

 private:
  std::shared_ptr<const std::vector<std::byte>> seal(const Key& key, const store::UnsavedEntry& entry) const;
  Result<void> save_now(const Key& key, const Entry& entry, std::span<const std::byte> sealed);
  void stop_waiting(const Digest& key, const Entry& entry) KILN_EXCLUDES(waiting_mutex_);
  store::EntryLabel label_of(const Key& key) const { return {key.digest, digest_, identity_.target_digest()}; }

  const Identity& identity_;
  const Digest digest_;
  const std::shared_ptr<store::DiskStore> disk_;
  memory::ProgramTable& table_;
  const Options options_;
  std::atomic<std::uint64_t> saves_{0};
  std::atomic<std::uint64_t> failures_{0};
  std::atomic<bool> warned_{false};

  base::Mutex waiting_mutex_;
  std::map<Digest, Entry> waiting_ KILN_GUARDED_BY(waiting_mutex_);

  // Last, so that their threads end before anything they use.
  std::optional<Uploader> uploader_;
  Writer writer_;
};

}  // namespace kiln::cache
