#pragma once

#include <cstdint>
#include <filesystem>

#include <nlohmann/json.hpp>

#include <kiln/result.hpp>
#include <kiln/stats.hpp>

#include "base/file_system.hpp"

namespace kiln::store {

/// What all processes together have done with a cache directory.
struct LifetimeStats {
  /// Caches that were opened on it.
  std::uint64_t sessions = 0;
  /// The counters, added up; programs and bytes in memory are not among them.
  Stats totals;
};

/// What cache_stats.json holds, and what such an object tells of: what is missing or no number counts as 0.
nlohmann::ordered_json to_json(const LifetimeStats& stats);
LifetimeStats lifetime_in(const nlohmann::ordered_json& json);

/// Reads cache_stats.json; a missing or damaged one counts as nothing done.
LifetimeStats read_lifetime(const std::filesystem::path& root);

/// Adds to cache_stats.json, under a lock against other processes that do the same.
Result<void> add_to_lifetime(const std::filesystem::path& root, const LifetimeStats& more,
                             const base::FileSystem& system = base::FileSystem::system());

}  // namespace kiln::store
