#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <kiln/store.hpp>

namespace kiln {

/// Counters of one shared store since the cache was constructed. A value.
struct StoreStats {
  /// The URL without user, password and options, or SharedStore::name.
  std::string name = {};
  /// read_only as well if there is no permission to upload.
  StoreMode mode = StoreMode::read_write;
  Verification verify = Verification::required;
  /// False if the store cannot be used at all, for example because libkiln_remote is not installed.
  bool usable = true;
  /// False while the store is not asked, or gets no uploads, because it does not answer.
  bool reading = true;
  bool writing = true;
  /// Programs that came from this store.
  std::uint64_t hits = 0;
  /// Times that it was asked and had no entry. For 30 seconds it is not asked again for the same program.
  std::uint64_t misses = 0;
  /// Calls for an entry that failed, or did not answer while a request waited.
  std::uint64_t errors = 0;
  /// Entries that were damaged, of another program or device, refused by the driver, or without a trusted
  /// signature.
  std::uint64_t refusals = 0;
  /// Races between a late answer and the compiler, by who won.
  std::uint64_t races_won = 0;
  std::uint64_t races_lost = 0;
  /// Leases that this cache got, to compile a program for all machines. Programs that another machine compiled
  /// while this cache waited. Programs that this cache compiled because it had waited for too long, for another
  /// machine or for an answer of the store.
  std::uint64_t leases = 0;
  std::uint64_t lease_waits = 0;
  std::uint64_t lease_timeouts = 0;
  /// Entries that were uploaded, and uploads that failed or were dropped.
  std::uint64_t uploads = 0;
  std::uint64_t upload_errors = 0;
  /// Bytes of entries.
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
  /// How long it took to answer, hit or miss; 0 before the first answer. Exact to a fifth.
  std::chrono::nanoseconds latency_p50 = {};
  std::chrono::nanoseconds latency_p90 = {};
  std::chrono::nanoseconds latency_p99 = {};
};

/// Counters of a cache since it was constructed. A value. Every request, and every program that the cache compiles
/// in the background, is counted once among memory_hits, disk_hits, bundle_hits, shared_hits, joined, compiles, failures and absent.
struct Stats {
  /// Calls of get(), get_async() and find(), programs of preload(), and calls of add() that return another program
  /// or fail.
  std::uint64_t requests = 0;
  std::uint64_t memory_hits = 0;
  std::uint64_t disk_hits = 0;
  std::uint64_t bundle_hits = 0;
  std::uint64_t shared_hits = 0;
  /// Programs from disk, a bundle or a shared store for which the driver compiles more at their first launch: see
  /// Module::is_complete().
  std::uint64_t incomplete = 0;
  /// Requests that waited for another thread's result for the same key.
  std::uint64_t joined = 0;
  /// Requests for which the compiler ran here, successfully.
  std::uint64_t compiles = 0;
  /// Requests that returned an error, without those that joined another thread.
  std::uint64_t failures = 0;
  /// find() calls that found nothing.
  std::uint64_t absent = 0;

  /// Programs dropped from memory.
  std::uint64_t evictions = 0;
  /// Times that a program was added beyond a bound because all others were in use.
  std::uint64_t bound_exceeded = 0;
  /// Programs evicted because the device ran out of memory.
  std::uint64_t pressure = 0;
  /// Programs saved to disk.
  std::uint64_t saves = 0;
  /// Attempts to save a program to disk that failed.
  std::uint64_t save_failures = 0;
  /// Entries on disk that were removed because they were damaged or could not be loaded.
  std::uint64_t replaced = 0;
  /// Entries from disk, a bundle or a shared store that could not be used, calls on them that failed or threw, and uploads
  /// that failed or were dropped.
  std::uint64_t store_failures = 0;

  /// Programs in memory, and the sum of their Module::bytes().
  std::uint64_t programs = 0;
  std::uint64_t bytes = 0;
  /// Programs in this device's folder, and their bytes, by counts that are kept in a file. Processes that are
  /// killed, or that prune at this moment, can make them differ a little from the truth.
  std::uint64_t disk_programs = 0;
  std::uint64_t disk_bytes = 0;

  /// Time spent in the compiler here.
  std::chrono::nanoseconds compile_time = {};
  /// The time that programs from disk, a bundle or a shared store took to compile when they were compiled.
  std::chrono::nanoseconds compile_time_saved = {};

  /// The shared stores, in the order in which they are asked.
  std::vector<StoreStats> stores = {};

  /// Requests that memory, disk, bundles and shared stores could not answer.
  std::uint64_t misses() const noexcept { return compiles + failures + absent; }
  /// The share of requests that needed no compiler; 0 before the first request.
  double hit_rate() const noexcept;
  /// All fields, misses() and hit_rate() as one JSON object; times are in seconds.
  std::string to_json() const;
  /// One line for people: "15 programs cached, 12 on disk, 3.2 s of compiling saved, 95% hit rate".
  std::string to_line() const;
};

}  // namespace kiln
