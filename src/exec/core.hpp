#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include <kiln/executor.hpp>

#include "base/mutex.hpp"
#include "cache/worker_pool.hpp"
#include "exec/job_state.hpp"
#include "exec/trace.hpp"

namespace kiln::exec {

using Clock = std::chrono::steady_clock;

/// A lane as the others see it.
struct LaneState {
  explicit LaneState(unsigned lane) noexcept : number(lane) {}
  const unsigned number;
  /// The job it is handing to the driver just now, and whether it was given up because that never came back; both
  /// guarded by the core's mutex.
  const JobState* starting = nullptr;
  bool lost = false;
};

/// What the lanes of an executor, its callers and its watch share: the queue of jobs and the counts.
///
/// Lanes and callbacks hold it, so that it outlives a lane that never comes back from its driver.
class Core : public std::enable_shared_from_this<Core> {
 public:
  Core(std::shared_ptr<Device> device, Cache& cache, ExecutorOptions options, std::unique_ptr<Trace> trace);
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  /// Starts the lanes; the error of the first that could not open a slot.
  Result<void> start() KILN_EXCLUDES(mutex_);
  Future<JobReport> submit(Job job) KILN_EXCLUDES(mutex_);
  void drain() KILN_EXCLUDES(mutex_);
  /// Drains, and ends all threads but those that do not come back from their driver.
  void stop() KILN_EXCLUDES(mutex_);
  ExecutorStats stats() const KILN_EXCLUDES(mutex_);

  /// The next job for a lane, which has begun. Null where there is none by `until`, or will be none any more.
  std::shared_ptr<JobState> take(LaneState& lane, Clock::time_point until) KILN_EXCLUDES(mutex_);
  /// The lane has handed its job to the device. Whether the lane is to go on: it may have been replaced meanwhile.
  bool started(LaneState& lane) KILN_EXCLUDES(mutex_);
  /// Whether the lane was replaced: then it leaves everything that may be gone by now.
  bool lost(const LaneState& lane) const KILN_EXCLUDES(mutex_);
  /// Tells the result of a job whose end the caller has claimed.
  void finish(const JobState& job, Result<JobReport> result) KILN_EXCLUDES(mutex_);
  bool stopping() const KILN_EXCLUDES(mutex_);
  /// Has the cache and the idle slots of all lanes give back memory of the device.
  void reclaim();
  /// Grows with each reclaim(): lanes that see a new number give back what they can.
  std::uint64_t reclaims() const noexcept { return counters.memory_retries.load(std::memory_order_relaxed); }

  Device& device() const noexcept { return *device_; }
  Cache& cache() const noexcept { return cache_; }
  const ExecutorOptions& options() const noexcept { return options_; }
  Trace* trace() const noexcept { return trace_.get(); }

  struct Counters {
    std::atomic<std::uint64_t> submitted{0}, succeeded{0}, failed{0}, cancelled{0}, timed_out{0};
    std::atomic<std::uint64_t> launches{0}, program_switches{0}, memory_retries{0};
  } counters;

 private:
  struct LaneThread {
    std::shared_ptr<LaneState> state;
    std::thread thread;
  };
  struct Watched {
    std::shared_ptr<JobState> job;
    std::shared_ptr<LaneState> lane;
  };

  /// Gets everything that the job waits for.
  void await(const std::shared_ptr<JobState>& job);
  void arrived(const std::shared_ptr<JobState>& job) KILN_EXCLUDES(mutex_);
  /// Ends a job that has not begun, unless it has; whether it did.
  bool end_queued(JobState& job, Error error, std::atomic<std::uint64_t>& counter) KILN_EXCLUDES(mutex_);
  /// Counts down what drain() waits for.
  void one_less() KILN_EXCLUDES(mutex_);
  /// Runs `work` on a thread for continuations; here and now once the executor has ended.
  void run_later(std::function<void()> work) KILN_EXCLUDES(mutex_);

  /// Starts a lane, which tells `opened` whether it has a slot.
  void start_lane(unsigned number, const std::function<void(Result<void>)>& opened) KILN_REQUIRES(mutex_);
  void watch() KILN_EXCLUDES(mutex_);
  /// Gives up a lane that is still handing `job` to its driver, and starts another in its place.
  void replace_if_stuck(const Watched& watched) KILN_EXCLUDES(mutex_);

  const std::shared_ptr<Device> device_;
  Cache& cache_;
  const ExecutorOptions options_;
  const std::unique_ptr<Trace> trace_;
  std::shared_ptr<const detail::Continue> continue_;
  cache::WorkerPool continuations_;

  mutable base::Mutex mutex_;
  base::Condition work_;
  base::Condition room_;
  base::Condition idle_;
  base::Condition watch_changed_;
  std::deque<std::shared_ptr<JobState>> ready_ KILN_GUARDED_BY(mutex_);
  /// Jobs that have not begun, and jobs and continuations that have not ended.
  std::size_t queued_ KILN_GUARDED_BY(mutex_) = 0;
  std::uint64_t unfinished_ KILN_GUARDED_BY(mutex_) = 0;
  bool stopping_ KILN_GUARDED_BY(mutex_) = false;
  std::vector<LaneThread> lanes_ KILN_GUARDED_BY(mutex_);
  /// Jobs with a time limit, by when it is over.
  std::multimap<Clock::time_point, Watched> watched_ KILN_GUARDED_BY(mutex_);
  std::thread watch_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::exec
