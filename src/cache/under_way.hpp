#pragma once

#include <cstddef>

#include "base/mutex.hpp"

namespace kiln::cache {

/// Counts calls that are under way, so that nothing they use is taken from under them.
class UnderWay {
 public:
  class Call {
   public:
    explicit Call(UnderWay& under_way) : under_way_(under_way) {
      const base::MutexLock lock(under_way_.mutex_);
      ++under_way_.calls_;
    }
    ~Call() {
      // Told under the lock: once that is free, whoever waits may destroy all of this.
      const base::MutexLock lock(under_way_.mutex_);
      if (--under_way_.calls_ == 0) under_way_.ended_.notify_all();
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    UnderWay& under_way_;
  };

  void wait_for_all() KILN_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    while (calls_ > 0) ended_.wait(mutex_);
  }

 private:
  base::Mutex mutex_;
  base::Condition ended_;
  std::size_t calls_ KILN_GUARDED_BY(mutex_) = 0;
};

}  // namespace kiln::cache
