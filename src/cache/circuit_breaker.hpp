#pragma once

#include <atomic>
#include <chrono>

#include "base/mutex.hpp"

namespace kiln::cache {

/// Decides whether to call a server that may be down. After several failures in a row it is open: calls are
/// skipped, except for probes; the pause between them doubles with each failure, up to a minute. One success closes
/// it. Safe from any thread; skipping a call takes no lock.
class CircuitBreaker {
 public:
  using Clock = std::chrono::steady_clock;

  /// This many failures in a row open it.
  static constexpr int most_failures = 3;
  /// It also opens once callers have waited this long in total without an answer.
  static constexpr std::chrono::milliseconds most_patience{250};
  static constexpr std::chrono::milliseconds first_pause{250};
  static constexpr std::chrono::seconds longest_pause{60};

  /// A probe that has not ended after `probe_limit` is given up.
  explicit CircuitBreaker(Clock::duration probe_limit = std::chrono::seconds(2)) : probe_limit_(probe_limit) {}

  /// Probe: make this one call, report its outcome as that of a probe, and let nobody wait for it.
  enum class Turn { call, probe, skip };
  Turn ask(Clock::time_point now) KILN_EXCLUDES(mutex_);
  bool is_open() const noexcept { return open_.load(std::memory_order_acquire); }

  /// A call or a probe succeeded. Returns whether it was open.
  bool succeeded() KILN_EXCLUDES(mutex_);
  /// A call failed that was not a probe. Returns whether this opened it.
  bool failed(Clock::time_point now) KILN_EXCLUDES(mutex_);
  /// A caller has waited for an answer for so long, since it last reported this. Returns whether this opened it.
  bool waited(Clock::time_point now, Clock::duration time) KILN_EXCLUDES(mutex_);
  void probe_failed(Clock::time_point now) KILN_EXCLUDES(mutex_);
  /// A probe ended without an outcome, for example because it was not begun.
  void probe_dropped(Clock::time_point now) KILN_EXCLUDES(mutex_);

 private:
  bool open(Clock::time_point now) KILN_REQUIRES(mutex_);
  void set_pause(Clock::time_point now, Clock::duration pause) KILN_REQUIRES(mutex_);

  const Clock::duration probe_limit_;
  std::atomic<bool> open_{false};
  /// When the next probe is due.
  std::atomic<Clock::rep> next_probe_{0};

  base::Mutex mutex_;
  int failures_ KILN_GUARDED_BY(mutex_) = 0;
  Clock::duration waited_ KILN_GUARDED_BY(mutex_) = {};
  Clock::duration pause_ KILN_GUARDED_BY(mutex_) = {};
  bool is_probing_ KILN_GUARDED_BY(mutex_) = false;
};

}  // namespace kiln::cache
