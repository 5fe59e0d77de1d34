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

/// usage.json caches the number and size of a device folder's programs, so that readers need not list the folder.
/// Writers add their changes under a lock. prune, which lists the folder anyway, rewrites the counts. The last
/// changes of a killed process stay uncounted until then.
namespace kiln::store {

inline constexpr const char* usage_name = "usage.json";

struct Usage {
  std::uint64_t programs = 0;
  /// Size of entries and their .meta files.
  std::uint64_t bytes = 0;
};

/// A change that is not in usage.json yet.
struct UsageChange {
  std::int64_t programs = 0;
  std::int64_t bytes = 0;
  bool empty() const noexcept { return programs == 0 && bytes == 0; }
};

/// Adds a change; the result is never negative.
Usage add(const Usage& usage, const UsageChange& change);

/// Reads usage.json; nothing if it is missing or damaged.
std::optional<Usage> read_usage(const base::Folder& folder);
/// Counts the programs by listing the folder.
Result<Usage> count_usage(const base::Folder& folder);
/// Replaces the counts, under the lock of usage.json.
Result<void> write_usage(const base::Folder& folder, const Usage& usage);
/// Adds to usage.json under the lock; if the file is missing, lists the folder instead. Fails with
/// ErrorCode::timed_out, and adds nothing, if another process holds the lock until the timeout.
Result<void> add_to_usage(const base::Folder& folder, const UsageChange& change, std::chrono::milliseconds timeout);
/// The sum over all device folders of a cache directory. Lists only folders without a usage.json.
Usage total_usage(const std::filesystem::path& root, const base::FileSystem& system);

/// Statistics of a cache directory over all processes.
struct LifetimeStats {
  /// The number of caches that used the directory.
  std::uint64_t sessions = 0;
  /// Sums of the counters; `programs` and `bytes` are not included. Of shared stores, 64 at most, names and
  /// counters, and the latencies and circuit breakers of the last process that used them.
  Stats totals;
};

/// Convert to and from the contents of cache_stats.json. Missing or non-numeric members count as 0.
nlohmann::ordered_json to_json(const LifetimeStats& stats);
LifetimeStats lifetime_in(const nlohmann::ordered_json& json);

/// Reads cache_stats.json; all zeros if it is missing or damaged.
LifetimeStats read_lifetime(const std::filesystem::path& root);

/// Adds to cache_stats.json. Waits up to bookkeeping_timeout for the lock, then continues without it.
Result<void> add_to_lifetime(const std::filesystem::path& root, const LifetimeStats& more,
                             const base::FileSystem& system = base::FileSystem::system());

}  // namespace kiln::store
