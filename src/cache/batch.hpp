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

/// The programs of one preload() or warm(). Several threads load them; one thread at a time reports progress,
/// without holding a lock.
class Batch {
 public:
  struct Item {
    std::function<const std::string&(std::size_t)> name;
    /// Loads the program; returns an error on failure.
    std::function<std::optional<Error>(std::size_t)> load;
  };

  /// Which threads load: only the caller's, or also the workers.
  enum class Threads { this_one, workers };
  /// Loads `count` items. Returns when all are loaded and reported. If `progress` throws, rethrows after all are
  /// loaded.
  static PreloadReport run(std::size_t count, const Item& item, const ProgressCallback& progress,
                           WorkerPool& workers, Threads threads);

  /// Only for run(). The references must stay valid until wait() returns.
  Batch(std::size_t count, const Item& item, const ProgressCallback& progress, WorkerPool& workers)
      : count_(count), item_(item), progress_(progress), workers_(workers) {}

 private:
  struct Finished {
    std::size_t item;
    std::optional<Error> error;
  };

  /// Loads items until none is left.
  void load_some() KILN_EXCLUDES(mutex_);
  PreloadReport wait() KILN_EXCLUDES(mutex_);
  /// Queues the result, and reports all queued results unless another thread is reporting.
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
