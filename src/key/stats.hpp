#pragma once

#include <array>
#include <cstdint>

#include <kiln/stats.hpp>

namespace kiln::key {

/// A monotonic counter of Stats and its name in JSON.
struct Counter {
  const char* name;
  std::uint64_t Stats::*member;
};

/// In the order of their declaration in Stats.
inline constexpr std::array counters = {
    Counter{"requests", &Stats::requests},
    Counter{"memory_hits", &Stats::memory_hits},
    Counter{"disk_hits", &Stats::disk_hits},
    Counter{"shared_hits", &Stats::shared_hits},
    Counter{"incomplete", &Stats::incomplete},
    Counter{"joined", &Stats::joined},
    Counter{"compiles", &Stats::compiles},
    Counter{"failures", &Stats::failures},
    Counter{"absent", &Stats::absent},
    Counter{"evictions", &Stats::evictions},
    Counter{"bound_exceeded", &Stats::bound_exceeded},
    Counter{"pressure", &Stats::pressure},
    Counter{"saves", &Stats::saves},
    Counter{"save_failures", &Stats::save_failures},
    Counter{"replaced", &Stats::replaced},
    Counter{"store_failures", &Stats::store_failures},
};

/// Subtracts the counters and times of `before` from `now`; keeps the sizes of `now`.
inline Stats difference(const Stats& now, const Stats& before) {
  Stats more = now;
  for (const auto& [name, member] : counters) more.*member -= before.*member;
  more.compile_time -= before.compile_time;
  more.compile_time_saved -= before.compile_time_saved;
  return more;
}

}  // namespace kiln::key
