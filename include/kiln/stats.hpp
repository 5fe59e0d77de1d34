#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace kiln {

/// What a cache has done since it was made. Every request is counted once among memory_hits, disk_hits,
/// shared_hits, joined, compiles, failures and absent.
struct Stats {
  std::uint64_t requests = 0;
  std::uint64_t memory_hits = 0;
  std::uint64_t disk_hits = 0;
  std::uint64_t shared_hits = 0;
  /// Requests that waited for another thread's answer to the same key.
  std::uint64_t joined = 0;
  std::uint64_t compiles = 0;
  /// Requests answered with an error by the thread that tried.
  std::uint64_t failures = 0;
  /// find() calls that found nothing.
  std::uint64_t absent = 0;

  std::uint64_t evictions = 0;
  /// Times a program was kept beyond a bound, because all programs were in use.
  std::uint64_t bound_exceeded = 0;
  /// Times a device ran out of memory and unused programs were evicted for it.
  std::uint64_t pressure = 0;
  std::uint64_t saves = 0;
  /// Programs that could not be saved.
  std::uint64_t save_failures = 0;
  /// Entries on disk that were damaged or refused by the driver, and were removed.
  std::uint64_t replaced = 0;
  /// Calls on the disk or the shared store that failed, threw, or returned something other than the entry asked
  /// for.
  std::uint64_t store_failures = 0;

  std::uint64_t programs = 0;
  std::uint64_t bytes = 0;
  /// What this device's folder holds, by counts that are kept beside the programs. Processes that are killed or
  /// prune at this moment can make them differ a little from the truth.
  std::uint64_t disk_programs = 0;
  std::uint64_t disk_bytes = 0;

  /// Time spent compiling here.
  std::chrono::nanoseconds compile_time = {};
  /// What the programs that came from disk or the shared store once took to compile.
  std::chrono::nanoseconds compile_time_saved = {};

  /// Requests no level could answer.
  std::uint64_t misses() const noexcept { return compiles + failures + absent; }
  /// The share of requests that needed no compiler; 0 before the first request.
  double hit_rate() const noexcept;
  /// One JSON object.
  std::string to_json() const;
  /// One line for people: "15 programs cached, 12 on disk, 3.2 s of compiling saved, 95% hit rate".
  std::string to_line() const;
};

}  // namespace kiln
