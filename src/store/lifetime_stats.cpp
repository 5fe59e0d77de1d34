#include "store/lifetime_stats.hpp"

#include <algorithm>
#include <utility>

#include "base/file.hpp"
#include "base/try.hpp"
#include "store/directory.hpp"
#include "store/json_file.hpp"

namespace kiln::store {
namespace {

struct Counter {
  const char* name;
  std::uint64_t Stats::*member;
};
constexpr Counter counters[] = {
    {"requests", &Stats::requests},
    {"memory_hits", &Stats::memory_hits},
    {"disk_hits", &Stats::disk_hits},
    {"shared_hits", &Stats::shared_hits},
    {"joined", &Stats::joined},
    {"compiles", &Stats::compiles},
    {"failures", &Stats::failures},
    {"absent", &Stats::absent},
    {"evictions", &Stats::evictions},
    {"bound_exceeded", &Stats::bound_exceeded},
    {"pressure", &Stats::pressure},
    {"saves", &Stats::saves},
    {"save_failures", &Stats::save_failures},
    {"replaced", &Stats::replaced},
    {"store_failures", &Stats::store_failures},
};

std::uint64_t number(const nlohmann::ordered_json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_number_unsigned()) return 0;
  // Bounded, so that sums of a damaged file stay numbers.
  return std::min(found->get<std::uint64_t>(), std::uint64_t{1} << 61);
}

LifetimeStats read(const base::Folder& folder) {
  const auto json = read_json(folder, stats_name);
  return json ? lifetime_in(*json) : LifetimeStats{};
}

}  // namespace

nlohmann::ordered_json to_json(const LifetimeStats& stats) {
  nlohmann::ordered_json json;
  json["version"] = 1;
  json["sessions"] = stats.sessions;
  for (const auto& [name, member] : counters) json[name] = stats.totals.*member;
  json["compile_time_ns"] = stats.totals.compile_time.count();
  json["compile_time_saved_ns"] = stats.totals.compile_time_saved.count();
  return json;
}

LifetimeStats lifetime_in(const nlohmann::ordered_json& json) {
  LifetimeStats stats;
  stats.sessions = number(json, "sessions");
  for (const auto& [name, member] : counters) stats.totals.*member = number(json, name);
  stats.totals.compile_time = std::chrono::nanoseconds(number(json, "compile_time_ns"));
  stats.totals.compile_time_saved = std::chrono::nanoseconds(number(json, "compile_time_saved_ns"));
  return stats;
}

LifetimeStats read_lifetime(const std::filesystem::path& root) {
  auto folder = base::Folder::open(root, false);
  return folder ? read(*folder) : LifetimeStats{};
}

Result<void> add_to_lifetime(const std::filesystem::path& root, const LifetimeStats& more,
                             const base::FileSystem& system) {
  auto folder = KILN_TRY(base::Folder::open(root, true, system));
  auto lock_file = KILN_TRY(folder.open_lock_file(lock_name));
  const auto lock = base::FileLock::acquire(lock_file, 0, bookkeeping_timeout);

  LifetimeStats stats = read(folder);
  stats.sessions += more.sessions;
  for (const auto& [name, member] : counters) stats.totals.*member += more.totals.*member;
  stats.totals.compile_time += more.totals.compile_time;
  stats.totals.compile_time_saved += more.totals.compile_time_saved;
  return write_json(folder, stats_name, to_json(stats));
}

}  // namespace kiln::store
