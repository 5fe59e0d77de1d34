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

/// A piece of work, as the indices of the timestamps before and after it. The indices are equal for an empty piece.
struct Piece {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// When a piece of work ran, by the device's clock.
struct Ticks {
  std::chrono::nanoseconds begin = {};
  std::chrono::nanoseconds end = {};
};

/// Converts device timestamps to host time. Thread-safe.
///
/// The device-to-host offset is re-estimated at every submission, from two bounds: work does not begin before the
/// host queued it, and does not end after the host saw its end. The offset follows clock drift, and converted times
/// stay within these bounds.
class Clock {
 public:
  using Host = std::chrono::steady_clock;

  /// `tick` is the length of a tick in nanoseconds. `bits` is the number of valid bits of a timestamp; 0 if the
  /// device has no timestamps.
  Clock(double tick, std::uint32_t bits) noexcept : tick_(tick), bits_(bits) {}
  /// For a device with 64-bit timestamps in nanoseconds.
  Clock() noexcept : Clock(1, 64) {}

  /// Whether the device has timestamps.
  bool ticks() const noexcept { return bits_ > 0; }
  /// Whether learn() has been called.
  bool set() const KILN_EXCLUDES(mutex_);
  /// Updates the offset. The device wrote timestamp `first` after `made` and `last` before `seen`.
  void learn(Host::time_point made, std::uint64_t first, std::uint64_t last, Host::time_point seen)
      KILN_EXCLUDES(mutex_);
  /// The host times of the pieces of a submission. `stamps` are the timestamps that it wrote.
  std::vector<Ran> ran(std::span<const Piece> pieces, std::span<const std::uint64_t> stamps) const
      KILN_EXCLUDES(mutex_);
  /// Calls learn() with the timestamps of a submission, then returns the host times of its pieces. An empty piece
  /// is nullopt; its begin and end are the end of the piece before it.
  std::vector<Ran> place(const std::vector<std::optional<Ticks>>& pieces, Host::time_point made,
                         Host::time_point seen) KILN_EXCLUDES(mutex_);

 private:
  /// The signed time from one timestamp to another. Handles overflow of the valid bits.
  Host::duration between(std::uint64_t from, std::uint64_t to) const noexcept;

  const double tick_;
  const std::uint32_t bits_;
  mutable base::Mutex mutex_;
  bool set_ KILN_GUARDED_BY(mutex_) = false;
  // The reference point: a timestamp and the host time at which the device wrote it.
  std::uint64_t stamp_ KILN_GUARDED_BY(mutex_) = 0;
  Host::time_point at_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::backend
