#include "key/stats.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace kiln {
namespace {

double seconds(std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

double Stats::hit_rate() const noexcept {
  if (requests == 0) return 0;
  return static_cast<double>(memory_hits + disk_hits + shared_hits + joined) / static_cast<double>(requests);
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
  return json.dump();
}

std::string Stats::to_line() const {
  return fmt::format("{} program{} cached, {} on disk, {:.1f} s of compiling saved, {:.0f}% hit rate", programs,
                     programs == 1 ? "" : "s", disk_programs, seconds(compile_time_saved), 100 * hit_rate());
}

}  // namespace kiln
