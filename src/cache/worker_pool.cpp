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
  bool counts = false;
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

void WorkerPool::submit(std::function<void()> work) {
  {
    const base::MutexLock lock(mutex_);
    // After finish() no thread can be started.
    if (!stopping_ || !threads_.empty()) {
      waiting_.push_back(std::move(work));
      if (find_taker()) return;
      work = std::move(waiting_.back());
      waiting_.pop_back();
    }
  }
  do_work(std::move(work));
}

bool WorkerPool::find_taker() {
  if (active_ >= size_) return true;
  const std::size_t wanted = std::min(waiting_.size(), size_ - active_);
  if (idle_ < wanted && !start() && idle_ == 0) return active_ > 0;
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

bool WorkerPool::leave() {
  if (membership.pool != this) return false;
  const bool counted = std::exchange(membership.counts, false);
  bool taken = true;
  {
    const base::MutexLock lock(mutex_);
    if (counted) --active_;
    if (!waiting_.empty()) taken = find_taker();
  }
  // No thread available: run the work that this thread may wait for first.
  if (!taken) do_waiting_work_here();
  return counted;
}

void WorkerPool::come_back() {
  membership.counts = true;
  const base::MutexLock lock(mutex_);
  // May exceed size_ until the current work ends.
  ++active_;
}

void WorkerPool::do_waiting_work_here() {
  if (membership.depth >= max_depth) return;
  ++membership.depth;
  for (;;) {
    std::function<void()> work;
    {
      const base::MutexLock lock(mutex_);
      if (waiting_.empty()) break;
      work = std::move(waiting_.front());
      waiting_.pop_front();
    }
    do_work(std::move(work));
  }
  --membership.depth;
}

void WorkerPool::run(std::list<std::thread>::iterator self) {
  pthread_setname_np(pthread_self(), "kiln-worker");
  membership = {this, false, 0};
  while (auto work = take_next()) {
    membership.counts = true;
    do_work(std::move(work));
    const base::MutexLock lock(mutex_);
    if (membership.counts) --active_;
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
    if (!waiting_.empty() && active_ < size_) {
      --idle_;
      ++active_;
      auto work = std::move(waiting_.front());
      waiting_.pop_front();
      return work;
    }
    // End if the pool stops, or if enough other threads are idle.
    if ((waiting_.empty() && stopping_) || idle_ > size_) {
      --idle_;
      return nullptr;
    }
    changed_.wait(mutex_);
  }
}

}  // namespace kiln::cache
