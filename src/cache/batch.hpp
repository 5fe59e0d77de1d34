#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <kiln/cache.hpp>

#include "base/mutex.hpp"
#include "cache/worker_pool.hpp"

namespace kiln::cache {

/// The programs of one preload() or warm(). Several threads load them; one thread at a time reports progress,
/// without holding a lock.
class Batch {
 public:
  using Name = std::function<const std::string&(std::size_t)>;

  /// Uses at most `threads` threads, the caller's included. The references must stay valid until finish() returns.
  Batch(std::size_t count, const Name& name, const ProgressCallback& progress, WorkerPool& workers,
        std::size_t threads)
      : count_(count), name_(name), progress_(progress), workers_(workers), threads_(threads) {}

  enum class End { done, failed, not_done };
  struct Tried {
    End end = End::done;
    std::optional<Error> error = {};
  };
  /// The second argument is what `prepare` returned.
  using Try = std::function<Tried(std::size_t, std::unique_ptr<CompilePlace>)>;
  /// Called by each thread before it takes the next item. It may wait.
  using Prepare = std::function<std::unique_ptr<CompilePlace>()>;
  /// How workers begin. Gradually: one at once, and one more for each millisecond of work, because many programs
  /// load in less time than it takes to wake the threads, and drivers let several threads wait for each other.
  enum class Start { all_at_once, gradually };
  /// Tries these items, in this order, and reports those that are done or failed. Returns the others when all have
  /// been tried and reported.
  std::vector<std::size_t> run(const std::vector<std::size_t>& items, Start start, const Try& attempt,
                               const Prepare& prepare = {});

  /// Sets what the items to come will cost, from which the remaining time is estimated.
  void expect(std::vector<double> costs) KILN_EXCLUDES(mutex_);

  /// The report of all items. If `progress` threw, rethrows.
  PreloadReport finish() KILN_EXCLUDES(mutex_);

 private:
  struct Finished {
    std::size_t item;
    std::optional<Error> error;
  };
  /// One call of run(). Shared, because a worker may start after everything is done.
  struct Round {
    const std::vector<std::size_t> items;
    const Try attempt;
    const Prepare prepare;
    /// Helpers are added gradually, up to this number.
    const std::size_t most_helpers;
    const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
    std::atomic<std::size_t> helpers{0};
    std::atomic<std::size_t> next{0};
    base::Mutex mutex = {};
    base::Condition all_tried = {};
    std::size_t tried KILN_GUARDED_BY(mutex) = 0;
    std::vector<std::size_t> not_done KILN_GUARDED_BY(mutex) = {};
  };

  /// Tries items until none is left. `batch` is used only while an item is being tried.
  static void try_some(Batch& batch, const std::shared_ptr<Round>& round);
  void add_helper(const std::shared_ptr<Round>& round);
  /// Adds a helper if it is time for one.
  void add_helper_gradually(const std::shared_ptr<Round>& round);
  Tried try_one(const Round& round, std::size_t item, std::unique_ptr<CompilePlace> place) const;
  /// Queues the result, and reports all queued results unless another thread is reporting.
  void report(Finished finished) KILN_EXCLUDES(mutex_);
  void call(const Progress& progress) KILN_EXCLUDES(mutex_);
  std::optional<std::chrono::nanoseconds> remaining(std::size_t item) KILN_REQUIRES(mutex_);

  const std::size_t count_;
  const Name& name_;
  const ProgressCallback& progress_;
  WorkerPool& workers_;
  const std::size_t threads_;

  base::Mutex mutex_;
  base::Condition reported_;
  std::deque<Finished> finished_ KILN_GUARDED_BY(mutex_);
  bool reporting_ KILN_GUARDED_BY(mutex_) = false;
  std::size_t done_ KILN_GUARDED_BY(mutex_) = 0;
  PreloadReport result_ KILN_GUARDED_BY(mutex_);
  std::exception_ptr thrown_ KILN_GUARDED_BY(mutex_);
  std::vector<double> costs_ KILN_GUARDED_BY(mutex_);
  double cost_left_ KILN_GUARDED_BY(mutex_) = 0;
  double cost_done_ KILN_GUARDED_BY(mutex_) = 0;
  std::chrono::steady_clock::time_point costs_since_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::cache
