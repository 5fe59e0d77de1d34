#pragma once

#include <chrono>
#include <cstdint>

#include "base/mutex.hpp"

namespace kiln::vulkan {

/// What the timestamps of a queue are by the clock of the host. Safe for any number of threads.
///
/// Every submission teaches it: none begins before it was submitted, none ends after its end was seen. So it needs
/// no extension, follows clocks that drift apart, and tells no time at which the work cannot have run.
class Clock {
 public:
  using Host = std::chrono::steady_clock;

  /// `period` is the nanoseconds of a tick, `bits` how many bits of a timestamp count; 0 where there are none.
  Clock(double period, std::uint32_t bits) noexcept : period_(period), bits_(bits) {}

  bool ticks() const noexcept { return bits_ > 0; }
  bool set() const KILN_EXCLUDES(mutex_);
  /// A submission that was made at `submitted` and seen to have ended at `seen` wrote these timestamps, first and
  /// last.
  void learn(Host::time_point submitted, std::uint64_t first, std::uint64_t last, Host::time_point seen)
      KILN_EXCLUDES(mutex_);

  /// A timestamp and when that was, from which all of a submission are counted.
  struct Reading {
    std::uint64_t ticks = 0;
    Host::time_point at = {};
  };
  Reading reading() const KILN_EXCLUDES(mutex_);
  Host::time_point at(std::uint64_t ticks, const Reading& reading) const noexcept;

 private:
  /// From one timestamp to another, which may be before it; the bits that count run over.
  Host::duration between(std::uint64_t from, std::uint64_t to) const noexcept;

  const double period_;
  const std::uint32_t bits_;
  mutable base::Mutex mutex_;
  bool set_ KILN_GUARDED_BY(mutex_) = false;
  Reading reading_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::vulkan
