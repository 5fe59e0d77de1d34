#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "exec/lane_slot.hpp"
#include "exec/scheduler.hpp"

namespace kiln::exec {

/// The work of one executor thread: takes jobs, keeps up to three in flight, and ends them. Only that thread uses
/// it.
class Lane {
 public:
  Lane(std::shared_ptr<Scheduler> scheduler, std::shared_ptr<LaneState> state);

  /// Opens the first slot and passes the result to `opened`. Returns if that returns false; otherwise works until
  /// the scheduler ends the lane.
  void run(const std::function<bool(Result<void>)>& opened);

 private:
  /// Ends the jobs that the device has finished.
  void finish_ended();
  void start(const std::shared_ptr<JobState>& job);
  void reclaim();
  /// When to poll again for finished jobs.
  Clock::time_point next_look() const;
  /// A slot for the next job; null if the lane cannot take one.
  LaneSlot* idle_slot();
  bool busy() const;

  const std::shared_ptr<Scheduler> scheduler_;
  const std::shared_ptr<LaneState> state_;
  std::vector<std::unique_ptr<LaneSlot>> slots_;
  /// The last program launched; only compared, never dereferenced.
  const Module* last_launched_ = nullptr;
  Clock::time_point last_progress_ = {};
};

}  // namespace kiln::exec
