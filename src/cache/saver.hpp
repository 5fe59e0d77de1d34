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
#include "cache/shared_stores.hpp"
#include "memory/program_table.hpp"
#include "store/disk_store.hpp"
#include "store/sealed_entry.hpp"

namespace kiln::cache {

/// A thread that runs jobs in the background, with a bounded queue. The destructor runs all queued jobs. Exceptions
/// of a job are dropped.
class Writer {
 public:
  explicit Writer(std::size_t bound) : bound_(bound) {}
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  /// Queues the job. If the queue is full or no thread can be started, runs it on the calling thread.
  void write(std::function<void()> job) KILN_EXCLUDES(mutex_);
  /// Queues the job; false, without running it, if the queue is full or no thread can be started.
  bool try_write(std::function<void()> job) KILN_EXCLUDES(mutex_) { return queue(job); }
  /// Waits until all jobs queued before are done. Returns at once on the writer's thread, because a store may call
  /// this.
  void flush() KILN_EXCLUDES(mutex_);

 private:
  /// Takes the job only if it is queued.
  bool queue(std::function<void()>& job) KILN_EXCLUDES(mutex_);
  /// Starts the thread if it is not running; false if no thread can be started.
  bool start() KILN_REQUIRES(mutex_);
  void run() KILN_EXCLUDES(mutex_);

  const std::size_t bound_;
  base::Mutex mutex_;
  base::Condition changed_;
  std::deque<std::function<void()>> queue_ KILN_GUARDED_BY(mutex_);
  // Jobs queued and jobs done since construction.
  std::uint64_t queued_ KILN_GUARDED_BY(mutex_) = 0;
  std::uint64_t done_ KILN_GUARDED_BY(mutex_) = 0;
  bool stopping_ KILN_GUARDED_BY(mutex_) = false;
  std::thread thread_ KILN_GUARDED_BY(mutex_);
  std::thread::id runner_ KILN_GUARDED_BY(mutex_);
};

/// Seals programs, saves them to disk and hands them to the shared stores, in the background. waiting() returns
/// entries that are not on disk yet, so that a program evicted before its save need not be compiled again.
class Saver {
 public:
  using Entry = std::shared_ptr<const store::UnsavedEntry>;
  using KeyLock = store::DiskStore::KeyLock;
  struct Options {
    /// If false, the table keeps programs until save_unsaved().
    bool save = true;
    /// The maximum number of programs that wait to be saved.
    std::size_t queue = 0;
    Log log;
  };

  /// `identity`, `shared` and `table` must outlive this. `digest` is the identity's. `disk` may be empty.
  Saver(const Identity& identity, const Digest& digest, std::shared_ptr<store::DiskStore> disk,
        SharedStores& shared, memory::ProgramTable& table, Options options);

  /// Saves the entry in the background, and then uploads it to the shared stores before the place `upload_before`.
  /// Holds the key's lock until the entry is on disk, so that other processes find it there, and the lease until it
  /// is uploaded.
  void save(const Key& key, Entry entry, std::optional<KeyLock> lock, std::size_t upload_before,
            std::shared_ptr<HeldLease> lease = {});
  /// The entry of a key that waits to be saved; null if none does.
  Entry waiting(const Digest& key) KILN_EXCLUDES(waiting_mutex_);
  /// Saves all programs in memory that are not on disk, on the calling thread. Returns the first error.
  Result<void> save_unsaved();

  /// Runs other work on the writer thread.
  void run_later(std::function<void()> work) { writer_.write(std::move(work)); }
  /// Waits until all earlier saves have finished or failed.
  void flush() { writer_.flush(); }

  std::uint64_t saves() const noexcept { return saves_; }
  std::uint64_t failures() const noexcept { return failures_; }

 private:
  SharedStores::Sealed seal(const Key& key, const store::UnsavedEntry& entry) const;
  /// The form in which the entry is uploaded.
  SharedStores::Sealed shared_form(const Key& key, const store::UnsavedEntry& entry,
                                   const SharedStores::Sealed& sealed) const;
  Result<void> save_now(const Key& key, const Entry& entry, std::span<const std::byte> sealed);
  void stop_waiting(const Digest& key, const Entry& entry) KILN_EXCLUDES(waiting_mutex_);
  store::EntryLabel label_of(const Key& key) const { return {key.digest, digest_, identity_.target_digest()}; }

  const Identity& identity_;
  const Digest digest_;
  const std::shared_ptr<store::DiskStore> disk_;
  SharedStores& shared_;
  memory::ProgramTable& table_;
  const Options options_;
  std::atomic<std::uint64_t> saves_{0};
  std::atomic<std::uint64_t> failures_{0};
  std::atomic<bool> warned_{false};

  base::Mutex waiting_mutex_;
  std::map<Digest, Entry> waiting_ KILN_GUARDED_BY(waiting_mutex_);

  // Declared last: its thread must end before the members it uses are destroyed.
  Writer writer_;
};

}  // namespace kiln::cache
