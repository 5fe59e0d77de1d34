#pragma once

#include <condition_variable>
#include <mutex>

namespace kiln::fakes {

/// Blocks the threads that call pass() until it is opened.
class Gate {
 public:
  ~Gate() { open(); }
  void pass() {
    std::unique_lock lock(mutex_);
    ++arrived_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  void wait_for_somebody() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return arrived_ > 0; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int arrived_ = 0;
  bool open_ = false;
};

}  // namespace kiln::fakes
