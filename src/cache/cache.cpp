#include <kiln/cache.hpp>

#include <atomic>
#include <utility>

#include "base/process.hpp"
#include "cache/levels.hpp"

namespace kiln {

/// The program table, which a forked child keeps using, and the levels, which each process creates for itself.
class Cache::Impl {
 public:
  Impl(std::shared_ptr<Backend> backend, CacheOptions options)
      : table({options.max_programs, options.max_bytes}),
        levels_(std::make_unique<cache::Levels>(std::move(backend), std::move(options), table).release()) {}
  ~Impl() {
    // In a forked child these may be the parent's levels; only the parent finishes those.
    if (std::unique_ptr<cache::Levels> levels(levels_.load()); levels->is_of_this_process()) {
      levels->finish();
    } else {
      static_cast<void>(levels.release());
    }
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// The levels of this process; a forked child creates its own on the first call.
  cache::Levels& levels() {
    cache::Levels* levels = levels_.load(std::memory_order_acquire);
    return levels->is_of_this_process() ? *levels : levels_of_child(levels);
  }
  /// Not inlined, so that the hit path saves no registers for it.
  [[gnu::cold, gnu::noinline]] Result<Program> get_beyond_memory(const Request& request) {
    return levels().get(request);
  }
  /// May be the parent's levels: use only immutable members.
  const cache::Levels& any_levels() const noexcept { return *levels_.load(std::memory_order_acquire); }

  memory::ProgramTable table;

 private:
  [[gnu::cold]] cache::Levels& levels_of_child(cache::Levels* parents) {
    auto own = std::make_unique<cache::Levels>(*parents);
    cache::Levels* first = parents;
    // If several threads race here, one wins; the others discard their unused levels.
    if (!levels_.compare_exchange_strong(first, own.get(), std::memory_order_acq_rel)) return *first;
    parents->leave_to_parent();
    return *own.release();
  }

  // Owned, unless they are the parent's. Those are never destroyed in the child, because their mutexes may be
  // locked by threads that the child lacks.
  std::atomic<cache::Levels*> levels_;
};

std::filesystem::path default_directory() { return base::default_directory(); }

Cache::Cache(std::shared_ptr<Backend> backend, CacheOptions options)
    : impl_(std::make_unique<Impl>(std::move(backend), std::move(options))) {}

Cache::~Cache() = default;

Result<Program> Cache::get(const Request& request) {
  if (Program program = impl_->table.find_at_once(request.key().digest)) [[likely]]
    return program;
  return impl_->get_beyond_memory(request);
}

Future<Program> Cache::get_async(Request request) { return impl_->levels().get_async(std::move(request)); }

void Cache::get_async(Request request, std::function<void(Result<Program>)> done) {
  impl_->levels().get_async(std::move(request), std::move(done));
}

Result<std::optional<Program>> Cache::find(const Request& request) { return impl_->levels().find(request); }

Result<Program> Cache::add(const Request& request, Compiled compiled, std::chrono::nanoseconds compile_time) {
  return impl_->levels().add(request, std::move(compiled), compile_time);
}

PreloadReport Cache::preload(std::span<const Request> requests, const ProgressCallback& progress) {
  return impl_->levels().preload(requests, progress);
}

PreloadReport Cache::warm(const ProgressCallback& progress) { return impl_->levels().warm(progress); }
PreloadReport Cache::warm(const std::filesystem::path& record, const ProgressCallback& progress) {
  return impl_->levels().warm(record, progress);
}
PreloadReport Cache::refresh(const std::filesystem::path& record, const ProgressCallback& progress) {
  return impl_->levels().refresh(record, progress);
}
bool Cache::evict(const Request& request) { return impl_->table.evict(request.key().digest); }
std::size_t Cache::trim(std::size_t keep) { return impl_->table.trim(keep); }
Result<std::size_t> Cache::clear() { return impl_->levels().clear(); }
void Cache::flush() { impl_->levels().flush(); }
Result<void> Cache::persist() { return impl_->levels().persist(); }
Result<PruneReport> Cache::prune(const PruneOptions& options) { return impl_->levels().prune(options); }
Stats Cache::stats() const { return impl_->levels().stats(); }
std::vector<ProgramInfo> Cache::programs() const { return impl_->table.list(); }
std::filesystem::path Cache::folder() const { return impl_->any_levels().folder(); }
Backend& Cache::backend() const noexcept { return impl_->any_levels().backend(); }

}  // namespace kiln
