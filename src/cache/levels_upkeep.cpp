// The functions of Levels that do not answer requests: flush, prune, clear, statistics.
#include <algorithm>

#include <fmt/format.h>

#include "base/try.hpp"
#include "cache/levels.hpp"
#include "key/stats.hpp"
#include "store/bookkeeping.hpp"
#include "store/directory.hpp"

namespace kiln::cache {

Result<std::size_t> Levels::clear() {
  if (auto refusal = refusal_of_call()) return std::move(*refusal);
  saver_.flush();
  table_.trim(0);
  if (!disk_) return std::size_t{0};
  auto items = KILN_TRY(disk_->list());
  std::size_t left = 0;
  std::optional<Error> first;
  for (const store::StoredItem& item : items)
    if (auto removed = disk_->remove(item.key); !removed) {
      ++left;
      if (!first) first = std::move(removed).error();
    }
  if (auto saved = disk_->save_notes(); !saved) options_.log.debug(saved.error().message());
  if (first)
    return Error(first->code(),
                 fmt::format("{} of {} programs could not be removed: {}", left, items.size(), first->message()));
  return items.size();
}

void Levels::flush() {
  // A flush from inside a store would wait for itself.
  if (refusal_of_call()) return;
  saver_.flush();
  recorder_.flush();
  if (!shared_.wait_for_uploads())
    options_.log.warning(
        fmt::format("the shared stores did not accept all programs within {} ms", shared_.upload_limit().count()));
  if (!disk_) return;
  const base::MutexLock lock(flush_mutex_);
  const auto log_failure = [this](const Result<void>& result) {
    if (!result) options_.log.debug(result.error().message());
  };
  for (const auto& [digest, gflops, gbps] : table_.take_notes()) disk_->note_performance(digest, {gflops, gbps});
  log_failure(disk_->save_notes());
  for (const ProgramInfo& program : table_.list())
    if (program.stored) log_failure(disk_->touch(program.key));

  const Stats now = counted();
  const Stats more = key::difference(now, merged_);
  const std::filesystem::path root = disk_->path().parent_path();
  const std::uint64_t prefetched = prefetched_ + (prefetch_ ? prefetch_->saved() : 0);
  if (more.saves > 0 || prefetched > bounded_prefetches_) keep_disk_bound(root);
  bounded_prefetches_ = prefetched;
  const bool stores_worked = std::ranges::any_of(more.stores, [](const StoreStats& store) {
    return std::ranges::any_of(key::store_counters, [&](const auto& counter) { return store.*counter.member > 0; });
  });
  // A run for which bundles have everything creates no directory.
  std::error_code ignored;
  const bool keeps_statistics = more.saves > 0 || std::filesystem::exists(root, ignored);
  if (keeps_statistics && (more.requests > 0 || more.saves > 0 || stores_worked)) {
    const std::uint64_t sessions = std::exchange(session_counted_, true) ? 0 : 1;
    log_failure(store::add_to_lifetime(root, {sessions, more}, disk_->system()));
    merged_ = now;
  }
}

void Levels::keep_disk_bound(const std::filesystem::path& root) {
  const auto prune_to = [this, root](std::uint64_t bytes) {
    auto pruned = store::prune_on(disk_->system(), root, {.max_bytes = bytes});
    if (!pruned) options_.log.debug(pruned.error().message());
  };
  // A prune lists the whole directory, so free an extra tenth of the bound; otherwise a full directory would be
  // pruned at every flush.
  const std::uint64_t bound = options_.max_disk_bytes;
  if (store::total_usage(root, disk_->system()).bytes > bound) return prune_to(bound - bound / 10);
  // Once a day, a background prune corrects the counts and removes leftovers of dead processes. Only the next flush
  // waits for it.
  if (store::is_prune_due(root, disk_->system())) saver_.run_later([prune_to, bound] { prune_to(bound); });
}

Result<void> Levels::persist() {
  saver_.flush();
  auto saved = saver_.save_unsaved();
  flush();
  return saved;
}

Result<PruneReport> Levels::prune(const PruneOptions& options) {
  if (!disk_) return PruneReport{};
  saver_.flush();
  // The prune lists the folders; a change still pending then would be counted twice.
  if (auto saved = disk_->save_notes(); !saved) options_.log.debug(saved.error().message());
  return store::prune_on(disk_->system(), disk_->path().parent_path(), options);
}

Stats Levels::stats() {
  Stats stats = counted();
  if (!disk_) return stats;
  const store::Usage usage = disk_->usage();
  stats.disk_programs = usage.programs;
  stats.disk_bytes = usage.bytes;
  return stats;
}

Stats Levels::counted() {
  const memory::ProgramTable::Totals totals = table_.totals();
  Stats stats;
  stats.memory_hits = totals.hits;
  stats.disk_hits = counters_.disk_hits;
  stats.bundle_hits = counters_.bundle_hits;
  stats.shared_hits = counters_.shared_hits;
  stats.incomplete = counters_.incomplete;
  stats.joined = counters_.joined;
  stats.compiles = counters_.compiles;
  stats.failures = counters_.failures;
  stats.absent = counters_.absent;
  stats.requests =
      stats.memory_hits + stats.disk_hits + stats.bundle_hits + stats.shared_hits + stats.joined + stats.misses();
  stats.evictions = totals.evictions;
  stats.bound_exceeded = totals.bound_exceeded;
  stats.pressure = counters_.pressure;
  stats.saves = saver_.saves();
  stats.save_failures = saver_.failures();
  stats.replaced = counters_.replaced;
  stats.store_failures = counters_.store_failures + shared_.failures();
  stats.programs = totals.programs;
  stats.bytes = totals.bytes;
  stats.compile_time = std::chrono::nanoseconds(counters_.compile_ns);
  stats.compile_time_saved = std::chrono::nanoseconds(counters_.compile_saved_ns);
  stats.stores = shared_.stats();
  return stats;
}

}  // namespace kiln::cache
