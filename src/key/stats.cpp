#include "key/stats.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace kiln {
namespace {

double seconds(std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); }

const char* to_string(StoreMode mode) {
  switch (mode) {
    case StoreMode::read_write: return "rw";
    case StoreMode::read_only: return "ro";
    case StoreMode::write_only: return "wo";
  }
  return "unknown";
}

nlohmann::ordered_json json_of(const StoreStats& store) {
  nlohmann::ordered_json json = {{"name", store.name},
                                 {"mode", to_string(store.mode)},
                                 {"verify", store.verify == Verification::required ? "required" : "off"},
                                 {"usable", store.usable},
                                 {"reading", store.reading},
                                 {"writing", store.writing}};
  for (const auto& [name, member] : key::store_counters) json[name] = store.*member;
  json["latency_p50_s"] = seconds(store.latency_p50);
  json["latency_p90_s"] = seconds(store.latency_p90);
  json["latency_p99_s"] = seconds(store.latency_p99);
  return json;
}

}  // namespace

double Stats::hit_rate() const noexcept {
  if (requests == 0) return 0;
  return static_cast<double>(memory_hits + disk_hits + bundle_hits + shared_hits + joined) / static_cast<double>(requests);
}

std::string Stats::to_json() const {
  nlohmann::ordered_json json;
  for (const auto& [name, member] : key::counters) json[name] = this->*member;
  json["misses"] = misses();
  json["programs"] = programs;
  json["bytes"] = bytes;
  json["disk_programs"] = disk_programs;
  json["disk_bytes"] = disk_bytes;
  json["compile_s"] = seconds(compile_time);
  json["compile_saved_s"] = seconds(compile_time_saved);
  json["hit_rate"] = hit_rate();
  auto& list = json["stores"] = nlohmann::ordered_json::array();
  for (const StoreStats& store : stores) list.push_back(json_of(store));
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string Stats::to_line() const {
  return fmt::format("{} program{} cached, {} on disk, {:.1f} s of compiling saved, {:.0f}% hit rate", programs,
                     programs == 1 ? "" : "s", disk_programs, seconds(compile_time_saved), 100 * hit_rate());
}

}  // namespace kiln
