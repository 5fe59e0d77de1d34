#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <kiln/backend.hpp>
#include <kiln/durability.hpp>
#include <kiln/log.hpp>
#include <kiln/program.hpp>
#include <kiln/prune.hpp>
#include <kiln/request.hpp>
#include <kiln/result.hpp>
#include <kiln/stats.hpp>
#include <kiln/store.hpp>

namespace kiln {

/// How a cache behaves. The defaults suit most programs.
struct CacheOptions {
  /// Where binaries are kept. Empty: default_directory().
  std::filesystem::path directory = {};
  /// Whether there is a disk level at all.
  bool disk = true;
  /// Whether programs are saved as they are compiled; otherwise persist() saves them.
  bool save = true;
  /// Bounds on what is kept in memory. Programs in use are kept beyond them.
  std::size_t max_programs = 1024;
  std::size_t max_bytes = std::size_t{1} << 30;
  /// The bound on the whole directory, all devices together; kept at flush() and on destruction.
  std::uint64_t max_disk_bytes = std::uint64_t{4} << 30;
  /// What a loss of power may do to what was saved.
  Durability durability = Durability::none;
  /// How long to wait for another process that is compiling the same program before compiling it too.
  std::chrono::milliseconds lock_timeout = std::chrono::seconds(30);
  /// Programs waiting to be saved; when that many wait, the thread that compiled the next one saves it.
  std::size_t write_queue = 64;
  /// Threads for get_async() and preload(); 0: one for each processor, at most 8. The caller of preload() counts as
  /// one, threads in a callback do not. Started when first needed.
  unsigned threads = 0;
  /// The level between the disk and the compiler, such as a store shared between machines.
  std::shared_ptr<Store> shared = {};
  /// How long flush() and the destructor wait for uploads to `shared`. The destructor drops uploads that are not
  /// done by then. An upload is also dropped if `write_queue` others already wait; at least one may wait.
  std::chrono::milliseconds upload_limit = std::chrono::seconds(5);
  Log log = {};
};

/// Where a cache is kept by default: `$KILN_CACHE_DIR`, else `$XDG_CACHE_HOME/kiln`, else `~/.cache/kiln`;
/// empty if none of these is set. An empty variable counts as unset.
std::filesystem::path default_directory();

/// What preload() and warm() tell after each program: how many are done, of how many, and which one it was.
struct Progress {
  std::size_t done = 0;
  std::size_t total = 0;
  const std::string& name;
  /// The error if this program failed, else null.
  const Error* error = nullptr;
};
using ProgressCallback = std::function<void(const Progress&)>;

/// What became of the programs of a preload().
struct PreloadReport {
  std::size_t ready = 0;
  std::vector<Error> errors = {};
};

/// Programs compiled once and kept: in memory, on disk, and in a store shared between machines if there is one.
///
/// All functions may be called from any number of threads at once, and any number of caches, in this process or in
/// others, may use one directory. A key is compiled once, however many threads and processes request it. A hit in
/// memory takes no lock. The destructor waits for gets that are loading or compiling, for preload() and warm(),
/// which complete normally, and until pending programs are saved. Program handles outlive the cache. No get() may
/// start once destruction has begun. Do not destroy the cache from its own callback or backend.
///
/// After fork(), parent and child may both go on using the cache if the backend, the shared store and a custom log
/// sink work in a forked child. The child keeps the programs in memory and counts from 0. Gets in flight on other
/// threads, their callbacks and pending saves stay with the parent. In the child, the destructor waits for the
/// child's own work and saves it, but destroys no module that was loaded before the fork. A child that is forked
/// inside a callback, a store or a backend must not return from it.
class Cache {
 public:
  /// A cache for `backend`. Never fails: a directory that cannot be used is logged, and programs are then
  /// kept in memory only.
  explicit Cache(std::shared_ptr<Backend> backend, CacheOptions options = {});
  ~Cache();
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  /// The program: from memory, else from disk, else from the shared store, else compiled and kept. An error is
  /// given to everyone who waited for it, and is not kept: the next get() tries again.
  Result<Program> get(const Request& request);
  /// Like get(), but on a thread of the cache if the program is not in memory.
  std::future<Result<Program>> get_async(Request request);
  /// Like get(), but returns at once: `done` is called with the result, on this thread if the program is in memory,
  /// otherwise later on a thread of the cache. `done` may request other programs from this cache and wait for them;
  /// another thread does the cache's work meanwhile. Exceptions from `done` are logged and dropped.
  void get_async(Request request, std::function<void(Result<Program>)> done);
  /// The program if any level has it; never compiles.
  Result<std::optional<Program>> find(const Request& request);
  /// Adds a program that was compiled elsewhere, and saves its binary. If the key is there already, that one
  /// is returned and `compiled` is dropped.
  Result<Program> add(const Request& request, Compiled compiled, std::chrono::nanoseconds compile_time = {});

  /// Gets all requests in parallel and keeps the programs in memory as far as the bounds allow. `progress` is
  /// called from one thread at a time, not always the caller's; it may request programs from this cache and wait
  /// for them. If it throws, preload() rethrows the exception after all requests were tried.
  PreloadReport preload(std::span<const Request> requests, const ProgressCallback& progress = {});
  /// Loads every program of this device's folder into memory, last used first, up to the bounds. Entries that are
  /// damaged, or that the driver refuses, are removed. Programs loaded this way count as no request, hit or time
  /// saved.
  PreloadReport warm(const ProgressCallback& progress = {});

  /// Drops the program from memory unless it is in use. Returns whether it was dropped.
  bool evict(const Request& request);
  /// Evicts unused programs, least recently used first, until at most `keep` are left. Returns how many it evicted.
  std::size_t trim(std::size_t keep = 0);
  /// Drops every unused program from memory, and this device's programs from disk. Returns how many entries were
  /// removed from disk. If some cannot be removed, the others still are, and the error says how many are left and
  /// why.
  Result<std::size_t> clear();

  /// Waits until everything compiled so far is on disk, if it can be saved, and at most CacheOptions::upload_limit
  /// for uploads. Saves noted performance, enforces the disk bound and adds to the lifetime statistics. Once a day,
  /// one process also checks in the background what the whole directory holds. Apart from that check and from
  /// pruning to the bound, the cost does not depend on how many programs are stored.
  void flush();
  /// Saves all programs that are not saved yet, then calls flush(). Returns the first error, if any.
  Result<void> persist();
  /// Removes stored programs of all devices by age and by size.
  Result<PruneReport> prune(const PruneOptions& options);

  Stats stats() const;
  /// The programs in memory, least recently used first.
  std::vector<ProgramInfo> programs() const;
  /// This device's folder; empty if nothing is kept on disk.
  std::filesystem::path folder() const;
  Backend& backend() const noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln
