#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include <unistd.h>

#include <kiln/cache.hpp>

#include "base/mutex.hpp"
#include "cache/flights.hpp"
#include "cache/under_way.hpp"
#include "cache/worker_pool.hpp"
#include "cache/writer.hpp"
#include "memory/program_table.hpp"
#include "store/disk_store.hpp"

namespace kiln {

/// The path of a request through the levels, and everything a cache owns on the way.
class Cache::Path {
 public:
  Path(std::shared_ptr<Backend> backend, CacheOptions options, const base::FileSystem& system);
  ~Path();
  bool is_of_this_process() const noexcept { return getpid() == process_; }

  // get.cpp
  [[gnu::cold, gnu::noinline]] Result<Program> get_or_compile(const Request& request);
  Result<std::optional<Program>> get(const Request& request, bool may_compile);
  Result<Program> add(const Request& request, Compiled compiled, std::chrono::nanoseconds compile_time);

  // bulk.cpp
  void get_async(Request request, std::function<void(Result<Program>)> done);
  PreloadReport preload(std::span<const Request> requests, const ProgressCallback& progress);
  PreloadReport warm(const ProgressCallback& progress);

  // maintenance.cpp
  Result<std::size_t> clear();
  void flush();
  Result<void> persist();
  Result<PruneReport> prune(const PruneOptions& options);
  Stats stats();

  memory::ProgramTable& table() noexcept { return table_; }
  Backend& backend() const noexcept { return *backend_; }
  std::filesystem::path folder() const { return disk_ ? disk_->path() : std::filesystem::path(); }

 private:
  using Outcome = cache::Flights::Outcome;
  using KeyLock = store::DiskStore::KeyLock;

  /// Counts of what takes more than a hit in memory; those are counted by the table.
  struct Counters {
    std::atomic<std::uint64_t> disk_hits{0}, shared_hits{0}, joined{0}, compiles{0}, failures{0}, absent{0};
    std::atomic<std::uint64_t> pressure{0}, saves{0}, save_failures{0}, replaced{0};
    std::atomic<std::int64_t> compile_ns{0}, compile_saved_ns{0};
  };

  struct Loaded {
    Program program;
    Entry entry;
  };

  /// How far a look at a store goes with an entry that is no good.
  enum class Look {
    quick,   ///< it is passed over in silence: there will be another look
    last,    ///< it is told of
    locked,  ///< it is told of and removed; only for those who hold the key's lock
  };

  // get.cpp
  Outcome fly(const Request& request, bool may_compile);
  std::optional<Program> from_disk(const Key& key, Look look);
  std::optional<Program> from_shared(const Key& key, std::optional<KeyLock>& lock);
  Result<Program> compile(const Request& request, std::optional<KeyLock> lock);
  std::optional<Loaded> load(Store& store, const Key& key, Origin origin, Look look);
  Program admit(const Key& key, std::unique_ptr<Module> module, Origin origin, const Entry& entry);
  std::shared_ptr<const Entry> being_saved(const Digest& digest);
  std::optional<KeyLock> lock_key(const Key& key);
  void save(const Key& key, std::shared_ptr<const Entry> entry, std::optional<KeyLock> lock, bool share);
  Result<void> store_now(const Key& key, const std::shared_ptr<const Entry>& entry);
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

  /// The counters, without a look at the disk.
  Stats counted();

  // bulk.cpp
  Result<Program> warm_one(const Key& key);
  PreloadReport for_each(std::size_t count, const std::function<const std::string&(std::size_t)>& name,
                         const std::function<std::optional<Error>(std::size_t)>& work,
                         const ProgressCallback& progress);

  const pid_t process_ = getpid();
  const std::shared_ptr<Backend> backend_;
  const CacheOptions options_;
  std::unique_ptr<store::DiskStore> disk_;
  memory::ProgramTable table_;
  cache::Flights flights_;
  Counters counters_;
  std::atomic<bool> warned_of_saving_{false};

  base::Mutex saving_mutex_;
  // What waits to be saved, so that a program evicted meanwhile is not compiled again.
  std::map<Digest, std::shared_ptr<const Entry>> saving_ KILN_GUARDED_BY(saving_mutex_);

  base::Mutex flush_mutex_;
  Stats merged_ KILN_GUARDED_BY(flush_mutex_);
  bool session_counted_ KILN_GUARDED_BY(flush_mutex_) = false;

  // What the destructor waits for.
  cache::UnderWay under_way_;

  // Last, so that their threads end before anything they use.
  cache::Writer writer_;
  cache::WorkerPool workers_;
};

}  // namespace kiln
