#include "cache/worker_pool.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include <pthread.h>

namespace kiln::cache {
namespace {

/// The pool that this thread belongs to.
struct Membership {
  const WorkerPool* pool = nullptr;
  /// The work that it counts for; nothing while it does not count.
  std::optional<Urgency> counts = {};
  /// The number of nested do_waiting_work_here() calls.
  int depth = 0;
};
thread_local Membership membership;

// Without threads, a caller runs the work that it would wait for on its own stack; this bounds the recursion.
constexpr int max_depth = 8;

void do_work(std::function<void()> work) {
  try {
    work();
  } catch (...) {
    // For example out of memory; a broken promise informs the waiting thread.
  }
}

}  // namespace

void WorkerPool::finish() {
  std::list<std::thread> ended;
  {
    const base::MutexLock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    while (!threads_.empty()) all_ended_.wait(mutex_);
    ended.swap(ended_);
  }
  for (std::thread& thread : ended) thread.join();
}

void WorkerPool::submit(std::function<void()> work, Urgency urgency) {
  {
    const base::MutexLock lock(mutex_);
    // After finish() no thread can be started.
    if (!stopping_ || !threads_.empty()) {
      auto& waiting = work_of(urgency).waiting;
      waiting.push_back(std::move(work));
      if (find_taker()) return;
      work = std::move(waiting.back());
      waiting.pop_back();
    }
  }
  do_work(std::move(work));
}

std::size_t WorkerPool::room_for(Urgency urgency) {
  const std::size_t urgent = work_of(Urgency::now).active;
  const std::size_t used = urgency == Urgency::now ? urgent : urgent + work_of(Urgency::background).active;
  return used < size_ ? size_ - used : 0;
}

bool WorkerPool::find_taker() {
  const std::size_t urgent = std::min(work_of(Urgency::now).waiting.size(), room_for(Urgency::now));
  const std::size_t room = room_for(Urgency::background);
  const std::size_t wanted =
      urgent + std::min(work_of(Urgency::background).waiting.size(), room > urgent ? room - urgent : 0);
  if (wanted == 0) return true;
  if (idle_ < wanted && !start() && idle_ == 0) return works_[0].active + works_[1].active > 0;
  changed_.notify_one();
  return true;
}

bool WorkerPool::start() {
  threads_.emplace_front();
  const auto self = threads_.begin();
  try {
    *self = std::thread([this, self] { run(self); });
  } catch (const std::exception&) {
    // No thread available: existing threads or the submitting one do the work.
    threads_.erase(self);
    return false;
  }
  ++idle_;
  return true;
}

std::optional<Urgency> WorkerPool::leave() {
  if (membership.pool != this) return std::nullopt;
  const auto counted = std::exchange(membership.counts, std::nullopt);
  bool taken = true;
  {
    const base::MutexLock lock(mutex_);
    if (counted) --work_of(*counted).active;
    if (has_waiting()) taken = find_taker();
  }
  // No thread available: run the work that this thread may wait for first.
  if (!taken) do_waiting_work_here();
  return counted;
}

void WorkerPool::come_back(Urgency urgency) {
  membership.counts = urgency;
  const base::MutexLock lock(mutex_);
  // May exceed size_ until the current work ends.
  ++work_of(urgency).active;
}

void WorkerPool::do_waiting_work_here() {
  if (membership.depth >= max_depth) return;
  ++membership.depth;
  for (;;) {
    std::function<void()> work;
    {
      const base::MutexLock lock(mutex_);
      if (!has_waiting()) break;
      auto& waiting = works_[works_[0].waiting.empty() ? 1 : 0].waiting;
      work = std::move(waiting.front());
      waiting.pop_front();
    }
    do_work(std::move(work));
  }
  --membership.depth;
}

void WorkerPool::run(std::list<std::thread>::iterator self) {
  pthread_setname_np(pthread_self(), "kiln-worker");
  membership = {this, std::nullopt, 0};
  while (auto work = take_next()) {
    do_work(std::move(work));
    const base::MutexLock lock(mutex_);
    if (membership.counts) --work_of(*membership.counts).active;
    ++idle_;
  }
  std::list<std::thread> ended;
  {
    const base::MutexLock lock(mutex_);
    ended.swap(ended_);
    ended_.splice(ended_.begin(), threads_, self);
    // The pool is stopping: wake idle threads so that they end.
    if (stopping_) changed_.notify_all();
    if (threads_.empty()) all_ended_.notify_all();
  }
  // Join earlier threads here, so that finish() has at most one left to join.
  for (std::thread& thread : ended) thread.join();
}

std::function<void()> WorkerPool::take_next() {
  const base::MutexLock lock(mutex_);
  for (;;) {
    for (const Urgency urgency : {Urgency::now, Urgency::background}) {
      Work& works = work_of(urgency);
      if (works.waiting.empty() || room_for(urgency) == 0) continue;
      --idle_;
      ++works.active;
      membership.counts = urgency;
      auto work = std::move(works.waiting.front());
      works.waiting.pop_front();
      return work;
    }
    // End if the pool stops, or if enough other threads are idle.
    if ((!has_waiting() && stopping_) || idle_ > size_) {
      --idle_;
      return nullptr;
    }
    changed_.wait(mutex_);
  }
}

}  // namespace kiln::cache
