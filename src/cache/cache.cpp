#include <kiln/cache.hpp>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/environment.hpp"
#include "cache/path.hpp"

namespace kiln {
namespace {

unsigned worker_count(unsigned wanted) {
  return wanted != 0 ? wanted : std::clamp(std::thread::hardware_concurrency(), 1U, 8U);
}

/// The options with the directory they stand for, whatever the environment and the working directory become.
CacheOptions with_absolute_directory(CacheOptions options) {
  if (!options.disk) return options;
  if (options.directory.empty()) options.directory = default_directory();
  std::error_code error;
  auto absolute =
      options.directory.empty() ? std::filesystem::path() : std::filesystem::absolute(options.directory, error);
  if (!error) options.directory = std::move(absolute);
  return options;
}

std::shared_ptr<store::DiskStore> open_disk(const Backend& backend, const CacheOptions& options,
                                            const base::FileSystem& system) {
  // A driver without binary formats gives nothing to keep; its device has said so.
  if (!options.disk || backend.identity().formats.empty()) return nullptr;
  if (options.directory.empty()) {
    options.log.warning("programs are kept in memory only: none of KILN_CACHE_DIR, XDG_CACHE_HOME and HOME is set");
    return nullptr;
  }
  auto opened =
      store::DiskStore::open(options.directory, backend.identity(), options.log, options.durability, system);
  if (opened) return std::move(*opened);
  options.log.warning(fmt::format("programs are kept in memory only: {}", opened.error().message()));
  return nullptr;
}

}  // namespace

std::filesystem::path default_directory() {
  const auto variable = [](const char* name) -> std::filesystem::path {
    const char* value = base::environment(name);
    return value != nullptr ? value : "";
  };
  if (auto directory = variable("KILN_CACHE_DIR"); !directory.empty()) return directory;
  if (auto cache = variable("XDG_CACHE_HOME"); !cache.empty()) return cache / "kiln";
  if (auto home = variable("HOME"); !home.empty()) return home / ".cache" / "kiln";
  return {};
}

Cache::Path::Path(std::shared_ptr<Backend> backend, CacheOptions options, const base::FileSystem& system,
                  memory::ProgramTable& table)
    : backend_(std::move(backend)),
      identity_digest_(backend_->identity().digest()),
      target_digest_(backend_->identity().target_digest()),
      options_(with_absolute_directory(std::move(options))),
      system_(system),
      disk_(open_disk(*backend_, options_, system_)),
      guarded_disk_(disk_ ? std::optional<cache::GuardedStore>(std::in_place, disk_, this) : std::nullopt),
      shared_(options_.shared ? std::optional<cache::GuardedStore>(std::in_place, options_.shared, this)
                              : std::nullopt),
      table_(table),
      writer_(options_.write_queue),
      workers_(worker_count(options_.threads)) {
  if (shared_) uploader_.emplace(*shared_, options_.log, std::max<std::size_t>(options_.write_queue, 1));
}

Cache::Path::Path(const Path& parents)
    : Path(parents.backend_, parents.options_, parents.system_, parents.table_) {}

void Cache::Path::leave_to_parent() noexcept {
  if (disk_) disk_->leave_to_parent();
}

void Cache::Path::finish() {
  workers_.finish();
  under_way_.wait_for_all();
  flush();
}

Cache::State::State(std::shared_ptr<Backend> backend, CacheOptions options, const base::FileSystem& system)
    : table_({options.max_programs, options.max_bytes}),
      path_(std::make_unique<Path>(std::move(backend), std::move(options), system, table_).release()) {}

Cache::State::~State() {
  // Where it is the parent's, all that it owns is for the parent to finish.
  if (std::unique_ptr<Path> path(path_.load()); path->is_of_this_process()) {
    path->finish();
  } else {
    static_cast<void>(path.release());
  }
}

Cache::Path& Cache::State::path_of_child(Path* parents) {
  auto own = std::make_unique<Path>(*parents);
  Path* first = parents;
  // Of several threads that come here at once, one's counts; the others have done nothing with theirs.
  if (!path_.compare_exchange_strong(first, own.get(), std::memory_order_acq_rel)) return *first;
  parents->leave_to_parent();
  return *own.release();
}

Cache::Cache(std::shared_ptr<Backend> backend, CacheOptions options)
    : Cache(std::move(backend), std::move(options), base::FileSystem::system()) {}

Cache::Cache(std::shared_ptr<Backend> backend, CacheOptions options, const base::FileSystem& system)
    : state_(std::make_unique<State>(std::move(backend), std::move(options), system)) {}

Cache::~Cache() = default;

std::future<Result<Program>> Cache::get_async(Request request) {
  return state_->path().get_async(std::move(request));
}

void Cache::get_async(Request request, std::function<void(Result<Program>)> done) {
  state_->path().get_async(std::move(request), std::move(done));
}

Result<std::optional<Program>> Cache::find(const Request& request) { return state_->path().get(request, false); }

Result<Program> Cache::add(const Request& request, Compiled compiled, std::chrono::nanoseconds compile_time) {
  return state_->path().add(request, std::move(compiled), compile_time);
}

PreloadReport Cache::preload(std::span<const Request> requests, const ProgressCallback& progress) {
  return state_->path().preload(requests, progress);
}

PreloadReport Cache::warm(const ProgressCallback& progress) { return state_->path().warm(progress); }
bool Cache::evict(const Request& request) { return state_->table().evict(request.key().digest); }
std::size_t Cache::trim(std::size_t keep) { return state_->table().trim(keep); }
Result<std::size_t> Cache::clear() { return state_->path().clear(); }
void Cache::flush() { state_->path().flush(); }
Result<void> Cache::persist() { return state_->path().persist(); }
Result<PruneReport> Cache::prune(const PruneOptions& options) { return state_->path().prune(options); }
Stats Cache::stats() const { return state_->path().stats(); }
std::vector<ProgramInfo> Cache::programs() const { return state_->table().list(); }
std::filesystem::path Cache::folder() const { return state_->any_path().folder(); }
Backend& Cache::backend() const noexcept { return state_->any_path().backend(); }

}  // namespace kiln
