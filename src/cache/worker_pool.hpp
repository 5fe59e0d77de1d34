#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "base/mutex.hpp"

namespace kiln::cache {

/// A few threads for work in the background, started when there first is some.
class WorkerPool {
 public:
  explicit WorkerPool(unsigned threads) : size_(threads) {}
  ~WorkerPool() { finish(); }
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  /// Does all work that was submitted, and ends the threads; what is submitted later is done by who submits it.
  void finish() KILN_EXCLUDES(mutex_);
  /// The work must not throw. Done here and now where no thread can be had.
  void submit(std::function<void()> work) KILN_EXCLUDES(mutex_);

 private:
  void start() KILN_REQUIRES(mutex_);
  void run() KILN_EXCLUDES(mutex_);

  const std::size_t size_;
  base::Mutex mutex_;
  base::Condition changed_;
  std::deque<std::function<void()>> waiting_ KILN_GUARDED_BY(mutex_);
  std::size_t idle_ KILN_GUARDED_BY(mutex_) = 0;
  bool stopping_ KILN_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::cache
