#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>

#include <kiln/cache.hpp>

#include "base/fork.hpp"
#include "base/mutex.hpp"
#include "cache/flights.hpp"
#include "cache/guarded_store.hpp"
#include "cache/under_way.hpp"
#include "cache/uploader.hpp"
#include "cache/worker_pool.hpp"
#include "cache/writer.hpp"
#include "memory/program_table.hpp"
#include "store/disk_store.hpp"
#include "store/sealed_entry.hpp"

namespace kiln {

/// The path of a request through the levels, and everything a cache owns on the way but the programs in memory. Its
/// mutexes and threads are those of the process that made it.
class Cache::Path {
 public:
  Path(std::shared_ptr<Backend> backend, CacheOptions options, const base::FileSystem& system,
       memory::ProgramTable& table);
  /// The same path in the child of a fork. Reads only immutable members of `parents`.
  explicit Path(const Path& parents);
  Path& operator=(const Path&) = delete;
  bool is_of_this_process() const noexcept { return base::fork_generation() == process_; }
  /// In the child of a fork, once it has a path of its own: closes what the child shares with its parent's path.
  void leave_to_parent() noexcept;
  /// Waits for what is under way, and saves. Nothing may be asked for afterwards.
  void finish();

  // get.cpp
  [[gnu::cold, gnu::noinline]] Result<Program> get_or_compile(const Request& request);
  Result<std::optional<Program>> get(const Request& request, bool may_compile);
  Result<Program> add(const Request& request, Compiled compiled, std::chrono::nanoseconds compile_time);

  // bulk.cpp
  using Callback = std::function<void(Result<Program>)>;
  void get_async(Request request, Callback done);
  std::future<Result<Program>> get_async(Request request);
  PreloadReport preload(std::span<const Request> requests, const ProgressCallback& progress);
  PreloadReport warm(const ProgressCallback& progress);

  // maintenance.cpp
  Result<std::size_t> clear();
  void flush();
  Result<void> persist();
  Result<PruneReport> prune(const PruneOptions& options);
  Stats stats();

  Backend& backend() const noexcept { return *backend_; }
  std::filesystem::path folder() const { return disk_ ? disk_->path() : std::filesystem::path(); }

 private:
  using Outcome = cache::Flights::Outcome;
  using KeyLock = store::DiskStore::KeyLock;
  using Unsaved = std::shared_ptr<const store::UnsavedEntry>;

  /// Counts of what takes more than a hit in memory; those are counted by the table.
  struct Counters {
    std::atomic<std::uint64_t> disk_hits{0}, shared_hits{0}, joined{0}, compiles{0}, failures{0}, absent{0};
    std::atomic<std::uint64_t> pressure{0}, saves{0}, save_failures{0}, replaced{0}, store_failures{0};
    std::atomic<std::int64_t> compile_ns{0}, compile_saved_ns{0};
  };

  struct Loaded {
    std::unique_ptr<Module> module;
    store::UnsavedEntry stored;
  };

  // get.cpp
  Outcome fly(const Request& request, bool may_compile);
  /// Whether an entry on disk that cannot be used is ignored, since it is looked at again under the key's lock, or
  /// reported, and removed by the holder of the lock.
  enum class Look { first, last };
  std::optional<Program> from_disk(const Key& key, const std::optional<KeyLock>& lock, Look look);
  std::optional<Program> from_shared(const Key& key, std::optional<KeyLock>& lock);
  Result<Program> compile(const Request& request, std::optional<KeyLock> lock);
  EntryAddress address_of(const Key& key) const { return {identity_digest_, key}; }
  store::EntryLabel label_of(const Key& key) const { return {key.digest, identity_digest_, target_digest_}; }
  /// Gets, checks and loads an entry. Nothing if the store has none; an error if it cannot be used.
  Result<std::optional<Loaded>> load(const cache::GuardedStore& store, const Key& key);
  /// Counts and logs an entry that cannot be used.
  void reject(const Key& key, const Error& problem);
  /// Removes an entry from disk that is damaged or refused by the driver.
  void remove_unusable(const Error& problem, const KeyLock& lock);
  Program admit(const Key& key, std::unique_ptr<Module> module, Origin origin,
                std::chrono::nanoseconds compile_time);
  Unsaved being_saved(const Digest& digest);
  void no_longer_saving(const Digest& digest, const Unsaved& entry);
  std::optional<KeyLock> lock_key(const Key& key);
  /// Whether an entry goes to the shared store as well.
  enum class Publish { yes, no };
  void save(const Key& key, Unsaved entry, std::optional<KeyLock> lock, Publish publish);
  std::shared_ptr<const std::vector<std::byte>> seal(const Key& key, const store::UnsavedEntry& entry) const;
  Result<void> store_now(const Key& key, const Unsaved& entry, std::span<const std::byte> sealed);
  /// An error if this thread is inside one of this cache's calls on a store.
  std::optional<Error> refusal_of_call() const;
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

  // maintenance.cpp
  /// The counters, without a look at the disk.
  Stats counted();
  /// Prunes the directory if it is over the bound; once a day it is checked in the background in any case.
  void keep_disk_bound(const std::filesystem::path& root);

  // bulk.cpp
  struct Asked {
    Request request;
    Callback done;
  };
  void answer_later(const std::shared_ptr<const Asked>& asked);
  void answer(const Asked& asked, Result<Program> program);
  /// What the callback throws is logged.
  void call(const Callback& done, Result<Program> program);
  Result<Program> warm_one(const Key& key);
  PreloadReport for_each(std::size_t count, const std::function<const std::string&(std::size_t)>& name,
                         const std::function<std::optional<Error>(std::size_t)>& work,
                         const ProgressCallback& progress);

  const std::uint64_t process_ = base::fork_generation();
  const std::shared_ptr<Backend> backend_;
  const Digest identity_digest_;
  const Digest target_digest_;
  // Its directory is absolute, so that a child finds the same.
  const CacheOptions options_;
  const base::FileSystem& system_;
  const std::shared_ptr<store::DiskStore> disk_;
  const std::optional<cache::GuardedStore> guarded_disk_;
  const std::optional<cache::GuardedStore> shared_;
  memory::ProgramTable& table_;
  Counters counters_;
  std::atomic<bool> warned_of_saving_{false};

  base::Mutex saving_mutex_;
  // What waits to be saved, so that a program evicted meanwhile is not compiled again.
  std::map<Digest, Unsaved> saving_ KILN_GUARDED_BY(saving_mutex_);

  base::Mutex flush_mutex_;
  Stats merged_ KILN_GUARDED_BY(flush_mutex_);
  bool session_counted_ KILN_GUARDED_BY(flush_mutex_) = false;

  // What the destructor waits for.
  cache::UnderWay under_way_;

  // Last, so that their threads end before anything they use. Workers use flights, and flights count workers; all
  // workers have ended when finish() returns.
  std::optional<cache::Uploader> uploader_;
  cache::Writer writer_;
  cache::WorkerPool workers_;
  cache::Flights flights_{workers_};
};

/// What a cache is: the programs in memory, which a forked child goes on using, and the path to all others, of
/// which each process has its own.
class Cache::State {
 public:
  State(std::shared_ptr<Backend> backend, CacheOptions options, const base::FileSystem& system);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  memory::ProgramTable& table() noexcept { return table_; }
  /// The path of this process: in the child of a fork, a new one from the first call on.
  Path& path() {
    Path* path = path_.load(std::memory_order_acquire);
    return path->is_of_this_process() ? *path : path_of_child(path);
  }
  /// Perhaps the parent's: only for what never changes.
  const Path& any_path() const noexcept { return *path_.load(std::memory_order_acquire); }

 private:
  [[gnu::cold]] Path& path_of_child(Path* parents);

  memory::ProgramTable table_;
  // Owned, unless it is the parent's, which is never destroyed: threads that the child does not have may hold its
  // mutexes.
  std::atomic<Path*> path_;
};

}  // namespace kiln
