#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <kiln/slot.hpp>

#include "base/mutex.hpp"

namespace kiln::backend {

/// A piece of work by the numbers of the timestamps before and after it; the same one where it was none.
struct Piece {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// When a piece of work ran by the device's own clock.
struct Ticks {
  std::chrono::nanoseconds begin = {};
  std::chrono::nanoseconds end = {};
};

/// What the timestamps of a device are by the clock of the host. Safe for any number of threads.
///
/// Every submission teaches it: none begins before it was made, none ends after its end was seen. So it follows
/// clocks that drift apart, and tells no time at which the work cannot have run.
class Clock {
 public:
  using Host = std::chrono::steady_clock;

  /// `tick` is in nanoseconds; `bits` is how many bits of a timestamp count, 0 where there are no timestamps.
  Clock(double tick, std::uint32_t bits) noexcept : tick_(tick), bits_(bits) {}
  /// Of a device that counts nanoseconds.
  Clock() noexcept : Clock(1, 64) {}

  bool ticks() const noexcept { return bits_ > 0; }
  bool set() const KILN_EXCLUDES(mutex_);
  /// The first of these timestamps was written after `made`, the last before `seen`.
  void learn(Host::time_point made, std::uint64_t first, std::uint64_t last, Host::time_point seen)
      KILN_EXCLUDES(mutex_);
  /// When the pieces of a submission ran that wrote these timestamps.
  std::vector<Ran> ran(std::span<const Piece> pieces, std::span<const std::uint64_t> stamps) const
      KILN_EXCLUDES(mutex_);
  /// Learns from a submission and tells when its pieces ran, which are told apart from those that were no work:
  /// these took no time, and that behind the piece before them.
  std::vector<Ran> place(const std::vector<std::optional<Ticks>>& pieces, Host::time_point made,
                         Host::time_point seen) KILN_EXCLUDES(mutex_);

 private:
  /// From one timestamp to another, which may be before it; the bits that count run over.
  Host::duration between(std::uint64_t from, std::uint64_t to) const noexcept;

  const double tick_;
  const std::uint32_t bits_;
  mutable base::Mutex mutex_;
  bool set_ KILN_GUARDED_BY(mutex_) = false;
  // A timestamp, and when that was.
  std::uint64_t stamp_ KILN_GUARDED_BY(mutex_) = 0;
  Host::time_point at_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::backend
