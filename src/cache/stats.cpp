#include <kiln/stats.hpp>

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
  const nlohmann::ordered_json json = {{"requests", requests},
                                       {"memory_hits", memory_hits},
                                       {"disk_hits", disk_hits},
                                       {"shared_hits", shared_hits},
                                       {"joined", joined},
                                       {"misses", misses()},
                                       {"compiles", compiles},
                                       {"failures", failures},
                                       {"absent", absent},
                                       {"evictions", evictions},
                                       {"bound_exceeded", bound_exceeded},
                                       {"pressure", pressure},
                                       {"saves", saves},
                                       {"save_failures", save_failures},
                                       {"replaced", replaced},
                                       {"store_failures", store_failures},
                                       {"programs", programs},
                                       {"bytes", bytes},
                                       {"disk_programs", disk_programs},
                                       {"disk_bytes", disk_bytes},
                                       {"compile_s", seconds(compile_time)},
                                       {"compile_saved_s", seconds(compile_time_saved)},
                                       {"hit_rate", hit_rate()}};
  return json.dump();
}

std::string Stats::to_line() const {
  return fmt::format("{} program{} cached, {} on disk, {:.1f} s of compiling saved, {:.0f}% hit rate", programs,
                     programs == 1 ? "" : "s", disk_programs, seconds(compile_time_saved), 100 * hit_rate());
}

}  // namespace kiln
