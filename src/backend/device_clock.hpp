#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include <kiln/slot.hpp>

namespace kiln::backend {

/// When a piece of work ran by the device's own clock.
struct Ticks {
  std::chrono::nanoseconds begin = {};
  std::chrono::nanoseconds end = {};
};

/// Places the times of a device's clock on the host's. The two run apart by some microseconds a second, so that one
/// comparison does not do: every piece of work is one, for it begins after it was queued, and has ended when that
/// is seen.
class DeviceClock {
 public:
  using Host = std::chrono::steady_clock;

  /// Learns from work that was queued at `queued` and seen to have ended at `seen`.
  void observe(Host::time_point queued, Ticks ran, Host::time_point seen) noexcept;

  /// When the pieces of a submission ran, which are told apart from those that were no work: these took no time,
  /// and that behind the piece before them.
  std::vector<Ran> place(const std::vector<std::optional<Ticks>>& pieces, Host::time_point queued,
                         Host::time_point seen);

 private:
  Host::time_point host(std::chrono::nanoseconds device) const noexcept;

  /// What the host's clock shows when the device's shows nothing; unknown before the first observation.
  std::optional<std::chrono::nanoseconds> offset_;
};

}  // namespace kiln::backend
