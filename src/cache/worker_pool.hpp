#pragma once

#include <array>
#include <deque>
#include <functional>
#include <list>
#include <optional>
#include <thread>
#include <vector>

#include <kiln/backend.hpp>

#include "base/mutex.hpp"

namespace kiln::cache {

/// Threads for the work of a cache, started on demand. Urgent work comes before work in the background, and has
/// threads of its own if that occupies all others.
///
/// A worker that may wait for other work of the pool, in a user callback or for another thread's flight, does not
/// count as a worker meanwhile: another thread takes its place. Afterwards, as many surplus threads as the pool has
/// workers stay idle for reuse; the others end.
class WorkerPool {
 public:
  explicit WorkerPool(unsigned threads) : size_(threads) {}
  ~WorkerPool() { finish(); }
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  /// The maximum number of concurrent work items of each urgency, not including uncounted ones.
  std::size_t size() const noexcept { return size_; }

  /// Runs all submitted work, then ends the threads. Later work runs on the submitting thread.
  void finish() KILN_EXCLUDES(mutex_);
  /// Drops exceptions from the work. If no thread can be started, runs the work on the calling thread.
  void submit(std::function<void()> work, Urgency urgency = Urgency::now) KILN_EXCLUDES(mutex_);

  /// During its lifetime, this thread may wait for other work of the pool. Has no effect on threads outside the
  /// pool.
  class Uncounted {
   public:
    explicit Uncounted(WorkerPool& pool) : pool_(pool), left_(pool.leave()) {}
    ~Uncounted() {
      if (left_) pool_.come_back(*left_);
    }
    Uncounted(const Uncounted&) = delete;
    Uncounted& operator=(const Uncounted&) = delete;

   private:
    WorkerPool& pool_;
    const std::optional<Urgency> left_;
  };

  /// Call before submitting work that this thread may wait for. A worker then does not count as one until its
  /// current work ends.
  void let_caller_wait() { static_cast<void>(leave()); }

 private:
  /// Work that waits for a thread, and threads that run such work, not including uncounted ones.
  struct Work {
    std::deque<std::function<void()>> waiting;
    std::size_t active = 0;
  };

  /// Stops counting this thread as a worker; returns for which work it counted before.
  std::optional<Urgency> leave() KILN_EXCLUDES(mutex_);
  void come_back(Urgency urgency) KILN_EXCLUDES(mutex_);
  Work& work_of(Urgency urgency) KILN_REQUIRES(mutex_) { return works_[static_cast<std::size_t>(urgency)]; }
  bool has_waiting() const KILN_REQUIRES(mutex_) {
    return !works_[0].waiting.empty() || !works_[1].waiting.empty();
  }
  /// How many threads work of an urgency may have. Background work gets only the threads that urgent work leaves.
  std::size_t room_for(Urgency urgency) KILN_REQUIRES(mutex_);
  /// Wakes or starts a thread for waiting work. False if no thread will ever run it.
  bool find_taker() KILN_REQUIRES(mutex_);
  bool start() KILN_REQUIRES(mutex_);
  void run(std::list<std::thread>::iterator self) KILN_EXCLUDES(mutex_);
  /// The next work item; empty if the thread must end.
  std::function<void()> take_next() KILN_EXCLUDES(mutex_);
  void do_waiting_work_here() KILN_EXCLUDES(mutex_);

  const std::size_t size_;
  base::Mutex mutex_;
  base::Condition changed_;
  base::Condition all_ended_;
  std::array<Work, 2> works_ KILN_GUARDED_BY(mutex_);
  // Threads that wait for work or have just started.
  std::size_t idle_ KILN_GUARDED_BY(mutex_) = 0;
  bool stopping_ KILN_GUARDED_BY(mutex_) = false;
  std::list<std::thread> threads_ KILN_GUARDED_BY(mutex_);
  // Threads that have ended or are about to end.
  std::list<std::thread> ended_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::cache
