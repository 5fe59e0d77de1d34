#include "cache/circuit_breaker.hpp"

#include <algorithm>
#include <limits>
#include <random>

namespace kiln::cache {
namespace {

constexpr auto never = std::numeric_limits<CircuitBreaker::Clock::rep>::max();

/// Between a half and the whole of a pause, so that the processes of a fleet do not probe at the same moment.
CircuitBreaker::Clock::duration with_jitter(CircuitBreaker::Clock::duration pause) {
  static thread_local std::minstd_rand random(std::random_device{}());
  std::uniform_int_distribution<CircuitBreaker::Clock::rep> distribution(pause.count() / 2, pause.count());
  return CircuitBreaker::Clock::duration(distribution(random));
}

}  // namespace

CircuitBreaker::Turn CircuitBreaker::ask(Clock::time_point now) {
  if (!is_open()) return Turn::call;
  auto due = next_probe_.load(std::memory_order_acquire);
  if (now.time_since_epoch().count() < due) return Turn::skip;
  return next_probe_.compare_exchange_strong(due, never) ? Turn::probe : Turn::skip;
}

bool CircuitBreaker::would_skip(Clock::time_point now) const {
  return is_open() && now.time_since_epoch().count() < next_probe_.load(std::memory_order_acquire);
}

bool CircuitBreaker::succeeded() {
  const base::MutexLock lock(mutex_);
  failures_ = 0;
  waited_ = {};
  pause_ = {};
  return open_.exchange(false, std::memory_order_acq_rel);
}

bool CircuitBreaker::failed(Clock::time_point now, Clock::duration waited) {
  const base::MutexLock lock(mutex_);
  failures_ = std::min(failures_ + 1, most_failures);
  waited_ += waited;
  const bool was_open = is_open();
  // Calls that began before it opened must not postpone the probe.
  if (was_open && next_probe_.load(std::memory_order_acquire) != never) return false;
  if (!was_open && failures_ < most_failures && waited_ < most_patience) return false;
  open(now);
  return !was_open;
}

void CircuitBreaker::gave_up_probe() {
  const base::MutexLock lock(mutex_);
  if (is_open() && next_probe_.load(std::memory_order_acquire) == never)
    next_probe_.store(0, std::memory_order_release);
}

void CircuitBreaker::open(Clock::time_point now) {
  pause_ = pause_ == Clock::duration::zero() ? Clock::duration(first_pause)
                                             : std::min<Clock::duration>(pause_ * 2, longest_pause);
  next_probe_.store((now + with_jitter(pause_)).time_since_epoch().count(), std::memory_order_release);
  open_.store(true, std::memory_order_release);
}

}  // namespace kiln::cache
