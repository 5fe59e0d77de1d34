#include <utility>

#include "cache/path.hpp"
#include "store/lifetime_stats.hpp"
#include "store/prune.hpp"

namespace kiln {
namespace {

/// What was done between two readings.
Stats difference(const Stats& now, const Stats& before) {
  Stats more = now;
  for (auto member : {&Stats::requests, &Stats::memory_hits, &Stats::disk_hits, &Stats::shared_hits, &Stats::joined,
                      &Stats::compiles, &Stats::failures, &Stats::absent, &Stats::evictions, &Stats::bound_exceeded,
                      &Stats::pressure, &Stats::saves, &Stats::save_failures, &Stats::replaced})
    more.*member -= before.*member;
  more.compile_time -= before.compile_time;
  more.compile_time_saved -= before.compile_time_saved;
  return more;
}

}  // namespace

Result<std::size_t> Cache::Path::clear() {
  writer_.flush();
  table_.trim(0);
  if (!disk_) return std::size_t{0};
  auto items = disk_->list();
  if (!items) return std::move(items).error();
  for (const StoreItem& item : *items)
    if (auto removed = disk_->remove(item.key); !removed) return std::move(removed).error();
  if (auto written = disk_->write_manifest(); !written) return std::move(written).error();
  return items->size();
}

void Cache::Path::flush() {
  writer_.flush();
  if (!disk_) return;
  const base::MutexLock lock(flush_mutex_);
  const auto log_failure = [this](const Result<void>& result) {
    if (!result) options_.log.debug(result.error().message());
  };
  for (const auto& [key, gflops, gbps] : table_.take_notes()) {
    auto entry = disk_->get(key);
    if (!entry || !*entry) continue;
    (*entry)->gflops = gflops;
    (*entry)->gbps = gbps;
    log_failure(disk_->put(key, **entry));
  }
  for (const ProgramInfo& program : table_.list())
    if (program.stored) log_failure(disk_->touch(program.key));

  const Stats now = counted();
  const Stats more = difference(now, merged_);
  const std::filesystem::path root = disk_->path().parent_path();
  if (more.saves > 0) {
    log_failure(disk_->write_manifest());
    if (auto pruned = store::prune_on(disk_->system(), root, {.max_bytes = options_.max_disk_bytes}); !pruned)
      options_.log.debug(pruned.error().message());
  }
  if (more.requests > 0 || more.saves > 0) {
    const std::uint64_t sessions = std::exchange(session_counted_, true) ? 0 : 1;
    log_failure(store::add_to_lifetime(root, {sessions, more}, disk_->system()));
    merged_ = now;
  }
}

Result<void> Cache::Path::persist() {
  writer_.flush();
  Result<void> first;
  for (const auto& [key, entry] : table_.take_unsaved())
    if (auto stored = store_now(key, entry); !stored && first) first = std::move(stored);
  flush();
  return first;
}

Result<PruneReport> Cache::Path::prune(const PruneOptions& options) {
  if (!disk_) return PruneReport{};
  writer_.flush();
  return store::prune_on(disk_->system(), disk_->path().parent_path(), options);
}

Stats Cache::Path::stats() {
  Stats stats = counted();
  if (!disk_) return stats;
  if (auto items = disk_->list()) {
    stats.disk_programs = items->size();
    for (const StoreItem& item : *items) stats.disk_bytes += item.stored_bytes;
  }
  return stats;
}

Stats Cache::Path::counted() {
  const memory::ProgramTable::Totals totals = table_.totals();
  Stats stats;
  stats.memory_hits = totals.hits;
  stats.disk_hits = counters_.disk_hits;
  stats.shared_hits = counters_.shared_hits;
  stats.joined = counters_.joined;
  stats.compiles = counters_.compiles;
  stats.failures = counters_.failures;
  stats.absent = counters_.absent;
  stats.requests = stats.memory_hits + stats.disk_hits + stats.shared_hits + stats.joined + stats.misses();
  stats.evictions = totals.evictions;
  stats.bound_exceeded = totals.bound_exceeded;
  stats.pressure = counters_.pressure;
  stats.saves = counters_.saves;
  stats.save_failures = counters_.save_failures;
  stats.replaced = counters_.replaced;
  stats.programs = totals.programs;
  stats.bytes = totals.bytes;
  stats.compile_time = std::chrono::nanoseconds(counters_.compile_ns);
  stats.compile_time_saved = std::chrono::nanoseconds(counters_.compile_saved_ns);
  return stats;
}

}  // namespace kiln
