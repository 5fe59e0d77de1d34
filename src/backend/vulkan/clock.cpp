#include "backend/vulkan/clock.hpp"

#include <algorithm>

namespace kiln::vulkan {

bool Clock::set() const {
  const base::MutexLock lock(mutex_);
  return set_;
}

void Clock::learn(Host::time_point submitted, std::uint64_t first, std::uint64_t last, Host::time_point seen) {
  const Host::time_point earliest = submitted + between(first, last);
  // A tick that is not quite as long as the driver says may make work seem longer than all of its wait.
  const Host::time_point latest = std::max(earliest, seen);
  const base::MutexLock lock(mutex_);
  reading_ = {last, set_ ? std::clamp(at(last, reading_), earliest, latest) : earliest + (latest - earliest) / 2};
  set_ = true;
}

Clock::Reading Clock::reading() const {
  const base::MutexLock lock(mutex_);
  return reading_;
}

Clock::Host::time_point Clock::at(std::uint64_t ticks, const Reading& reading) const noexcept {
  return reading.at + between(reading.ticks, ticks);
}

Clock::Host::duration Clock::between(std::uint64_t from, std::uint64_t to) const noexcept {
  // The difference as a signed number of so many bits.
  const std::uint32_t unused = 64 - bits_;
  const auto ticks = static_cast<std::int64_t>((to - from) << unused) >> unused;
  return std::chrono::duration_cast<Host::duration>(
      std::chrono::duration<double, std::nano>(static_cast<double>(ticks) * period_));
}

}  // namespace kiln::vulkan
