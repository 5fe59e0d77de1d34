// What the executor does where the device has no memory left for a job: has what is idle given back, and lets fewer
// jobs be under way at once.

#include <algorithm>

#include "exec/scheduler.hpp"

namespace kiln::exec {

void Scheduler::heeded(LaneState& lane, std::uint64_t reclaim) {
  const base::MutexLock lock(mutex_);
  lane.reclaims = reclaim;
  reclaimed_.notify_all();
}

bool Scheduler::reclaim(LaneState& lane) {
  {
    const base::MutexLock lock(mutex_);
    if (lane.replaced || stopping_) return false;
    ++counters.memory_retries;
    lane.reclaims = ++reclaims_;
    lane.reclaiming = true;
    short_of_memory_ = true;
    had_memory_ = 0;
    work_.notify_all();
  }
  cache_.trim(0);
  const base::MutexLock lock(mutex_);
  const auto all_heeded = [this]() KILN_REQUIRES(mutex_) {
    return std::all_of(lanes_.begin(), lanes_.end(), [this](const LaneThread& each) KILN_REQUIRES(mutex_) {
      return each.state->reclaiming || each.state->reclaims == reclaims_;
    });
  };
  // Lanes at work heed it when they next look; one that is with the driver for long is not waited for.
  const auto until = Clock::now() + std::chrono::milliseconds(100);
  while (!all_heeded() && Clock::now() < until) reclaimed_.wait_until(mutex_, until);
  lane.reclaiming = false;
  lane.reclaims = reclaims_;
  lane.ends = ends_;
  return true;
}

bool Scheduler::put_back(LaneState& lane, const std::shared_ptr<JobState>& job) {
  const base::MutexLock lock(mutex_);
  const bool alone = under_way_ == (lane.replaced ? 0 : 1) && ends_ == lane.ends;
  if (alone || !job->put_back()) return false;
  forget(lane, *job);
  job->deadline = Clock::time_point::max();
  most_under_way_ = std::max<std::size_t>(under_way_, 1);
  ++queued_;
  ready_.push_front(job);
  work_.notify_one();
  return true;
}

}  // namespace kiln::exec
