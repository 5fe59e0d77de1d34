#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define KILN_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define KILN_THREAD_ANNOTATION(x)
#endif
#define KILN_GUARDED_BY(mutex) KILN_THREAD_ANNOTATION(guarded_by(mutex))
#define KILN_REQUIRES(mutex) KILN_THREAD_ANNOTATION(requires_capability(mutex))
#define KILN_EXCLUDES(...) KILN_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))

namespace kiln::base {

/// std::mutex with annotations for clang's thread-safety analysis.
class KILN_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  void lock() KILN_THREAD_ANNOTATION(acquire_capability()) { mutex_.lock(); }
  void unlock() KILN_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

/// Holds a Mutex for its lifetime.
class KILN_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) KILN_THREAD_ANNOTATION(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.lock();
  }
  ~MutexLock() KILN_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

/// A condition variable for Mutex. Callers loop until their predicate holds.
class Condition {
 public:
  void wait(Mutex& mutex) KILN_REQUIRES(mutex) { condition_.wait(mutex); }
  /// Returns at `when` or on a notification.
  void wait_until(Mutex& mutex, std::chrono::steady_clock::time_point when) KILN_REQUIRES(mutex) {
    condition_.wait_until(mutex, when);
  }
  void notify_one() noexcept { condition_.notify_one(); }
  void notify_all() noexcept { condition_.notify_all(); }

 private:
  std::condition_variable_any condition_;
};

}  // namespace kiln::base
