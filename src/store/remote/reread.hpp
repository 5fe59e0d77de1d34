#pragma once

#include <chrono>
#include <functional>
#include <new>
#include <utility>

#include <kiln/result.hpp>

#include "base/mutex.hpp"

namespace kiln::store {

/// What a file contains that may change while the process runs. Thread-safe.
template <class T>
class Reread {
 public:
  /// How long a value that was read is used.
  static constexpr std::chrono::seconds lifetime{1};
  using Read = std::function<Result<T>()>;

  /// `first` was read just now.
  Reread(Read read, Result<T> first) : read_(std::move(read)), last_(std::move(first)) {}

  /// The value or the error of `read`, at most `lifetime` old. While one thread reads, the others get what was read
  /// before, so a file system that hangs delays one call.
  Result<T> read() {
    {
      const base::MutexLock lock(mutex_);
      if (is_reading_ || Clock::now() < next_read_) return last_;
      is_reading_ = true;
    }
    Result<T> now = Error(ErrorCode::io, "there is no memory to read a file");
    try {
      now = read_();
    } catch (const std::bad_alloc&) {
      // Tried again soon.
    }
    const base::MutexLock lock(mutex_);
    is_reading_ = false;
    next_read_ = Clock::now() + lifetime;
    return last_ = std::move(now);
  }

 private:
  using Clock = std::chrono::steady_clock;

  const Read read_;
  base::Mutex mutex_;
  Result<T> last_ KILN_GUARDED_BY(mutex_);
  Clock::time_point next_read_ KILN_GUARDED_BY(mutex_) = Clock::now() + lifetime;
  bool is_reading_ KILN_GUARDED_BY(mutex_) = false;
};

}  // namespace kiln::store
