#pragma once

#include <deque>
#include <functional>
#include <list>
#include <thread>
#include <vector>

#include "base/mutex.hpp"

namespace kiln::cache {

/// A few threads for work in the background, started when there first is some.
///
/// A worker that may wait for other work of the pool, in a user's callback or for another thread's flight, does not
/// count as one meanwhile: another thread, started if need be, takes its place. Afterwards as many surplus threads
/// as the pool has workers are kept for the next such occasion; the others end.
class WorkerPool {
 public:
  explicit WorkerPool(unsigned threads) : size_(threads) {}
  ~WorkerPool() { finish(); }
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  /// How many works run at the same time at most, apart from uncounted ones.
  std::size_t size() const noexcept { return size_; }

  /// Does all work that was submitted, and ends the threads. Later work runs on the submitting thread.
  void finish() KILN_EXCLUDES(mutex_);
  /// Exceptions out of the work are dropped. If no thread can be had, the work runs on this one.
  void submit(std::function<void()> work) KILN_EXCLUDES(mutex_);

  /// While it lives, this thread may wait for other work of the pool. Without effect on threads that are not the
  /// pool's.
  class Uncounted {
   public:
    explicit Uncounted(WorkerPool& pool) : pool_(pool), left_(pool.leave()) {}
    ~Uncounted() {
      if (left_) pool_.come_back();
    }
    Uncounted(const Uncounted&) = delete;
    Uncounted& operator=(const Uncounted&) = delete;

   private:
    WorkerPool& pool_;
    const bool left_;
  };

  /// This thread may wait for what it is about to submit. If it is one of the pool's, it no longer counts as a
  /// worker until its present work ends.
  void let_caller_wait() { static_cast<void>(leave()); }

 private:
  /// Whether this thread was a worker that counted, and no longer does.
  bool leave() KILN_EXCLUDES(mutex_);
  void come_back() KILN_EXCLUDES(mutex_);
  /// Wakes or starts a thread for the work that waits. False if no thread will ever run it.
  bool find_taker() KILN_REQUIRES(mutex_);
  bool start() KILN_REQUIRES(mutex_);
  void run(std::list<std::thread>::iterator self) KILN_EXCLUDES(mutex_);
  /// The next work; none if the thread is to end.
  std::function<void()> take_next() KILN_EXCLUDES(mutex_);
  void do_waiting_work_here() KILN_EXCLUDES(mutex_);

  const std::size_t size_;
  base::Mutex mutex_;
  base::Condition changed_;
  base::Condition all_ended_;
  std::deque<std::function<void()>> waiting_ KILN_GUARDED_BY(mutex_);
  // Threads that wait for work, or have just been started.
  std::size_t idle_ KILN_GUARDED_BY(mutex_) = 0;
  // Threads at work, apart from uncounted ones.
  std::size_t active_ KILN_GUARDED_BY(mutex_) = 0;
  bool stopping_ KILN_GUARDED_BY(mutex_) = false;
  std::list<std::thread> threads_ KILN_GUARDED_BY(mutex_);
  // Those that have ended, or are about to.
  std::list<std::thread> ended_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::cache
