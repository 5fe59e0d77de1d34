#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

#include <kiln/cache.hpp>

#include "base/file_system.hpp"
#include "base/mutex.hpp"
#include "base/process.hpp"
#include "cache/flights.hpp"
#include "cache/guarded_store.hpp"
#include "cache/saver.hpp"
#include "cache/worker_pool.hpp"
#include "memory/program_table.hpp"
#include "store/disk_store.hpp"
#include "store/sealed_entry.hpp"

namespace kiln::cache {

/// Counts calls that are under way, so that nothing they use is taken from under them.
class UnderWay {
 public:
  class Call {
   public:
    explicit Call(UnderWay& under_way) : under_way_(under_way) {
      const base::MutexLock lock(under_way_.mutex_);
      ++under_way_.calls_;
    }
    ~Call() {
      // Told under the lock: once that is free, whoever waits may destroy all of this.
      const base::MutexLock lock(under_way_.mutex_);
      if (--under_way_.calls_ == 0) under_way_.ended_.notify_all();
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    UnderWay& under_way_;
  };

  void wait_for_all() KILN_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    while (calls_ > 0) ended_.wait(mutex_);
  }

 private:
  base::Mutex mutex_;
  base::Condition ended_;
  std::size_t calls_ KILN_GUARDED_BY(mutex_) = 0;
};

/// What a Cache does: answers requests from memory, disk, the shared store or the compiler, and keeps the answers.
/// Its mutexes and threads belong to the process that made it; a forked child makes another one for the same table.
class Levels {
 public:
  /// `table` must outlive it.
  Levels(std::shared_ptr<Backend> backend, CacheOptions options, memory::ProgramTable& table,
         const base::FileSystem& system = base::FileSystem::system());
  /// The same levels in the child of a fork. Reads only immutable members of `parents`.
  explicit Levels(const Levels& parents);
  Levels& operator=(const Levels&) = delete;
  bool is_of_this_process() const noexcept { return base::fork_generation() == process_; }
  /// In the child of a fork, once it has levels of its own: closes what the child shares with its parent.
  void leave_to_parent() noexcept;
  /// Waits for what is under way, and saves. Nothing may be asked for afterwards.
  void finish();

  // Cache's functions of the same names.
  Result<Program> get(const Request& request);
  Result<std::optional<Program>> find(const Request& request);
  Result<Program> add(const Request& request, Compiled compiled, std::chrono::nanoseconds compile_time);
  using Callback = std::function<void(Result<Program>)>;
  void get_async(Request request, Callback done);
  Future<Program> get_async(Request request);
  PreloadReport preload(std::span<const Request> requests, const ProgressCallback& progress);
  PreloadReport warm(const ProgressCallback& progress);
  Result<std::size_t> clear();
  void flush();
  Result<void> persist();
  Result<PruneReport> prune(const PruneOptions& options);
  Stats stats();

  Backend& backend() const noexcept { return *backend_; }
  std::filesystem::path folder() const { return disk_ ? disk_->path() : std::filesystem::path(); }

 private:
  using Outcome = Flights::Outcome;
  using KeyLock = store::DiskStore::KeyLock;

  /// Counts of everything but hits in memory, which the table counts.
  struct Counters {
    std::atomic<std::uint64_t> disk_hits{0}, shared_hits{0}, joined{0}, compiles{0}, failures{0}, absent{0};
    std::atomic<std::uint64_t> pressure{0}, replaced{0}, store_failures{0};
    std::atomic<std::int64_t> compile_ns{0}, compile_saved_ns{0};
  };
  struct Loaded {
    std::unique_ptr<Module> module;
    store::UnsavedEntry stored;
  };
  struct Asked {
    Request request;
    Callback done;
  };

  /// What to do about a program that no level has.
  enum class IfMissing { compile, return_nothing };
  /// The path of a request.
  Result<std::optional<Program>> find_or_compile(const Request& request, IfMissing if_missing);
  /// Whether an entry on disk that cannot be used is ignored, since it is looked at again under the key's lock, or
  /// reported, and removed by the holder of the lock.
  enum class Look { first, last };
  std::optional<Program> load_from_disk(const Key& key, const std::optional<KeyLock>& lock, Look look);
  std::optional<Program> load_from_shared_store(const Key& key, std::optional<KeyLock>& lock);
  Result<Program> compile(const Request& request, std::optional<KeyLock> lock);
  /// Nothing if the key cannot be locked in time or at all.
  std::optional<KeyLock> lock_key(const Key& key);
  /// Gets, checks and loads an entry. Nothing if the store has none; an error if it cannot be used.
  Result<std::optional<Loaded>> load(const GuardedStore& store, const Key& key);
  /// Counts and logs an entry that cannot be used.
  void reject(const Key& key, const Error& problem);
  /// Removes an entry from disk that is damaged or refused by the driver.
  void remove_unusable(const Error& problem, const KeyLock& lock);
  /// Puts a loaded program into memory.
  Program admit(const Key& key, std::unique_ptr<Module> module, Origin origin,
                std::chrono::nanoseconds compile_time);
  Result<Program> warm_one(const Key& key);
  /// An error if this thread is inside one of this cache's calls on a store.
  std::optional<Error> refusal_of_call() const;
  Error failure(Error error);

  void answer_later(const std::shared_ptr<const Asked>& asked);
  void answer(const Asked& asked, Result<Program> program);
  /// Exceptions out of the callback are logged.
  void call(const Callback& done, Result<Program> program);
  PreloadReport load_all(std::size_t count, const std::function<const std::string&(std::size_t)>& name,
                         const std::function<std::optional<Error>(std::size_t)>& load,
                         const ProgressCallback& progress);

  /// The counters, without a look at the disk.
  Stats counted();
  /// Prunes the directory if it is over the bound; once a day it is checked in the background in any case.
  void keep_disk_bound(const std::filesystem::path& root);

  /// Runs an operation of the device; while the device is out of memory, evicts unused programs one by one, least
  /// recently used first, and tries again.
  template <class Operation>
  auto with_room(Operation operation) -> decltype(operation()) {
    auto result = operation();
    while (!result && result.error().code() == ErrorCode::out_of_memory && table_.evict_one()) {
      ++counters_.pressure;
      result = operation();
    }
    return result;
  }

  const std::uint64_t process_ = base::fork_generation();
  const std::shared_ptr<Backend> backend_;
  const Digest identity_digest_;
  // Its directory is absolute, so that a child finds the same.
  const CacheOptions options_;
  const base::FileSystem& system_;
  const std::shared_ptr<store::DiskStore> disk_;
  const std::optional<GuardedStore> guarded_disk_;
  const std::optional<GuardedStore> shared_;
  memory::ProgramTable& table_;
  Counters counters_;

  base::Mutex flush_mutex_;
  Stats merged_ KILN_GUARDED_BY(flush_mutex_);
  bool session_counted_ KILN_GUARDED_BY(flush_mutex_) = false;

  // What finish() waits for.
  UnderWay under_way_;

  // Last, so that their threads end before anything they use.
  Saver saver_;
  WorkerPool workers_;
  Flights flights_{workers_};
};

}  // namespace kiln::cache
