#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "exec/lane_slot.hpp"
#include "exec/scheduler.hpp"

namespace kiln::exec {

/// The work of one thread: takes jobs, keeps three of them under way, and ends them. Everything in it is that
/// thread's alone.
class Lane {
 public:
  Lane(std::shared_ptr<Scheduler> scheduler, std::shared_ptr<LaneState> state);

  /// Opens the first slot, asks `opened` whether to go on with that, and works until there is no more to do.
  void run(const std::function<bool(Result<void>)>& opened);

 private:
  /// Ends the jobs that have come to an end.
  void finish_ended();
  void start(const std::shared_ptr<JobState>& job);
  void reclaim();
  /// When to look again for jobs that have ended.
  Clock::time_point next_look() const;
  /// One for the next job; none where the lane is to take no more.
  LaneSlot* idle_slot();
  bool busy() const;

  const std::shared_ptr<Scheduler> scheduler_;
  const std::shared_ptr<LaneState> state_;
  std::vector<std::unique_ptr<LaneSlot>> slots_;
  /// The program launched last, only to be compared.
  const Module* last_launched_ = nullptr;
  Clock::time_point last_progress_ = {};
};

}  // namespace kiln::exec
