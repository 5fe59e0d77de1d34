#include "backend/clock.hpp"

#include <algorithm>

namespace kiln::backend {

bool Clock::set() const {
  const base::MutexLock lock(mutex_);
  return set_;
}

void Clock::learn(Host::time_point made, std::uint64_t first, std::uint64_t last, Host::time_point seen) {
  const Host::time_point earliest = made + between(first, last);
  // If a tick is shorter than the driver says, the work seems to take longer than the host waited for it.
  const Host::time_point latest = std::max(earliest, seen);
  const base::MutexLock lock(mutex_);
  at_ = set_ ? std::clamp(at_ + between(stamp_, last), earliest, latest) : earliest + (latest - earliest) / 2;
  stamp_ = last;
  set_ = true;
}

std::vector<Ran> Clock::ran(std::span<const Piece> pieces, std::span<const std::uint64_t> stamps) const {
  const base::MutexLock lock(mutex_);
  std::vector<Ran> ran;
  ran.reserve(pieces.size());
  for (const Piece& piece : pieces)
    ran.push_back({at_ + between(stamp_, stamps[piece.begin]), at_ + between(stamp_, stamps[piece.end])});
  return ran;
}

std::vector<Ran> Clock::place(const std::vector<std::optional<Ticks>>& pieces, Host::time_point made,
                              Host::time_point seen) {
  std::vector<std::uint64_t> stamps;
  std::vector<Piece> placed;
  for (const auto& piece : pieces) {
    // An empty piece before the first work gets the begin of that work.
    const std::size_t last = stamps.empty() ? 0 : stamps.size() - 1;
    placed.push_back(piece ? Piece{stamps.size(), stamps.size() + 1} : Piece{last, last});
    if (!piece) continue;
    stamps.push_back(static_cast<std::uint64_t>(piece->begin.count()));
    stamps.push_back(static_cast<std::uint64_t>(piece->end.count()));
  }
  if (stamps.empty()) return std::vector<Ran>(pieces.size(), {made, made});
  learn(made, stamps.front(), stamps.back(), seen);
  return ran(placed, stamps);
}

Clock::Host::duration Clock::between(std::uint64_t from, std::uint64_t to) const noexcept {
  // Sign-extends the difference from `bits_` bits.
  const std::uint32_t unused = 64 - bits_;
  const auto ticks = static_cast<std::int64_t>((to - from) << unused) >> unused;
  return std::chrono::duration_cast<Host::duration>(
      std::chrono::duration<double, std::nano>(static_cast<double>(ticks) * tick_));
}

}  // namespace kiln::backend
