#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <kiln/cache.hpp>

#include "base/file_system.hpp"
#include "base/mutex.hpp"
#include "base/process.hpp"
#include "cache/batch.hpp"
#include "cache/bundles.hpp"
#include "cache/call_threads.hpp"
#include "cache/flights.hpp"
#include "cache/guarded_store.hpp"
#include "cache/prefetch.hpp"
#include "cache/recorder.hpp"
#include "cache/saver.hpp"
#include "cache/shared_stores.hpp"
#include "cache/worker_pool.hpp"
#include "key/request_record.hpp"
#include "memory/program_table.hpp"
#include "store/disk_store.hpp"
#include "store/sealed_entry.hpp"

namespace kiln::cache {

/// Counts calls in progress, so that destruction can wait for them.
class UnderWay {
 public:
  class Call {
   public:
    explicit Call(UnderWay& under_way) : under_way_(under_way) {
      const base::MutexLock lock(under_way_.mutex_);
      ++under_way_.calls_;
    }
    ~Call() {
      // Notify under the lock: once it is released, the waiting thread may destroy this object.
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

/// The implementation of Cache: answers requests from memory, disk, shared stores or the compiler, and saves the
/// results. Its mutexes and threads belong to the process that created it; a forked child creates new levels for
/// the same table.
class Levels {
 public:
  /// `table` must outlive it.
  Levels(std::shared_ptr<Backend> backend, CacheOptions options, memory::ProgramTable& table,
         const base::FileSystem& system = base::FileSystem::system());
  Levels(std::shared_ptr<Backend> backend, CacheOptions options, const store::Settings& settings,
         memory::ProgramTable& table, const base::FileSystem& system);
  /// Recreates the levels in a forked child. Reads only immutable members of `parents`.
  explicit Levels(const Levels& parents);
  Levels& operator=(const Levels&) = delete;
  bool is_of_this_process() const noexcept { return base::fork_generation() == process_; }
  /// In a forked child, after it has created its own levels: closes the descriptors shared with the parent.
  void leave_to_parent() noexcept;
  /// Waits for calls in progress, then flushes. No request may follow.
  void finish();

  // These implement Cache's functions of the same names.
  Result<Program> get(const Request& request);
  Result<std::optional<Program>> find(const Request& request);
  Result<Program> add(const Request& request, Compiled compiled, std::chrono::nanoseconds compile_time);
  using Callback = std::function<void(Result<Program>)>;
  void get_async(Request request, Callback done);
  Future<Program> get_async(Request request);
  PreloadReport preload(std::span<const Request> requests, const ProgressCallback& progress);
  PreloadReport warm(const ProgressCallback& progress);
  PreloadReport warm(const std::filesystem::path& record, const ProgressCallback& progress);
  PreloadReport refresh(const std::filesystem::path& record, const ProgressCallback& progress);
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

  /// Everything except memory hits, which the table counts.
  struct Counters {
    std::atomic<std::uint64_t> disk_hits{0}, bundle_hits{0}, shared_hits{0}, joined{0}, compiles{0}, failures{0};
    std::atomic<std::uint64_t> absent{0};
    std::atomic<std::uint64_t> incomplete{0}, pressure{0}, replaced{0}, store_failures{0};
    std::atomic<std::int64_t> compile_ns{0}, compile_saved_ns{0};
  };
  struct Loaded {
    std::unique_ptr<Module> module;
    store::UnsavedEntry stored;
  };
  struct LoadedBundled {
    /// With a binary of this device if the bundle has a portable one.
    Compiled compiled;
    std::chrono::nanoseconds compile_time;
  };
  struct Asked {
    Request request;
    Callback done;
    /// Since when it is postponed.
    std::optional<std::chrono::steady_clock::time_point> postponed = {};
  };

  /// What to do if no level has the program: compile it, count it as absent and return nothing, or return nothing
  /// because the caller comes back to compile it, or counts it itself.
  enum class IfMissing { compile, return_nothing, come_back };
  /// Whether the policy lets a thread wait for the compiler. It is not about what is compiled already.
  bool permits(CompilePolicy forbidden, const Request& request) const noexcept;
  /// What to do if another process, or another cache of this one, is compiling the program: wait for it, return
  /// nothing, compile it unless a third one already does so in its place, or compile it in any case.
  enum class IfLocked { wait, return_nothing, take_over, compile };
  /// For callers that come back for a locked program: what to do after they have waited for so long.
  IfLocked if_locked_after(std::chrono::steady_clock::duration waited) const;
  /// Whether shared stores are asked: as long as compiling is not slower, until they have answered or failed, or
  /// not at all.
  enum class AskStores { briefly, patiently, no };
  struct How {
    IfMissing if_missing = IfMissing::compile;
    IfLocked if_locked = IfLocked::wait;
    AskStores ask_stores = AskStores::briefly;
    Urgency urgency = Urgency::now;
    /// A place to compile that the caller has already; it is moved from.
    std::unique_ptr<CompilePlace>* place = nullptr;
    /// Whether the application made the request, so that it belongs into its record.
    bool is_recorded = true;
  };
  Result<std::optional<Program>> find_or_compile(const Request& request, const How& how);
  /// The last part of it: what only one thread of one process does for a key.
  Outcome look_further(const Request& request, const How& how);
  /// The program if it is in memory, on disk or in a bundle. Counts only what it finds.
  std::optional<Program> find_ready(const Request& request, bool is_recorded);
  /// Set by the first of several threads that provide a program, before it becomes visible.
  using Won = std::atomic<bool>;
  static bool wins(Won* won) noexcept { return won == nullptr || !won->exchange(true); }
  /// How to treat an unusable entry on disk. First: ignored here; rechecked under the key's lock. Last: counted and
  /// logged, and removed if this thread holds the lock.
  enum class Look { first, last };
  std::optional<Program> load_from_disk(const Key& key, const std::optional<KeyLock>& lock, Look look,
                                        Won* won = nullptr);
  std::optional<Program> load_from_bundles(const Request& request);
  /// Reads and checks a program of a bundle, and loads it. Fails if it cannot be used.
  Result<LoadedBundled> load_bundled(const Bundles::Found& found);
  /// The error for a program that no level has.
  Error not_compiled(const Request& request);
  /// get() if the policy is CompilePolicy::background.
  Result<Program> get_without_compiler(const Request& request);
  /// Compiles the program on a worker, unless one does so already. Returns an error in any case: not_compiled, or
  /// once why it could not be compiled.
  Error compile_later(const Request& request) KILN_EXCLUDES(later_mutex_);
  /// Waits for the thread that provides the program, if one does, until it begins to compile. Returns whether a
  /// thread compiles the program.
  bool wait_for_compiler(const Digest& key) KILN_EXCLUDES(later_mutex_);
  /// Notes for get_without_compiler() that the program is being compiled, while it exists.
  class Compiling {
   public:
    Compiling(Levels& levels, const Digest& key) : levels_(levels), key_(key) {
      const base::MutexLock lock(levels_.later_mutex_);
      levels_.compiling_.insert(key_);
      levels_.later_changed_.notify_all();
    }
    ~Compiling() {
      const base::MutexLock lock(levels_.later_mutex_);
      levels_.compiling_.erase(levels_.compiling_.find(key_));
    }
    Compiling(const Compiling&) = delete;
    Compiling& operator=(const Compiling&) = delete;

   private:
    Levels& levels_;
    const Digest key_;
  };
  /// Compiles the requests of bundles that have no program for this device, one after the other on a thread of its
  /// own. Begins with the first call.
  void compile_bundled_requests();
  Result<void> compile_requests_of(const store::BundleFile& file);
  /// Waits for a search in the shared stores, as long as `ask` says, since `start`. The program if it has ended
  /// with one.
  std::optional<Program> await_stores(const Request& request, Fetch& fetch, AskStores ask,
                                      std::chrono::steady_clock::time_point start);
  /// Loads what a shared store had, and saves it under the lock, if there is one.
  std::optional<Program> load_fetched(const Key& key, std::optional<Fetched> fetched, Won* won = nullptr,
                                      std::optional<KeyLock>* lock = nullptr);
  /// What else may provide a program: another thread, or a search in the shared stores that may end meanwhile.
  struct Rivals {
    Won* won = nullptr;
    Fetch* late = nullptr;
  };
  /// What is left if no store has the program: its place, its lock, a last look on disk, the compiler.
  Outcome provide(const Request& request, const How& how, const Rivals& rivals);
  Result<Program> compile(const Request& request, std::optional<KeyLock> lock, std::shared_ptr<HeldLease> lease,
                          Won* won);
  /// The end of a wait for other machines that compile a program. Empty: compile it without a lease.
  struct Waited {
    std::optional<Program> program = {};
    std::shared_ptr<HeldLease> lease = {};
    /// Another machine still compiles it, and the caller comes back; or another thread provided the program.
    bool leaves_it = false;
  };
  /// Called with a place to compile. Gives it back while it waits, and has one again if the program is to be
  /// compiled.
  Waited wait_for_fleet(const Request& request, const How& how, std::optional<KeyLock>& lock,
                        std::unique_ptr<CompilePlace>& place, Won* won);
  /// Loads a program that another machine has just put into a store.
  std::optional<Program> load_from_fleet(const Request& request, std::optional<KeyLock>& lock, Won* won);
  /// How long a request waits for the shared stores before it also compiles.
  std::chrono::nanoseconds head_start(const std::string& name);
  /// provide() on another thread while the stores are still asked. The first result is used.
  Outcome race(const Request& request, const How& how, Fetch& fetch);
  /// How long a program of this name took to compile in this process.
  std::optional<std::chrono::nanoseconds> expected_time(const std::string& name) KILN_EXCLUDES(times_mutex_);
  void note_time(const std::string& name, std::chrono::nanoseconds took) KILN_EXCLUDES(times_mutex_);
  /// The lock between processes, if it can be had as `if_locked` says.
  std::optional<KeyLock> lock_key(const Key& key, IfLocked if_locked, std::unique_ptr<CompilePlace>& place,
                                  const Won* won);
  bool uses_locks() const noexcept { return disk_ && options_.save; }
  /// Reads, checks and loads an entry of the disk. Nothing if it has none; an error if the entry is unusable.
  Result<std::optional<Loaded>> load_stored(const Key& key);
  /// Counts and logs an unusable entry.
  void reject(const Key& key, const Error& problem);
  /// Removes an entry from disk if it is damaged or the driver refused it.
  void remove_unusable(const Error& problem, const KeyLock& lock);
  /// Inserts a loaded program into the table, with its noted performance.
  Program admit(const Key& key, std::unique_ptr<Module> module, Origin origin,
                std::chrono::nanoseconds compile_time);
  /// Loads items of the disk into memory, as many of the last used ones as the bounds allow.
  PreloadReport warm(std::vector<store::StoredItem> items, const ProgressCallback& progress);
  PreloadReport preload(std::span<const Request> requests, const ProgressCallback& progress, bool is_recorded);
  PreloadReport refresh(const key::RequestRecord& record, std::span<const key::RequestRecord::Entry* const> entries,
                        const ProgressCallback& progress);
  /// Makes a request of a record again, with its files below `folder`. Another version of a toolkit gives it
  /// another key, here and in the application. Fails if its key depends on the working folder of the process.
  static Result<Request> rebuilt(const key::RequestRecord& record, const key::RequestRecord::Entry& entry,
                                 const std::filesystem::path& folder);
  /// What is saved of a program that was compiled, or adapted to this device, here.
  static std::shared_ptr<const store::UnsavedEntry> unsaved(const Request& request, Binary binary,
                                                            std::chrono::nanoseconds compile_time);
  Result<Program> warm_one(const Key& key);
  /// Of CacheOptions::record; null if there is none, or no level to fetch from or to.
  std::unique_ptr<Prefetch> prefetch_of_record();
  /// An error if this thread is inside a store call of this cache.
  std::optional<Error> refusal_of_call() const;
  Error failure(Error error);

  // A request belongs to one work item or flight at a time.
  void answer_later(const std::shared_ptr<Asked>& asked);
  void answer(const Asked& asked, Result<Program> program);
  /// Tries it again soon, because another process is compiling it. Workers do what others do not meanwhile.
  void postpone(const std::shared_ptr<Asked>& asked) KILN_EXCLUDES(postponed_mutex_);
  /// Runs on a worker until no request is postponed.
  void retry_postponed() KILN_EXCLUDES(postponed_mutex_);
  /// Logs exceptions from the callback.
  void call(const Callback& done, Result<Program> program);
  /// How many threads a batch uses.
  std::size_t batch_threads() const;
  /// Sorts the places of requests by the expected time to compile them, the longest first. Returns these times.
  std::vector<double> sort_by_cost(std::span<const Request> requests, std::vector<std::size_t>& places) const;

  /// The counters, without the disk usage.
  Stats counted();
  /// Prunes the directory if it exceeds max_disk_bytes. Also prunes in the background once a day.
  void keep_disk_bound(const std::filesystem::path& root);

  /// Runs a device operation, whose exceptions become errors. While it runs out of memory, evicts the least
  /// recently used unused program and retries.
  template <class Operation>
  auto with_room(Operation operation) -> decltype(operation()) {
    auto result = without_exceptions(operation);
    while (!result && result.error().code() == ErrorCode::out_of_memory && table_.evict_one()) {
      ++counters_.pressure;
      result = without_exceptions(operation);
    }
    return result;
  }

  const std::uint64_t process_ = base::fork_generation();
  const std::shared_ptr<Backend> backend_;
  const Digest identity_digest_;
  // The paths are absolute, so that a forked child uses the same ones, and `record` has a value.
  const CacheOptions options_;
  /// As they were when the cache was constructed, also for a forked child.
  const store::Settings settings_;
  const CompilePolicy policy_;
  const base::FileSystem& system_;
  const std::shared_ptr<store::DiskStore> disk_;
  const Bundles bundles_;
  memory::ProgramTable& table_;
  Counters counters_;
  /// Programs that warm() saved from a record.
  std::atomic<std::uint64_t> prefetched_{0};

  base::Mutex times_mutex_;
  std::map<std::string, std::chrono::nanoseconds> times_ KILN_GUARDED_BY(times_mutex_);

  base::Mutex flush_mutex_;
  Stats merged_ KILN_GUARDED_BY(flush_mutex_);
  /// Of the programs that were prefetched, those after which the bound on the disk was enforced.
  std::uint64_t bounded_prefetches_ KILN_GUARDED_BY(flush_mutex_) = 0;
  bool session_counted_ KILN_GUARDED_BY(flush_mutex_) = false;

  base::Mutex postponed_mutex_;
  std::vector<std::shared_ptr<Asked>> postponed_ KILN_GUARDED_BY(postponed_mutex_);
  // Requests that were postponed and have not been answered.
  std::size_t postponed_left_ KILN_GUARDED_BY(postponed_mutex_) = 0;

  base::Mutex later_mutex_;
  base::Condition later_changed_;
  /// The programs that are compiled in the background because of the policy, and why those failed that did.
  std::map<Digest, std::optional<Error>> later_ KILN_GUARDED_BY(later_mutex_);
  /// The programs that any thread compiles.
  std::multiset<Digest> compiling_ KILN_GUARDED_BY(later_mutex_);
  base::Mutex refused_mutex_;
  /// Programs of bundles that cannot be used: the bundle and the place.
  std::set<std::pair<const store::BundleFile*, std::uint64_t>> refused_ KILN_GUARDED_BY(refused_mutex_);
  std::atomic<bool> ahead_has_begun_{false};
  /// Work in the background that has not begun is dropped.
  std::atomic<bool> is_ending_{false};

  // finish() waits for these calls.
  UnderWay under_way_;

  Recorder recorder_;

  // Declared last: their threads must end before the members they use are destroyed.
  SharedStores shared_;
  /// Of the programs of the record, if there is one.
  const std::unique_ptr<Prefetch> prefetch_;
  Saver saver_;
  /// Compilations that race with a shared store.
  CallThreads racers_{"kiln-race", ~std::size_t{0}};
  WorkerPool workers_;
  Flights flights_{workers_};
  /// Compiles the requests of bundles.
  CallThreads ahead_{"kiln-ahead", 1};
};

}  // namespace kiln::cache
