#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>

#include <nlohmann/json.hpp>

#include <kiln/result.hpp>
#include <kiln/stats.hpp>

#include "base/file.hpp"
#include "base/file_system.hpp"

/// How much a device folder holds, kept in its usage.json so that nobody has to list the folder to know. Writers
/// add their changes under a lock; whoever lists the folder anyway (prune) writes the counts again. A process that
/// is killed may leave its last changes uncounted until then.
namespace kiln::store {

inline constexpr const char* usage_name = "usage.json";

struct Usage {
  std::uint64_t programs = 0;
  /// Of entries and their .meta files.
  std::uint64_t bytes = 0;
};

/// A change to the counts that is not in usage.json yet.
struct UsageChange {
  std::int64_t programs = 0;
  std::int64_t bytes = 0;
  bool empty() const noexcept { return programs == 0 && bytes == 0; }
};

/// The counts plus a change; never below 0.
Usage add(const Usage& usage, const UsageChange& change);

/// What usage.json says; nothing if it is missing or damaged.
std::optional<Usage> read_usage(const base::Folder& folder);
/// Lists the folder.
Result<Usage> count_usage(const base::Folder& folder);
/// Writes the counts, under the lock against processes that add to them.
Result<void> write_usage(const base::Folder& folder, const Usage& usage);
/// Adds to usage.json under that lock; if there is none, lists the folder instead. ErrorCode::timed_out if the lock
/// could not be had in time: nothing was added.
Result<void> add_to_usage(const base::Folder& folder, const UsageChange& change, std::chrono::milliseconds timeout);
/// The counts of all device folders of a cache directory together. Lists only those without a usage.json.
Usage total_usage(const std::filesystem::path& root, const base::FileSystem& system);

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
