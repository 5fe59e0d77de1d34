#pragma once

#include <chrono>
#include <cstddef>

#include "base/mutex.hpp"

namespace kiln::opengl {

/// Keeps launches and deletions of programs apart: any number of launches at once, or one deletion.
///
/// OpenGL asks for nothing of the kind; ShareGroup::prepare_launch() does, which must know that no program is
/// deleted while it prepares a launch.
class LaunchGate {
 public:
  /// A launch, from its preparation until the driver has it.
  class Launching {
   public:
    explicit Launching(LaunchGate& gate) : gate_(gate) {
      const base::MutexLock lock(gate_.mutex_);
      // Deletions are few and short: those that wait go first.
      while (gate_.deleting_ > 0) gate_.changed_.wait(gate_.mutex_);
      ++gate_.launching_;
    }
    ~Launching() {
      const base::MutexLock lock(gate_.mutex_);
      if (--gate_.launching_ == 0 && gate_.deleting_ > 0) gate_.changed_.notify_all();
    }
    Launching(const Launching&) = delete;
    Launching& operator=(const Launching&) = delete;

   private:
    LaunchGate& gate_;
  };

  /// A deletion.
  class Deleting {
   public:
    explicit Deleting(LaunchGate& gate) : gate_(gate) {
      const base::MutexLock lock(gate_.mutex_);
      ++gate_.deleting_;
      // Drivers that run on the CPU come back from a launch when the program has ended, which may be never.
      const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
      while ((gate_.launching_ > 0 || gate_.deleting_now_) && std::chrono::steady_clock::now() < until)
        gate_.changed_.wait_until(gate_.mutex_, until);
      granted_ = gate_.launching_ == 0 && !gate_.deleting_now_;
      if (granted_) gate_.deleting_now_ = true;
    }
    ~Deleting() {
      const base::MutexLock lock(gate_.mutex_);
      --gate_.deleting_;
      if (granted_) gate_.deleting_now_ = false;
      gate_.changed_.notify_all();
    }
    /// Whether there is no launch; otherwise it is for later.
    bool granted() const noexcept { return granted_; }
    Deleting(const Deleting&) = delete;
    Deleting& operator=(const Deleting&) = delete;

   private:
    LaunchGate& gate_;
    bool granted_ = false;
  };

 private:
  base::Mutex mutex_;
  base::Condition changed_;
  std::size_t launching_ KILN_GUARDED_BY(mutex_) = 0;
  // Those that wait, and the one that is at it.
  std::size_t deleting_ KILN_GUARDED_BY(mutex_) = 0;
  bool deleting_now_ KILN_GUARDED_BY(mutex_) = false;
};

}  // namespace kiln::opengl
