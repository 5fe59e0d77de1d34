#include "store/bookkeeping.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "base/file.hpp"
#include "base/try.hpp"
#include "key/stats.hpp"
#include "store/directory.hpp"
#include "store/json_file.hpp"

namespace kiln::store {
namespace {

std::uint64_t plus(std::uint64_t value, std::int64_t change) {
  if (change >= 0) return value + static_cast<std::uint64_t>(change);
  const std::uint64_t less = std::uint64_t{0} - static_cast<std::uint64_t>(change);
  return value > less ? value - less : 0;
}

/// Holds the lock of usage.json while `work` runs.
template <class Work>
Result<void> under_lock(const base::Folder& folder, std::chrono::milliseconds timeout, Work work) {
  // A separate open: threads that share one open file do not exclude each other.
  auto lock_file = KILN_TRY(folder.open_lock_file(lock_name));
  const auto lock = base::FileLock::acquire(lock_file, lock_byte::usage, timeout);
  // If the file system has no locks, continue without one.
  if (!lock && base::FileLock::is_held(lock_file, lock_byte::usage))
    return Error(ErrorCode::timed_out,
                 fmt::format("{} is locked by another process", (folder.path() / usage_name).string()));
  return work();
}

Result<void> write(const base::Folder& folder, const Usage& usage) {
  return write_json(folder, usage_name, {{"version", 1}, {"programs", usage.programs}, {"bytes", usage.bytes}});
}

}  // namespace

Usage add(const Usage& usage, const UsageChange& change) {
  return {plus(usage.programs, change.programs), plus(usage.bytes, change.bytes)};
}

std::optional<Usage> read_usage(const base::Folder& folder) {
  const auto json = read_json(folder, usage_name);
  if (!json || !json->contains("programs") || !json->contains("bytes")) return std::nullopt;
  const auto programs = whole_number<std::uint64_t>((*json)["programs"]);
  const auto bytes = whole_number<std::uint64_t>((*json)["bytes"]);
  // Bounded, so that sums over damaged files cannot overflow.
  constexpr std::uint64_t most = std::uint64_t{1} << 60;
  if (!programs || !bytes || *programs > most || *bytes > most) return std::nullopt;
  return Usage{*programs, *bytes};
}

Result<Usage> count_usage(const base::Folder& folder) {
  auto names = KILN_TRY(folder.names());
  Usage usage;
  for (const std::string& name : names) {
    const bool is_entry = key_of_file(name).has_value();
    if (!is_entry && !entry_of_meta(name)) continue;
    const auto status = folder.status(name);
    if (!status) continue;
    usage.programs += is_entry ? 1 : 0;
    usage.bytes += static_cast<std::uint64_t>(status->st_size);
  }
  return usage;
}

Result<void> write_usage(const base::Folder& folder, const Usage& usage) {
  return under_lock(folder, bookkeeping_timeout, [&] { return write(folder, usage); });
}

Result<void> add_to_usage(const base::Folder& folder, const UsageChange& change,
                          std::chrono::milliseconds timeout) {
  return under_lock(folder, timeout, [&]() -> Result<void> {
    if (const auto usage = read_usage(folder)) return write(folder, add(*usage, change));
    const auto counted = KILN_TRY(count_usage(folder));
    return write(folder, counted);
  });
}

Usage total_usage(const std::filesystem::path& root, const base::FileSystem& system) {
  Usage total;
  const auto paths = device_folder_paths(root, system);
  if (!paths) return total;
  for (const std::filesystem::path& path : *paths) {
    const auto folder = base::Folder::open(path, false, system);
    if (!folder) continue;
    auto usage = read_usage(*folder);
    if (!usage) {
      const auto counted = count_usage(*folder);
      if (!counted) continue;
      usage = *counted;
      // Otherwise the next call lists the folder again.
      static_cast<void>(write_usage(*folder, *usage));
    }
    total.programs += usage->programs;
    total.bytes += usage->bytes;
  }
  return total;
}

namespace {

std::uint64_t number(const nlohmann::ordered_json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_number_unsigned()) return 0;
  // Bounded, so that sums over damaged files cannot overflow.
  return std::min(found->get<std::uint64_t>(), std::uint64_t{1} << 61);
}

/// What the last process that used a store measured.
struct Latency {
  const char* name;
  std::chrono::nanoseconds StoreStats::*member;
};
constexpr std::array latencies = {Latency{"latency_p50_ns", &StoreStats::latency_p50},
                                  Latency{"latency_p90_ns", &StoreStats::latency_p90},
                                  Latency{"latency_p99_ns", &StoreStats::latency_p99}};

/// How many shared stores have totals of their own.
constexpr std::size_t most_stores = 64;

/// The totals of the store with this name; null if there are too many.
StoreStats* totals_of(Stats& totals, const std::string& name) {
  for (StoreStats& store : totals.stores)
    if (store.name == name) return &store;
  if (totals.stores.size() >= most_stores) return nullptr;
  totals.stores.push_back({.name = name});
  return &totals.stores.back();
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
  for (const auto& [name, member] : key::counters) json[name] = stats.totals.*member;
  json["compile_time_ns"] = stats.totals.compile_time.count();
  json["compile_time_saved_ns"] = stats.totals.compile_time_saved.count();
  auto& stores = json["stores"] = nlohmann::ordered_json::object();
  for (const StoreStats& store : stats.totals.stores) {
    auto& json_of_store = stores[store.name];
    for (const auto& [name, member] : key::store_counters) json_of_store[name] = store.*member;
    for (const auto& [name, member] : latencies) json_of_store[name] = (store.*member).count();
    json_of_store["skipped_reads"] = store.reading ? 0 : 1;
    json_of_store["skipped_uploads"] = store.writing ? 0 : 1;
  }
  return json;
}

LifetimeStats lifetime_in(const nlohmann::ordered_json& json) {
  LifetimeStats stats;
  stats.sessions = number(json, "sessions");
  for (const auto& [name, member] : key::counters) stats.totals.*member = number(json, name);
  stats.totals.compile_time = std::chrono::nanoseconds(number(json, "compile_time_ns"));
  stats.totals.compile_time_saved = std::chrono::nanoseconds(number(json, "compile_time_saved_ns"));
  if (const auto stores = json.find("stores"); stores != json.end() && stores->is_object())
    for (const auto& [store, counters] : stores->items()) {
      StoreStats* const totals = totals_of(stats.totals, store);
      if (totals == nullptr || !counters.is_object()) continue;
      for (const auto& [name, member] : key::store_counters) totals->*member = number(counters, name);
      for (const auto& [name, member] : latencies)
        totals->*member = std::chrono::nanoseconds(number(counters, name));
      totals->reading = number(counters, "skipped_reads") == 0;
      totals->writing = number(counters, "skipped_uploads") == 0;
    }
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
  for (const auto& [name, member] : key::counters) stats.totals.*member += more.totals.*member;
  for (const StoreStats& store : more.totals.stores)
    if (StoreStats* const totals = totals_of(stats.totals, store.name)) {
      for (const auto& [name, member] : key::store_counters) totals->*member += store.*member;
      totals->reading = store.reading;
      totals->writing = store.writing;
      for (const auto& [name, member] : latencies)
        if (store.*member > std::chrono::nanoseconds(0)) totals->*member = store.*member;
    }
  stats.totals.compile_time += more.totals.compile_time;
  stats.totals.compile_time_saved += more.totals.compile_time_saved;
  return write_json(folder, stats_name, to_json(stats));
}

}  // namespace kiln::store
