#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <kiln/executor.hpp>

#include "base/mutex.hpp"
#include "cache/worker_pool.hpp"
#include "exec/job.hpp"
#include "exec/job_state.hpp"
#include "exec/trace.hpp"

namespace kiln::exec {

using Clock = std::chrono::steady_clock;
constexpr Clock::duration longest_grace = std::chrono::seconds(1);
/// Jobs in flight per lane: one uploads, one computes, one downloads.
constexpr unsigned slots_of_a_lane = 3;

/// The state of a lane that other threads access. The scheduler's mutex guards all members except `number`.
struct LaneState {
  explicit LaneState(unsigned lane) noexcept : number(lane) {}
  const unsigned number;
  /// Jobs that the lane has begun and that have not ended.
  std::vector<std::shared_ptr<JobState>> jobs = {};
  /// True while the lane waits for a job. Otherwise it polls for finished jobs, and `rounds` counts its polls.
  bool waiting = false;
  std::uint64_t rounds = 0;
  /// Whether another lane has replaced this one; it then only ends the jobs it has begun.
  bool replaced = false;
  /// Whether its thread is about to end.
  bool ended = false;
  /// The last Scheduler::reclaim() that this lane has handled; whether the lane is inside reclaim() itself; and the
  /// number of jobs ended at its last own reclaim().
  std::uint64_t reclaims = 0;
  bool reclaiming = false;
  std::uint64_t ends = 0;
};

/// The state shared by an executor's lanes, its callers and its watch thread: the job queue and the counters.
///
/// Lanes and callbacks share ownership, so it outlives a lane that never returns from its driver.
class Scheduler : public std::enable_shared_from_this<Scheduler> {
 public:
  Scheduler(std::shared_ptr<Device> device, Cache& cache, ExecutorOptions options, std::unique_ptr<Trace> trace);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// Starts the lanes. Fails if a lane cannot open a slot, or not within open_limit.
  Result<void> start() KILN_EXCLUDES(mutex_);
  Future<JobReport> submit(Job job) KILN_EXCLUDES(mutex_);
  void drain() KILN_EXCLUDES(mutex_);
  /// Drains, then ends all threads. After a hang, detaches lanes that do not return from their driver.
  void stop() KILN_EXCLUDES(mutex_);
  ExecutorStats stats() const KILN_EXCLUDES(mutex_);

  /// The next action of a lane.
  struct Turn {
    /// A job, which has begun.
    std::shared_ptr<JobState> job = {};
    /// Free idle device memory, then call reclaimed_memory(): a lane has run out of memory.
    std::optional<std::uint64_t> reclaim = {};
    /// Take no more jobs: the executor stops, or another lane has replaced this one.
    bool end = false;
  };
  /// Waits for something to do, until `until` at most; a lane without room for a job does not wait.
  Turn next(const std::shared_ptr<LaneState>& lane, bool has_room, Clock::time_point until) KILN_EXCLUDES(mutex_);
  void reclaimed_memory(LaneState& lane, std::uint64_t reclaim) KILN_EXCLUDES(mutex_);
  /// The lane is done with a job whose end was claimed. `result` is the job's result if the lane claimed the end,
  /// and empty if the watch thread did.
  void finish(LaneState& lane, JobState& job, std::optional<Result<JobReport>> result) KILN_EXCLUDES(mutex_);
  /// A job's time limit, and the time that a job past its limit still has before it is abandoned.
  Clock::duration time_limit_of(const Job& job) const noexcept;
  Clock::duration grace_of(const Job& job) const noexcept;
  /// The lane abandoned a job to a device that does not respond: starts another lane in its place.
  void abandoned(const std::shared_ptr<LaneState>& lane) KILN_EXCLUDES(mutex_);
  /// Returns a job that lacks memory even after reclaim() to the front of the queue, to begin when fewer jobs are
  /// in flight. False if no other job was in flight since the reclaim, or if the job has ended.
  bool put_back(LaneState& lane, const std::shared_ptr<JobState>& job) KILN_EXCLUDES(mutex_);
  /// Whether a lane has recently run out of memory; idle memory is then freed at once.
  bool is_short_of_memory() const noexcept { return short_of_memory_; }
  /// Frees idle device memory of the cache and of all lanes, and waits briefly for the lanes. False if the lane was
  /// replaced or the executor stops.
  bool reclaim(LaneState& lane) KILN_EXCLUDES(mutex_);

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
    std::shared_ptr<LaneState> lane = {};
    /// The job to end at the deadline. If null, the lane must have made progress since `rounds` instead.
    std::shared_ptr<JobState> job = {};
    std::uint64_t rounds = 0;
    /// Whether the lane must have opened a slot by the deadline. If not, no lane replaces it, because opening would
    /// hang again.
    bool opens = false;
  };
  static constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();
  using Deadline = std::pair<Clock::time_point, const void*>;

  /// Requests everything that the job depends on.
  void await(const std::shared_ptr<JobState>& job);
  /// Ends a job whose predecessor failed.
  void end_dependent(const std::shared_ptr<JobState>& job, const Error& error) KILN_EXCLUDES(mutex_);
  void arrived(const std::shared_ptr<JobState>& job) KILN_EXCLUDES(mutex_);
  /// Fails queued jobs if no lane is left because no replacement thread could be started.
  void end_without_lanes() KILN_EXCLUDES(mutex_);
  /// Removes the job from the lane's bookkeeping.
  void forget(LaneState& lane, const JobState& job) KILN_REQUIRES(mutex_);
  /// Ends a job with an error if it has not begun; returns whether it did.
  bool end_queued(JobState& job, Error error, std::atomic<std::uint64_t>& counter) KILN_EXCLUDES(mutex_);
  /// Decrements a counter that drain() or stop() wait for.
  void one_less(std::uint64_t& count) KILN_REQUIRES(mutex_);
  /// Runs `work` on a continuation thread, or on this thread once the executor stops.
  void run_later(std::function<void()> work) KILN_EXCLUDES(mutex_);

  /// Starts a lane. The lane passes the result of opening its first slot to `opened`, and ends if that returns
  /// false.
  std::shared_ptr<LaneState> start_lane(unsigned number, const std::function<bool(Result<void>)>& opened)
      KILN_REQUIRES(mutex_);
  void watch(const std::shared_ptr<LaneState>& lane, const std::shared_ptr<JobState>& job, Clock::duration limit)
      KILN_REQUIRES(mutex_);
  /// Schedules a check, after `time`, that the lane has made progress.
  void watch(Watched lane, Clock::duration time) KILN_REQUIRES(mutex_);
  /// The body of the watch thread: ends jobs past their deadline, until the executor stops.
  void keep_watch() KILN_EXCLUDES(mutex_);
  void tell_timed_out(const JobState& job) KILN_EXCLUDES(mutex_);
  /// Gives up a lane that does not respond; starts a replacement if `by_another`.
  void replace(const std::shared_ptr<LaneState>& lane, bool by_another) KILN_REQUIRES(mutex_);

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
  /// Jobs whose predecessors failed, and whether a thread is ending them.
  std::deque<std::pair<std::shared_ptr<JobState>, Error>> dependents_ KILN_GUARDED_BY(mutex_);
  bool ends_dependents_ KILN_GUARDED_BY(mutex_) = false;
  /// Jobs that have not begun, jobs that have not ended, and continuations that must end before stop() returns.
  std::size_t queued_ KILN_GUARDED_BY(mutex_) = 0;
  std::uint64_t unfinished_ KILN_GUARDED_BY(mutex_) = 0;
  std::uint64_t busy_elsewhere_ KILN_GUARDED_BY(mutex_) = 0;
  /// Jobs in flight, without those of replaced lanes, and the limit for them. Jobs ended since the last
  /// out-of-memory, and in total.
  std::size_t under_way_ KILN_GUARDED_BY(mutex_) = 0;
  std::size_t most_under_way_ KILN_GUARDED_BY(mutex_) = no_limit;
  std::uint64_t had_memory_ KILN_GUARDED_BY(mutex_) = 0;
  std::uint64_t ends_ KILN_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> short_of_memory_ = false;
  std::uint64_t reclaims_ KILN_GUARDED_BY(mutex_) = 0;
  base::Condition reclaimed_;
  bool stopping_ KILN_GUARDED_BY(mutex_) = false;
  /// Whether a job or a driver call has hung: lanes may never return from the driver.
  bool hung_ KILN_GUARDED_BY(mutex_) = false;
  std::vector<LaneThread> lanes_ KILN_GUARDED_BY(mutex_);
  /// Pending time limits, by deadline.
  std::map<Deadline, Watched> watched_ KILN_GUARDED_BY(mutex_);
  std::thread watch_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::exec
