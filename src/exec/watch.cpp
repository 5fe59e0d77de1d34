#include <algorithm>
#include <system_error>
#include <utility>

#include <pthread.h>

#include <fmt/format.h>

#include "exec/scheduler.hpp"

// The parts of Scheduler that handle failures. A watch thread ends jobs past their time limit, and replaces lanes
// that do not return from their driver. If the device has no memory for a job, reclaim() frees idle memory, and
// put_back() lowers the number of jobs in flight.
namespace kiln::exec {

Clock::duration Scheduler::time_limit_of(const Job& job) const noexcept {
  return job.time_limit.count() > 0 ? job.time_limit : options_.time_limit;
}

Clock::duration Scheduler::grace_of(const Job& job) const noexcept {
  constexpr Clock::duration shortest = std::chrono::milliseconds(10);
  const Clock::duration limit = time_limit_of(job);
  return limit.count() > 0 ? std::clamp(limit, shortest, longest_grace) : longest_grace;
}

void Scheduler::watch(const std::shared_ptr<LaneState>& lane, const std::shared_ptr<JobState>& job,
                      Clock::duration limit) {
  if (limit.count() <= 0) return;
  job->deadline = detail::after(limit);
  if (job->deadline == Clock::time_point::max()) return;
  watched_.insert_or_assign({job->deadline, job.get()}, Watched{.lane = lane, .job = job});
  watch_changed_.notify_one();
}

void Scheduler::watch(Watched lane, Clock::duration time) {
  const void* const key = lane.lane.get();
  watched_.insert_or_assign({detail::after(time), key}, std::move(lane));
  watch_changed_.notify_one();
}

void Scheduler::keep_watch() {
  pthread_setname_np(pthread_self(), "kiln-watch");
  for (;;) {
    Watched over;
    bool timed_out = false;
    {
      const base::MutexLock lock(mutex_);
      while (watched_.empty() || Clock::now() < watched_.begin()->first.first) {
        if (stopping_) return;
        if (watched_.empty()) {
          watch_changed_.wait(mutex_);
        } else {
          watch_changed_.wait_until(mutex_, watched_.begin()->first.first);
        }
      }
      over = std::move(watched_.begin()->second);
      watched_.erase(watched_.begin());
      if (over.job != nullptr) {
        timed_out = over.job->end_begun();
        // The lane is reading the caller's memory, which is brief: check again soon.
        if (!timed_out && !over.job->ended()) watch(over.lane, over.job, std::chrono::milliseconds(1));
      } else if (!over.lane->waiting && over.lane->rounds == over.rounds) {
        replace(over.lane, !over.opens);
      }
      if (timed_out) {
        // The lane may be blocked in the driver.
        hung_ = true;
        watch(Watched{.lane = over.lane, .rounds = over.lane->rounds}, grace_of(over.job->job));
      }
    }
    if (timed_out) tell_timed_out(*over.job);
    if (over.job == nullptr) end_without_lanes();
  }
}

void Scheduler::tell_timed_out(const JobState& job) {
  ++counters.timed_out;
  job.promise.set(Error(
      ErrorCode::timed_out,
      fmt::format("{} did not end within its time limit; its memory stays in use until the device finishes it, "
                  "possibly forever",
                  title(job.job))));
  const base::MutexLock lock(mutex_);
  one_less(unfinished_);
}

void Scheduler::abandoned(const std::shared_ptr<LaneState>& lane) {
  {
    const base::MutexLock lock(mutex_);
    replace(lane, true);
  }
  end_without_lanes();
}

void Scheduler::replace(const std::shared_ptr<LaneState>& lane, bool by_another) {
  const auto own =
      std::find_if(lanes_.begin(), lanes_.end(), [&](const LaneThread& each) { return each.state == lane; });
  // stop() handles lanes that do not end.
  if (own == lanes_.end() || stopping_) return;
  lane->replaced = true;
  under_way_ -= lane->jobs.size();
  work_.notify_all();
  own->thread.detach();
  lanes_.erase(own);
  // The lane's other jobs may hang as well; give those without a time limit a deadline.
  for (const auto& job : lane->jobs)
    if (job->deadline == Clock::time_point::max()) watch(lane, job, longest_grace);
  if (!by_another) return;
  try {
    const auto other = start_lane(lane->number, [](const Result<void>&) { return true; });
    if (options_.open_limit.count() > 0) watch(Watched{.lane = other, .opens = true}, options_.open_limit);
  } catch (const std::system_error&) {
    // The remaining lanes continue; if there is none, end_without_lanes() fails the queued jobs.
  }
}

void Scheduler::reclaimed_memory(LaneState& lane, std::uint64_t reclaim) {
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
  // Working lanes respond at their next poll. Do not wait for a lane that is blocked in the driver.
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
