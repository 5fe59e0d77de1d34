#pragma once

#include <deque>
#include <functional>
#include <thread>

#include "base/mutex.hpp"

namespace kiln::cache {

/// One thread that saves in the background, behind a bounded queue. Destruction does what is queued.
class Writer {
 public:
  explicit Writer(std::size_t bound) : bound_(bound) {}
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  /// Queues the job; where the queue is full or there is no thread, does it here and now instead.
  void write(std::function<void()> job) KILN_EXCLUDES(mutex_);
  /// Waits until everything queued before is done; on the writer's own thread, where a store may call it, for
  /// nothing.
  void flush() KILN_EXCLUDES(mutex_);

 private:
  /// Starts the thread unless it runs already; false where none can be had.
  bool start() KILN_REQUIRES(mutex_);
  void run() KILN_EXCLUDES(mutex_);

  const std::size_t bound_;
  base::Mutex mutex_;
  base::Condition changed_;
  std::deque<std::function<void()>> queue_ KILN_GUARDED_BY(mutex_);
  // Jobs ever queued and ever done.
  std::uint64_t queued_ KILN_GUARDED_BY(mutex_) = 0;
  std::uint64_t done_ KILN_GUARDED_BY(mutex_) = 0;
  bool stopping_ KILN_GUARDED_BY(mutex_) = false;
  std::thread thread_ KILN_GUARDED_BY(mutex_);
  std::thread::id runner_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::cache
