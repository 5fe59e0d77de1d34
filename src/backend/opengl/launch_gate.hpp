#pragma once

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
      while (gate_.launching_ > 0 || gate_.deleting_now_) gate_.changed_.wait(gate_.mutex_);
      gate_.deleting_now_ = true;
    }
    ~Deleting() {
      const base::MutexLock lock(gate_.mutex_);
      --gate_.deleting_;
      gate_.deleting_now_ = false;
      gate_.changed_.notify_all();
    }
    Deleting(const Deleting&) = delete;
    Deleting& operator=(const Deleting&) = delete;

   private:
    LaunchGate& gate_;
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
