#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <optional>
#include <string>

#include <kiln/cache.hpp>

#include "base/mutex.hpp"
#include "cache/worker_pool.hpp"

namespace kiln::cache {

/// The programs of one preload() or warm(). Any number of threads take and load them; one thread at a time reports
/// progress, without a lock.
class Batch {
 public:
  struct Item {
    std::function<const std::string&(std::size_t)> name;
    /// Loads the program; what went wrong, if anything did.
    std::function<std::optional<Error>(std::size_t)> load;
  };

  /// Which threads load: the caller's alone, or the workers as well.
  enum class Threads { this_one, workers };
  /// Loads `count` items. Returns when all are loaded and reported. Throws what `progress` throws, after all are
  /// loaded.
  static PreloadReport run(std::size_t count, const Item& item, const ProgressCallback& progress,
                           WorkerPool& workers, Threads threads);

  /// For run() alone. The functions are used until wait() returns.
  Batch(std::size_t count, const Item& item, const ProgressCallback& progress, WorkerPool& workers)
      : count_(count), item_(item), progress_(progress), workers_(workers) {}

 private:
  struct Finished {
    std::size_t item;
    std::optional<Error> error;
  };

  /// Loads items until all are taken.
  void load_some() KILN_EXCLUDES(mutex_);
  PreloadReport wait() KILN_EXCLUDES(mutex_);
  /// Queues the result, and reports all queued results unless another thread does so.
  void report(Finished finished) KILN_EXCLUDES(mutex_);
  void call(const Progress& progress) KILN_EXCLUDES(mutex_);

  const std::size_t count_;
  const Item& item_;
  const ProgressCallback& progress_;
  WorkerPool& workers_;
  std::atomic<std::size_t> next_{0};

  base::Mutex mutex_;
  base::Condition all_done_;
  std::deque<Finished> finished_ KILN_GUARDED_BY(mutex_);
  bool reporting_ KILN_GUARDED_BY(mutex_) = false;
  std::size_t done_ KILN_GUARDED_BY(mutex_) = 0;
  PreloadReport result_ KILN_GUARDED_BY(mutex_);
  std::exception_ptr thrown_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::cache
