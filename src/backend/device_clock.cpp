#include "backend/device_clock.hpp"

#include <algorithm>

namespace kiln::backend {

void DeviceClock::observe(Host::time_point queued, Ticks ran, Host::time_point seen) noexcept {
  const std::chrono::nanoseconds least = queued.time_since_epoch() - ran.begin;
  const std::chrono::nanoseconds most = seen.time_since_epoch() - ran.end;
  // Corrected by no more than it must be, so that times of one slot stay comparable.
  offset_ = offset_ ? std::max(least, std::min(*offset_, most)) : least + (most - least) / 2;
}

std::vector<Ran> DeviceClock::place(const std::vector<std::optional<Ticks>>& pieces, Host::time_point queued,
                                    Host::time_point seen) {
  const auto is_work = [](const std::optional<Ticks>& piece) { return piece.has_value(); };
  const auto first = std::find_if(pieces.begin(), pieces.end(), is_work);
  if (first == pieces.end()) return std::vector<Ran>(pieces.size(), {queued, queued});
  const auto last = std::find_if(pieces.rbegin(), pieces.rend(), is_work);
  observe(queued, {(*first)->begin, (*last)->end}, seen);
  std::vector<Ran> times;
  Host::time_point before = host((*first)->begin);
  for (const std::optional<Ticks>& piece : pieces) {
    times.push_back(piece ? Ran{host(piece->begin), host(piece->end)} : Ran{before, before});
    before = times.back().end;
  }
  return times;
}

DeviceClock::Host::time_point DeviceClock::host(std::chrono::nanoseconds device) const noexcept {
  return Host::time_point(std::chrono::duration_cast<Host::duration>(*offset_ + device));
}

}  // namespace kiln::backend
