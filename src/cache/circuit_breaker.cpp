#include "cache/circuit_breaker.hpp"

#include <algorithm>
#include <random>
#include <utility>

namespace kiln::cache {
namespace {

/// Between a half and the whole of a pause, so that the processes of a fleet do not probe at the same moment.
CircuitBreaker::Clock::duration with_jitter(CircuitBreaker::Clock::duration pause) {
  std::random_device random;
  std::uniform_int_distribution<CircuitBreaker::Clock::rep> distribution(pause.count() / 2, pause.count());
  return CircuitBreaker::Clock::duration(distribution(random));
}

}  // namespace

CircuitBreaker::Turn CircuitBreaker::ask(Clock::time_point now) {
  if (!is_open()) return Turn::call;
  const auto is_due = [&] { return now.time_since_epoch().count() >= next_probe_.load(std::memory_order_acquire); };
  if (!is_due()) return Turn::skip;
  const base::MutexLock lock(mutex_);
  if (!is_open()) return Turn::call;
  if (!is_due()) return Turn::skip;
  // Set again when the probe ends. A probe that hangs does not prevent the next one.
  if (std::exchange(is_probing_, true)) pause_ = std::min<Clock::duration>(pause_ * 2, longest_pause);
  set_pause(now, std::min<Clock::duration>(probe_limit_ + pause_, longest_pause));
  return Turn::probe;
}

bool CircuitBreaker::succeeded() {
  const base::MutexLock lock(mutex_);
  failures_ = 0;
  waited_ = {};
  pause_ = {};
  is_probing_ = false;
  return open_.exchange(false, std::memory_order_acq_rel);
}

bool CircuitBreaker::failed(Clock::time_point now) {
  const base::MutexLock lock(mutex_);
  return ++failures_ >= most_failures && open(now);
}

bool CircuitBreaker::waited(Clock::time_point now, Clock::duration time) {
  const base::MutexLock lock(mutex_);
  waited_ += time;
  return waited_ >= most_patience && open(now);
}

void CircuitBreaker::probe_failed(Clock::time_point now) {
  const base::MutexLock lock(mutex_);
  is_probing_ = false;
  pause_ = std::min<Clock::duration>(pause_ * 2, longest_pause);
  set_pause(now, with_jitter(pause_));
}

void CircuitBreaker::probe_dropped(Clock::time_point now) {
  const base::MutexLock lock(mutex_);
  is_probing_ = false;
  set_pause(now, {});
}

bool CircuitBreaker::open(Clock::time_point now) {
  // Calls that began before it opened do not postpone the probe.
  if (is_open()) return false;
  pause_ = first_pause;
  set_pause(now, with_jitter(pause_));
  open_.store(true, std::memory_order_release);
  return true;
}

void CircuitBreaker::set_pause(Clock::time_point now, Clock::duration pause) {
  next_probe_.store((now + pause).time_since_epoch().count(), std::memory_order_release);
}

}  // namespace kiln::cache
