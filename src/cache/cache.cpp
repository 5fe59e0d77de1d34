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

std::shared_ptr<store::DiskStore> open_disk(const Backend& backend, const CacheOptions& options,
                                            const base::FileSystem& system) {
  // A driver without binary formats gives nothing to keep; its device has said so.
  if (!options.disk || backend.identity().formats.empty()) return nullptr;
  const std::filesystem::path root = options.directory.empty() ? default_directory() : options.directory;
  if (root.empty()) {
    options.log.warning("programs are kept in memory only: none of KILN_CACHE_DIR, XDG_CACHE_HOME and HOME is set");
    return nullptr;
  }
  std::error_code error;
  const auto absolute = std::filesystem::absolute(root, error);
  auto opened =
      store::DiskStore::open(error ? root : absolute, backend.identity(), options.log, options.durability, system);
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

Cache::Path::Path(std::shared_ptr<Backend> backend, CacheOptions options, const base::FileSystem& system)
    : backend_(std::move(backend)),
      identity_digest_(backend_->identity().digest()),
      target_digest_(backend_->identity().target_digest()),
      options_(std::move(options)),
      disk_(open_disk(*backend_, options_, system)),
      guarded_disk_(disk_ ? std::optional<cache::GuardedStore>(std::in_place, disk_, this) : std::nullopt),
      shared_(options_.shared ? std::optional<cache::GuardedStore>(std::in_place, options_.shared, this)
                              : std::nullopt),
      table_({options_.max_programs, options_.max_bytes}),
      writer_(options_.write_queue),
      workers_(worker_count(options_.threads)) {
  if (shared_) uploader_.emplace(*shared_, options_.log, options_.write_queue);
}

Cache::Path::~Path() {
  workers_.finish();
  under_way_.wait_for_all();
  flush();
}

Cache::Cache(std::shared_ptr<Backend> backend, CacheOptions options)
    : Cache(std::move(backend), std::move(options), base::FileSystem::system()) {}

Cache::Cache(std::shared_ptr<Backend> backend, CacheOptions options, const base::FileSystem& system)
    : path_(std::make_unique<Path>(std::move(backend), std::move(options), system)) {}

Cache::~Cache() {
  // The child of a fork has none of the threads that would be waited for; all that is theirs is done in the parent.
  if (!path_->is_of_this_process()) static_cast<void>(path_.release());
}

std::future<Result<Program>> Cache::get_async(Request request) {
  return path_->get_async(std::move(request));
}

void Cache::get_async(Request request, std::function<void(Result<Program>)> done) {
  path_->get_async(std::move(request), std::move(done));
}

Result<std::optional<Program>> Cache::find(const Request& request) { return path_->get(request, false); }

Result<Program> Cache::add(const Request& request, Compiled compiled, std::chrono::nanoseconds compile_time) {
  return path_->add(request, std::move(compiled), compile_time);
}

PreloadReport Cache::preload(std::span<const Request> requests, const ProgressCallback& progress) {
  return path_->preload(requests, progress);
}

PreloadReport Cache::warm(const ProgressCallback& progress) { return path_->warm(progress); }
bool Cache::evict(const Request& request) { return path_->table().evict(request.key().digest); }
std::size_t Cache::trim(std::size_t keep) { return path_->table().trim(keep); }
Result<std::size_t> Cache::clear() { return path_->clear(); }
void Cache::flush() { path_->flush(); }
Result<void> Cache::persist() { return path_->persist(); }
Result<PruneReport> Cache::prune(const PruneOptions& options) { return path_->prune(options); }
Stats Cache::stats() const { return path_->stats(); }
std::vector<ProgramInfo> Cache::programs() const { return path_->table().list(); }
std::filesystem::path Cache::folder() const { return path_->folder(); }
Backend& Cache::backend() const noexcept { return path_->backend(); }

}  // namespace kiln
