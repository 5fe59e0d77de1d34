#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/mutex.hpp"

namespace kiln::cache {

/// Decides whether to call a server that may be down. After several failures in a row it is open: calls are
/// skipped, apart from probes, whose distance grows with each failure up to a minute. One success closes it. Safe
/// from any thread; asking takes no lock.
class CircuitBreaker {
 public:
  using Clock = std::chrono::steady_clock;

  /// This many failures in a row open it.
  static constexpr int most_failures = 3;
  /// So does this much time in which callers waited without an answer.
  static constexpr std::chrono::milliseconds most_patience{250};
  static constexpr std::chrono::milliseconds first_pause{250};
  static constexpr std::chrono::seconds longest_pause{60};

  enum class Turn { call, probe, skip };
  /// Probe: make this one call, and report its outcome; nobody should wait for it.
  Turn ask(Clock::time_point now);
  /// The same without taking a turn.
  bool would_skip(Clock::time_point now) const;
  bool is_open() const noexcept { return open_.load(std::memory_order_acquire); }

  /// Returns whether it was open.
  bool succeeded();
  /// A call failed, or did not answer while a caller waited for `waited`. Returns whether this opened it.
  bool failed(Clock::time_point now, Clock::duration waited = {});
  /// A probe ended without an outcome, for example because it was cancelled.
  void gave_up_probe();

 private:
  void open(Clock::time_point now) KILN_REQUIRES(mutex_);

  std::atomic<bool> open_{false};
  /// When the next probe is due; the latest possible time while one is under way.
  std::atomic<Clock::rep> next_probe_{0};

  base::Mutex mutex_;
  int failures_ KILN_GUARDED_BY(mutex_) = 0;
  Clock::duration waited_ KILN_GUARDED_BY(mutex_) = {};
  Clock::duration pause_ KILN_GUARDED_BY(mutex_) = {};
};

}  // namespace kiln::cache
