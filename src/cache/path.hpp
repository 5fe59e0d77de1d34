#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include <kiln/cache.hpp>

#include "base/mutex.hpp"
#include "cache/flights.hpp"
#include "cache/worker_pool.hpp"
#include "cache/writer.hpp"
#include "memory/program_table.hpp"
#include "store/disk_store.hpp"

namespace kiln {

/// The path of a request through the levels, and everything a cache owns on the way.
class Cache::Path {
 public:
  Path(std::shared_ptr<Backend> backend, CacheOptions options);
  ~Path();

  Program find_in_memory(const Digest& digest) noexcept { return table_.find(digest); }

  // get.cpp
  [[gnu::cold, gnu::noinline]] Result<Program> get_or_compile(const Request& request);
  Result<std::optional<Program>> get(const Request& request, bool may_compile);
  Result<Program> add(const Request& request, Compiled compiled, std::chrono::nanoseconds compile_time);

  // bulk.cpp
  std::future<Result<Program>> get_async(Request request);
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

  // get.cpp
  Outcome fly(const Request& request, bool may_compile);
  std::optional<Program> from_disk(const Key& key, bool last_look);
  std::optional<Program> from_shared(const Key& key, std::optional<KeyLock>& lock);
  Result<Program> compile(const Request& request, std::optional<KeyLock> lock);
  std::optional<Loaded> load(Store& store, const Key& key, Origin origin, bool last_look);
  std::optional<KeyLock> lock_key(const Key& key);
  void save(const Key& key, std::shared_ptr<const Entry> entry, std::optional<KeyLock> lock, bool share);
  Result<void> store_now(const Key& key, const std::shared_ptr<const Entry>& entry);
  template <class Operation>
  auto with_room(Operation operation) -> decltype(operation());

  /// The counters, without a look at the disk.
  Stats counted();

  // bulk.cpp
  PreloadReport for_each(std::size_t count, const std::function<const std::string&(std::size_t)>& name,
                         const std::function<std::optional<Error>(std::size_t)>& work,
                         const ProgressCallback& progress);

  const std::shared_ptr<Backend> backend_;
  const CacheOptions options_;
  std::unique_ptr<store::DiskStore> disk_;
  memory::ProgramTable table_;
  cache::Flights flights_;
  Counters counters_;
  std::atomic<bool> warned_of_saving_{false};

  base::Mutex flush_mutex_;
  Stats merged_ KILN_GUARDED_BY(flush_mutex_);
  bool session_counted_ KILN_GUARDED_BY(flush_mutex_) = false;

  // Last, so that their threads end before anything they use.
  cache::Writer writer_;
  cache::WorkerPool workers_;
};

}  // namespace kiln
