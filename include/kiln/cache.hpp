#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <kiln/backend.hpp>
#include <kiln/bundle.hpp>
#include <kiln/durability.hpp>
#include <kiln/future.hpp>
#include <kiln/log.hpp>
#include <kiln/program.hpp>
#include <kiln/prune.hpp>
#include <kiln/request.hpp>
#include <kiln/result.hpp>
#include <kiln/stats.hpp>
#include <kiln/store.hpp>

namespace kiln {

/// Options of a cache. The defaults suit most applications.
struct CacheOptions {
  /// Where binaries are kept. Empty: default_directory(). A relative path is resolved when the cache is
  /// constructed.
  std::filesystem::path directory = {};
  /// Whether programs are kept on disk at all.
  bool disk = true;
  /// Whether programs are saved and uploaded as they are compiled. If not, persist() saves them, nothing is
  /// uploaded, and no process waits for another that compiles the same program.
  bool save = true;
  /// Bounds on the programs in memory: their number, and the sum of Module::bytes(). Unused programs are evicted,
  /// least recently used first; programs in use are kept beyond the bounds.
  std::size_t max_programs = 1024;
  std::size_t max_bytes = std::size_t{1} << 30;
  /// Bound on the bytes in the whole directory, all devices together. Enforced by flush() and the destructor.
  std::uint64_t max_disk_bytes = std::uint64_t{4} << 30;
  /// What a power failure may do to saved programs.
  Durability durability = Durability::none;
  /// How long to wait for another process, or another cache of this one, that is compiling the same program. After
  /// that, one of those that wait compiles it too, and the others wait for that one, for as long again.
  std::chrono::milliseconds lock_timeout = std::chrono::seconds(30);
  /// How many programs may wait to be saved. If that many wait, the thread that compiled the next one saves it.
  std::size_t write_queue = 64;
  /// Threads for get_async(), preload() and warm(). 0: one for each processor, at most 16; preload() and warm()
  /// then use no more than Backend::useful_threads(). The caller of preload() or warm() counts as one, threads in a
  /// callback do not. Started when first needed.
  unsigned threads = 0;
  /// Files with programs that were compiled ahead of time, in the order in which they are searched, after the disk
  /// and before the shared stores (docs/bundles.md). Nothing: those of `$KILN_BUNDLES`, else of the user's or the
  /// system's kiln.conf. Bundles that are embedded in the application or its libraries follow. An empty list: no
  /// bundle at all. A file that cannot be used is logged and skipped. Relative paths are resolved when the cache is
  /// constructed.
  std::optional<std::vector<Bundle>> bundles = {};
  /// What happens to a program that no level has. Nothing: as `$KILN_COMPILE` or kiln.conf says, else
  /// CompilePolicy::always. With CompilePolicy::never and without shared stores, the directory is not created.
  std::optional<CompilePolicy> compile = {};
  /// The levels between the disk and the compiler, shared between machines, fastest first: URLs, or objects of the
  /// application (SharedStore). Nothing: those of `$KILN_SHARED`, else of the user's or the system's kiln.conf,
  /// else none. An empty list: none. docs/sharing.md describes them.
  std::optional<std::vector<SharedStore>> stores = {};
  /// How long flush() and the destructor wait for uploads, all stores together. Nothing: as kiln.conf says, else 2
  /// seconds. The destructor cancels the uploads that are left, without counting them. At most max(write_queue, 1)
  /// uploads wait for each store; further ones are dropped, logged and counted in StoreStats::upload_errors.
  std::optional<std::chrono::milliseconds> upload_limit = {};
  /// Whether shared entries contain facts: names, options, defines, and the names of files (docs/privacy.md).
  /// Nothing: as `$KILN_SHARE_FACTS` or kiln.conf says, else true.
  std::optional<bool> share_facts = {};
  /// A file that gets every request that is answered from disk, from a shared store or by the compiler: its source,
  /// the contents of its headers, options and all else that the key covers, each program once. Many processes may
  /// use one file. A run that finds requests in the file fetches their programs from the shared stores all at once,
  /// with the first program that is not on disk. docs/records.md describes what it is good for. Written in the
  /// background; flush() and the destructor wait for it. A file that cannot be written is logged once and fails no
  /// request. A relative path is resolved when the cache is constructed. Nothing: `$KILN_RECORD`, else none. An
  /// empty path: none.
  std::optional<std::filesystem::path> record = {};
  /// Receives the cache's messages. Its sink is not called once the destructor has returned.
  Log log = {};
};

/// Where a cache is kept by default: `$KILN_CACHE_DIR`, else `$XDG_CACHE_HOME/kiln`, else `~/.cache/kiln`;
/// empty if none of these is set. An empty variable counts as unset. Programs that run with more rights than their
/// caller (set-uid) read no variables.
std::filesystem::path default_directory();

/// What preload() and warm() report after each program. Valid only during the call: copy `name` and `*error` to
/// keep them.
struct Progress {
  /// How many programs have been tried so far, this one included, and how many there are.
  std::size_t done = 0;
  std::size_t total = 0;
  /// The place of this program in the list given to preload(); for warm(), which has no list, any number.
  std::size_t index = 0;
  /// The name of this program.
  const std::string& name;
  /// The error if this program failed, else null.
  const Error* error = nullptr;
  /// An estimate of the time until all are done; nothing if there is no basis for one yet.
  std::optional<std::chrono::nanoseconds> remaining = {};
};
/// Called by one thread at a time: see Cache::preload().
using ProgressCallback = std::function<void(const Progress&)>;

/// The outcome of preload() or warm().
struct PreloadReport {
  /// How many programs are ready: in memory already, loaded or compiled.
  std::size_t ready = 0;
  /// One error for each program that failed, in the order in which they did.
  std::vector<Error> errors = {};
};

/// Compiles programs once and keeps them: in memory, on disk, and in stores shared between machines if there are
/// any.
///
/// All functions may be called from any number of threads at once, and any number of caches, in this process or in
/// others, may use one directory. A hit in memory takes no lock. Program handles outlive the cache.
///
/// A key is compiled once, however many threads and processes request it, as long as its entry stays on disk and
/// the driver accepts it. It is compiled more than once if a process cannot lock the key: another one holds the
/// lock for longer than CacheOptions::lock_timeout, the directory cannot be written to, or there is no lock because
/// `save` or `disk` is off or the driver provides no binaries.
///
/// Failures of the disk and of shared stores never fail a request: they are logged and counted in
/// Stats::store_failures and Stats::save_failures. If the host runs out of memory, functions may throw
/// std::bad_alloc.
///
/// After fork(), parent and child may both go on using the cache if the backend, the application's stores and a
/// custom log sink work in a forked child. The child keeps the programs in memory and counts from 0. Gets in flight
/// on other threads, their callbacks and pending saves stay with the parent. In the child, the destructor waits for
/// the child's own work and saves it, but destroys no module that was loaded before the fork. A child that is
/// forked inside a callback, a store or a backend must not return from it.
class Cache {
 public:
  /// A cache for `backend`, which must not be null and of which it shares ownership. Never fails: if the directory
  /// cannot be used, a warning is logged and there is no disk level.
  explicit Cache(std::shared_ptr<Backend> backend, CacheOptions options = {});
  /// Waits for gets that are loading or compiling, for get_async(), preload(), warm() and refresh(), all of which
  /// complete normally, and for programs that are being compiled in the background (CompilePolicy::background, and
  /// the requests of bundles); drops those that have not begun. Then does what flush() does and cancels the uploads
  /// that are left. Threads that are still inside
  /// a call of a Store, or of a folder that does not answer, are left behind and end when it returns. No call may
  /// start once destruction has begun,
  /// except from callbacks that it waits for. Must not be called from a callback, the backend or the store of this
  /// cache.
  ~Cache();
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  /// The program: from memory, else from disk, a bundle or a shared store, else compiled and kept, as far as
  /// CacheOptions::compile permits it; otherwise the error is not_compiled. If another thread is already working on
  /// the key, waits for its result. An error is returned to all callers that wait for
  /// it, and is not kept: the next get() tries again.
  ///
  /// Errors are those of Request::error() (invalid_request, include_not_found, include_cycle, io) and those of
  /// Backend::compile() (compile_failed, unsupported, device_failed and others), which includes its exceptions.
  /// out_of_memory is returned once no unused program is left to evict. Unless the program is in memory, two
  /// calls return invalid_request: one from inside the store of this cache, and one from a backend for the key that
  /// it is compiling.
  ///
  /// May block for as long as the compiler takes; up to CacheOptions::lock_timeout for another process; and with
  /// Redis as a shared store for another machine, for as long as compiling took before, 10 s if that is unknown. A
  /// shared store that does not answer delays it by at most 150 ms; then the program is compiled while the store is
  /// asked, and the first result is returned.
  Result<Program> get(const Request& request);
  /// Like get(), but on a thread of the cache. In four cases the work is done on the calling thread, before this
  /// returns:
  /// - the program is in memory
  /// - the backend is not usable_from_any_thread()
  /// - the call comes from inside the store of this cache; the result is then invalid_request
  /// - no thread can be started
  ///
  /// The future may outlive the cache, and keeps the program in memory as long as it exists. It cannot be
  /// cancelled. Its continuations (Future::then()) run on the thread that sets the result.
  Future<Program> get_async(Request request);
  /// The same, but calls `done` once with the result: later on a thread of the cache, or on the calling thread,
  /// before this returns, in the four cases above. The cache owns `done` until then. `done` may request other
  /// programs from this cache and wait for them; another thread does the cache's work meanwhile. Exceptions from
  /// `done` are logged and dropped.
  void get_async(Request request, std::function<void(Result<Program>)> done);
  /// The program if any level has it, else nothing. Never compiles, and waits for a shared store for as long as
  /// compiling took before in this process, 2 s if that is unknown, unless the store is skipped because it fails;
  /// if another thread is already compiling the key, waits and returns its result. Otherwise fails as get() does,
  /// without the errors of a compiler: an entry that cannot be used counts as absent.
  Result<std::optional<Program>> find(const Request& request);
  /// Adds a program that was compiled elsewhere, then saves and uploads its binary as get() does. `compiled.module`
  /// must be of this cache's backend, which is not checked. Later hits count `compile_time` as saved. If the key is
  /// in memory or another thread provides it, that program is returned and `compiled` is dropped. Errors: those of
  /// Request::error(); invalid_request without a module, or from inside the store of this cache.
  Result<Program> add(const Request& request, Compiled compiled, std::chrono::nanoseconds compile_time = {});

  /// Gets all requests in parallel, on this thread and on the cache's own, and keeps the programs in memory as far
  /// as the bounds allow. If the backend is not usable_from_any_thread(), this thread does everything. The report
  /// has get()'s error for each program that failed. From inside the store of this cache, it has invalid_request
  /// only.
  ///
  /// Programs that are stored are loaded first. The others are compiled in the order of their cost, the slowest
  /// first: by the compile times of earlier versions of the same name, else by the size of the source. Processes
  /// that preload the same programs share the work: each compiles those that no other one is compiling, and loads
  /// the rest when they are done. get() and get_async() come before a preload that is under way.
  ///
  /// `progress` is called after each program, by one thread at a time, not always the caller's. It may request
  /// programs from this cache and wait for them. If it throws, all requests are still tried and reported; then this
  /// function throws that exception (the last one if there are several) and returns no report. `requests` and
  /// `progress` are not used after this returns.
  PreloadReport preload(std::span<const Request> requests, const ProgressCallback& progress = {});
  /// Loads the programs of this device's folder into memory: as many of the last used ones as the bounds allow.
  /// Entries that are damaged, or that the driver refuses, are reported as damaged or load_failed, and removed if
  /// `save` is on. Programs loaded this way count as no request, hit or time saved. A folder that cannot be listed
  /// is one error, io. Threads and `progress`: as in preload().
  PreloadReport warm(const ProgressCallback& progress = {});
  /// Fetches the programs of a record (CacheOptions::record) that this device uses from the shared stores to the
  /// disk, in as few round trips as the stores permit, and loads them into memory as warm() does. Programs that
  /// are found nowhere are left to get(). A record that cannot be read is one error, io or unsupported.
  PreloadReport warm(const std::filesystem::path& record, const ProgressCallback& progress = {});
  /// Compiles the programs of a record (CacheOptions::record) that this device uses and no level has, as preload()
  /// does, but keeps none in memory that was not there. Call it after an update of the driver or the compiler,
  /// before anybody waits. Programs that are on disk count as ready, without a check and without a call of
  /// `progress`. A record that cannot be read is one error, io or unsupported; so is each request that cannot be
  /// made again on this machine.
  PreloadReport refresh(const std::filesystem::path& record, const ProgressCallback& progress = {});

  /// Drops the program from memory unless it is in use. Returns whether it was dropped. The other levels keep it.
  bool evict(const Request& request);
  /// Evicts unused programs, least recently used first, until at most `keep` are left. Returns how many it evicted.
  std::size_t trim(std::size_t keep = 0);
  /// Drops every unused program from memory, and this device's programs from disk. Shared stores are left as they
  /// are, and programs in use stay in memory. Returns how many entries were removed from disk. If some cannot be
  /// removed, the others still are, and the error, io, says how many are left and why. From inside the store of
  /// this cache, fails with invalid_request.
  Result<std::size_t> clear();

  /// Waits until every program whose compiling get() has returned is on disk, if it can be saved, and at most
  /// CacheOptions::upload_limit for uploads, which go on afterwards. Saves noted performance, enforces the disk
  /// bound and adds to the lifetime statistics. Once a day, one process also prunes the whole directory in the
  /// background, which corrects its counts. Apart from pruning, the cost does not depend on how many programs are
  /// stored.
  ///
  /// Failures appear in the log and the statistics only: Stats::save_failures for programs that could not be saved,
  /// Stats::store_failures for uploads. Does nothing from inside the store of this cache.
  void flush();
  /// Saves all programs in memory that are not saved yet, because `save` is off or saving failed, then calls
  /// flush(). Uploads none of them. Returns the first error, if any: io, or unsupported for an entry of more than 1
  /// GiB. Does nothing more than flush() if there is no disk level.
  Result<void> persist();
  /// Removes stored programs of all devices by age and by size, as kiln::prune() does on the cache's directory,
  /// after all pending programs are saved. Programs in memory and in shared stores are left as they are. Empty
  /// report if there is no disk level.
  Result<PruneReport> prune(const PruneOptions& options);

  /// The counters since this cache was constructed, or since the fork, and the current size of memory and disk.
  /// Does not stop other threads, so related counts may differ by what these threads do meanwhile. Figures of the
  /// disk that cannot be read are 0.
  Stats stats() const;
  /// A copy of the data on all programs in memory, least recently used first.
  std::vector<ProgramInfo> programs() const;
  /// This device's folder, which is created when it is first needed; empty if there is no disk level.
  std::filesystem::path folder() const;
  /// The backend given to the constructor. Valid as long as the cache.
  Backend& backend() const noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln
