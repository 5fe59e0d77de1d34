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
#include "exec/job_state.hpp"
#include "exec/trace.hpp"

namespace kiln::exec {

using Clock = std::chrono::steady_clock;
constexpr Clock::duration longest_grace = std::chrono::seconds(1);
/// Jobs under way at once in a lane: one is uploaded, one computes, one is downloaded.
constexpr unsigned slots_of_a_lane = 3;

/// What errors call a job.
std::string title(const Job& job);

/// A lane as the others see it. All but its number is guarded by the scheduler's mutex.
struct LaneState {
  explicit LaneState(unsigned lane) noexcept : number(lane) {}
  const unsigned number;
  /// The jobs it has begun and not ended.
  std::vector<std::shared_ptr<JobState>> jobs = {};
  /// Whether it waits for a job; otherwise it looks for what has ended, again and again, and counts its rounds.
  bool waiting = false;
  std::uint64_t rounds = 0;
  /// Whether another lane has taken its place: it ends what it has begun, and nothing else.
  bool replaced = false;
  /// Whether its thread is at its end.
  bool ended = false;
  /// The last Scheduler::reclaim() it has heeded, and whether it asks for one itself; and how many jobs had ended
  /// then.
  std::uint64_t reclaims = 0;
  bool reclaiming = false;
  std::uint64_t ends = 0;
};

/// What the lanes of an executor, its callers and its watch share: the queue of jobs and the counts.
///
/// Lanes and callbacks hold it, so that it outlives a lane that never comes back from its driver.
class Scheduler : public std::enable_shared_from_this<Scheduler> {
 public:
  Scheduler(std::shared_ptr<Device> device, Cache& cache, ExecutorOptions options, std::unique_ptr<Trace> trace);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// Starts the lanes; the error of the first that could not open a slot, or not in time.
  Result<void> start() KILN_EXCLUDES(mutex_);
  Future<JobReport> submit(Job job) KILN_EXCLUDES(mutex_);
  void drain() KILN_EXCLUDES(mutex_);
  /// Drains, and ends all threads but lanes that do not come back from their driver after a job has hung.
  void stop() KILN_EXCLUDES(mutex_);
  ExecutorStats stats() const KILN_EXCLUDES(mutex_);

  /// What a lane is to do next.
  struct Turn {
    /// A job, which has begun.
    std::shared_ptr<JobState> job = {};
    /// Give back memory of the device, and then say that this was heeded(): somebody has run out of it.
    std::optional<std::uint64_t> reclaim = {};
    /// Take no more jobs: the executor ends, or another lane has taken the place of this one.
    bool end = false;
  };
  /// Waits for something to do until then; a lane without room for a job does not wait.
  Turn next(const std::shared_ptr<LaneState>& lane, bool has_room, Clock::time_point until) KILN_EXCLUDES(mutex_);
  void heeded(LaneState& lane, std::uint64_t reclaim) KILN_EXCLUDES(mutex_);
  /// The lane is done with a job, whose end somebody has claimed: the lane itself, which tells the result, or
  /// another.
  void finish(LaneState& lane, JobState& job, std::optional<Result<JobReport>> result) KILN_EXCLUDES(mutex_);
  /// How long a job may take, and how long what has hung on a device after that may still take to end.
  Clock::duration time_limit_of(const Job& job) const noexcept;
  Clock::duration grace_of(const Job& job) const noexcept;
  /// The lane had to leave a job to a device that does not answer: another takes its place.
  void abandoned(const std::shared_ptr<LaneState>& lane) KILN_EXCLUDES(mutex_);
  /// Puts a job for which there was no memory after a reclaim() back to the front of the queue, to be begun when
  /// fewer are under way; false where it was alone all the time since, or somebody has ended it.
  bool put_back(LaneState& lane, const std::shared_ptr<JobState>& job) KILN_EXCLUDES(mutex_);
  /// Whether somebody has lacked memory not long ago: what is idle is given back at once.
  bool is_short_of_memory() const noexcept { return short_of_memory_; }
  /// Has the cache and the idle slots of all lanes give back memory of the device, and waits a little for that.
  /// False where the lane was replaced, and it is no use any more.
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
    /// The job whose time is over then; or none, where the lane is to have gone on since.
    std::shared_ptr<JobState> job = {};
    std::uint64_t rounds = 0;
    /// Whether it is to have opened a slot by then: no other takes its place, which would fare no better.
    bool opens = false;
  };
  static constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();
  using Deadline = std::pair<Clock::time_point, const void*>;

  /// Gets everything that the job waits for.
  void await(const std::shared_ptr<JobState>& job);
  /// Ends a job whose predecessor has failed.
  void end_dependent(const std::shared_ptr<JobState>& job, const Error& error) KILN_EXCLUDES(mutex_);
  void arrived(const std::shared_ptr<JobState>& job) KILN_EXCLUDES(mutex_);
  /// Ends what is queued where a lane was lost and no thread could be had for another.
  void end_without_lanes() KILN_EXCLUDES(mutex_);
  /// The lane has no more to do with the job.
  void forget(LaneState& lane, const JobState& job) KILN_REQUIRES(mutex_);
  /// Ends a job that has not begun, unless it has; whether it did.
  bool end_queued(JobState& job, Error error, std::atomic<std::uint64_t>& counter) KILN_EXCLUDES(mutex_);
  /// Counts down what drain() or stop() wait for.
  void one_less(std::uint64_t& count) KILN_REQUIRES(mutex_);
  /// Runs `work` on a thread for continuations; here and now once the executor has ended.
  void run_later(std::function<void()> work) KILN_EXCLUDES(mutex_);

  /// Starts a lane, which asks `opened`, given whether it has a slot, whether to go on.
  std::shared_ptr<LaneState> start_lane(unsigned number, const std::function<bool(Result<void>)>& opened)
      KILN_REQUIRES(mutex_);
  void watch(const std::shared_ptr<LaneState>& lane, const std::shared_ptr<JobState>& job, Clock::duration limit)
      KILN_REQUIRES(mutex_);
  /// Has the watch see after this time whether the lane has gone on.
  void watch(Watched lane, Clock::duration time) KILN_REQUIRES(mutex_);
  /// Ends what takes too long, until the executor stops.
  void keep_watch() KILN_EXCLUDES(mutex_);
  void tell_timed_out(const JobState& job) KILN_EXCLUDES(mutex_);
  /// Gives up a lane that is of no use any more, and starts another in its place, unless that would be of none.
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
  /// Jobs whose predecessors have failed, and whether somebody is ending them.
  std::deque<std::pair<std::shared_ptr<JobState>, Error>> dependents_ KILN_GUARDED_BY(mutex_);
  bool ends_dependents_ KILN_GUARDED_BY(mutex_) = false;
  /// Jobs that have not begun, jobs that have not ended, and all else that must end before the executor can.
  std::size_t queued_ KILN_GUARDED_BY(mutex_) = 0;
  std::uint64_t unfinished_ KILN_GUARDED_BY(mutex_) = 0;
  std::uint64_t busy_elsewhere_ KILN_GUARDED_BY(mutex_) = 0;
  /// Jobs that lanes have begun, without those that were replaced; how many may be so at once; and how many ended
  /// since somebody lacked memory, and ever.
  std::size_t under_way_ KILN_GUARDED_BY(mutex_) = 0;
  std::size_t most_under_way_ KILN_GUARDED_BY(mutex_) = no_limit;
  std::uint64_t had_memory_ KILN_GUARDED_BY(mutex_) = 0;
  std::uint64_t ends_ KILN_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> short_of_memory_ = false;
  std::uint64_t reclaims_ KILN_GUARDED_BY(mutex_) = 0;
  base::Condition reclaimed_;
  bool stopping_ KILN_GUARDED_BY(mutex_) = false;
  /// Whether something has hung: lanes may be with the driver for ever.
  bool hung_ KILN_GUARDED_BY(mutex_) = false;
  std::vector<LaneThread> lanes_ KILN_GUARDED_BY(mutex_);
  /// What has a time limit, by when it is over.
  std::map<Deadline, Watched> watched_ KILN_GUARDED_BY(mutex_);
  std::thread watch_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::exec
