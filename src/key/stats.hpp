#pragma once

#include <array>
#include <cstddef>
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
    Counter{"bundle_hits", &Stats::bundle_hits},
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

/// A monotonic counter of StoreStats and its name in JSON.
struct StoreCounter {
  const char* name;
  std::uint64_t StoreStats::*member;
};

inline constexpr std::array store_counters = {
    StoreCounter{"hits", &StoreStats::hits},
    StoreCounter{"misses", &StoreStats::misses},
    StoreCounter{"errors", &StoreStats::errors},
    StoreCounter{"refusals", &StoreStats::refusals},
    StoreCounter{"races_won", &StoreStats::races_won},
    StoreCounter{"races_lost", &StoreStats::races_lost},
    StoreCounter{"leases", &StoreStats::leases},
    StoreCounter{"lease_waits", &StoreStats::lease_waits},
    StoreCounter{"lease_timeouts", &StoreStats::lease_timeouts},
    StoreCounter{"uploads", &StoreStats::uploads},
    StoreCounter{"upload_errors", &StoreStats::upload_errors},
    StoreCounter{"bytes_read", &StoreStats::bytes_read},
    StoreCounter{"bytes_written", &StoreStats::bytes_written},
};

/// Subtracts the counters and times of `before` from `now`; keeps the sizes of `now`. Both have the same stores, or
/// `before` has none.
inline Stats difference(const Stats& now, const Stats& before) {
  Stats more = now;
  for (std::size_t i = 0; i < before.stores.size() && i < more.stores.size(); ++i)
    for (const auto& [name, member] : store_counters) more.stores[i].*member -= before.stores[i].*member;
  for (const auto& [name, member] : counters) more.*member -= before.*member;
  more.compile_time -= before.compile_time;
  more.compile_time_saved -= before.compile_time_saved;
  return more;
}

}  // namespace kiln::key
