#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#include <kiln/executor.hpp>

namespace kiln::exec {

/// A job from its submission to its end. Who moves it to the next phase owns it until the one after: the futures'
/// threads while it is queued, then the one lane that began it. Only one can end it.
class JobState {
 public:
  JobState(Job submitted, std::shared_ptr<const detail::Continue> where)
      : job(std::move(submitted)),
        promise(std::move(where)),
        programs(job.steps.size()),
        // One more than there is, for submit(), which has all waited for before anything can happen.
        waiting_for_(job.steps.size() + job.after.size() + 1) {}

  Job job;
  const Promise<JobReport> promise;
  /// One a step, each written once before the last arrive().
  std::vector<Program> programs;
  /// When its time is over, once a lane has taken it; guarded by the scheduler's mutex.
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();

  /// Lets go of the caller's buffers and of the programs, before anyone is told of the end; by the lane that began
  /// it.
  void let_go() noexcept {
    programs.clear();
    job.memory.clear();
    job.steps.clear();
  }

  /// Counts down what it waits for; whether that was the last.
  bool arrive() noexcept { return waiting_for_.fetch_sub(1, std::memory_order_acq_rel) == 1; }
  /// Takes the job for a lane: whether nobody has ended it.
  bool begin() noexcept { return move(Phase::queued, Phase::begun); }
  /// Puts a job that has begun back into the queue: whether nobody has ended it.
  bool put_back() noexcept { return move(Phase::begun, Phase::queued); }
  /// Ends a job that has not begun; whether this was in time.
  bool end_queued() noexcept { return move(Phase::queued, Phase::ended); }
  /// Claims the end of a job that has begun, for the lane or for the watch: whether nobody has, and its caller's
  /// memory is not being read just now. Who has claimed it sets the promise.
  bool end_begun() noexcept { return move(Phase::begun, Phase::ended); }
  /// Around what reads the caller's memory: whether nobody has ended the job, and may not before stop_reading().
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
