#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#include <kiln/executor.hpp>

namespace kiln::exec {

/// A job from submission to end. The thread that moves a job to a phase owns it until the next phase: get_async()
/// callbacks while it is queued, then the lane that began it. Exactly one thread ends it.
class JobState {
 public:
  JobState(Job submitted, std::shared_ptr<const detail::Continue> where)
      : job(std::move(submitted)),
        promise(std::move(where)),
        programs(job.steps.size()),
        // One more than the number of dependencies, so that the job cannot start before submit() has registered all
        // of them.
        waiting_for_(job.steps.size() + job.after.size() + 1) {}

  Job job;
  const Promise<JobReport> promise;
  /// One per step, each written once before the last arrive().
  std::vector<Program> programs;
  /// When the job times out, once a lane has begun it; guarded by the scheduler's mutex.
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();

  /// Releases the caller's buffers and the programs before the promise is set. Only the lane that began the job
  /// calls this.
  void let_go() noexcept {
    programs.clear();
    job.memory.clear();
    job.steps.clear();
  }

  /// Counts one dependency as ready; returns whether it was the last.
  bool arrive() noexcept { return waiting_for_.fetch_sub(1, std::memory_order_acq_rel) == 1; }
  /// A lane takes the job; false if it has already ended.
  bool begin() noexcept { return move(Phase::queued, Phase::begun); }
  /// Returns a job that has begun to the queue; false if it has already ended.
  bool put_back() noexcept { return move(Phase::begun, Phase::queued); }
  /// Ends a job that has not begun; false if it has begun or ended.
  bool end_queued() noexcept { return move(Phase::queued, Phase::ended); }
  /// Claims the end of a job that has begun, for the lane or the watch thread. False if it has already ended, or
  /// while the lane reads the caller's memory. The thread that claims the end sets the promise.
  bool end_begun() noexcept { return move(Phase::begun, Phase::ended); }
  /// Call before reading the caller's memory; false if the job has ended. The job cannot end before stop_reading().
  bool start_reading() noexcept { return move(Phase::begun, Phase::reading); }
  void stop_reading() noexcept { phase_.store(Phase::begun, std::memory_order_release); }
  bool ended() const noexcept { return phase_.load(std::memory_order_acquire) == Phase::ended; }

 private:
  enum class Phase { queued, begun, reading, ended };
  bool move(Phase from, Phase to) noexcept {
    return phase_.compare_exchange_strong(from, to, std::memory_order_acq_rel);
  }

  std::atomic<std::size_t> waiting_for_;
  std::atomic<Phase> phase_ = Phase::queued;
};

}  // namespace kiln::exec
