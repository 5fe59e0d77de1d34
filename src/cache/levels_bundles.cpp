// The functions of Levels for programs that were compiled ahead of time, and for those that are not compiled while
// the caller waits.
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/file.hpp"
#include "base/try.hpp"
#include "cache/levels.hpp"
#include "key/request_record.hpp"

namespace kiln::cache {

std::optional<Program> Levels::load_from_bundles(const Request& request) {
  if (bundles_.is_empty()) return std::nullopt;
  for (const Bundles::Found& found : bundles_.find(request)) {
    auto loaded = load_bundled(found);
    if (!loaded) {
      ++counters_.store_failures;
      options_.log.warning(
          fmt::format("{} of {} cannot be used: {}", request.name(), found.file.name(), loaded.error().message()));
      continue;
    }
    auto& [compiled, compile_time] = *loaded;
    ++counters_.bundle_hits;
    counters_.compile_saved_ns += compile_time.count();
    Program program = admit(request.key(), std::move(compiled.module), Origin::bundle, compile_time);
    // What the driver made of a portable program is for this machine alone.
    if (compiled.binary && options_.save) {
      auto entry =
          std::make_shared<store::UnsavedEntry>(*unsaved(request, std::move(*compiled.binary), compile_time));
      entry->is_elsewhere = true;
      saver_.save(request.key(), std::move(entry), std::nullopt, 0);
    }
    return program;
  }
  return std::nullopt;
}

Result<Levels::LoadedBundled> Levels::load_bundled(const Bundles::Found& found) {
  const auto sealed = KILN_TRY(found.file.read(found.program));
  // SHA-256 takes as long as a fifth of the driver's calls. It protects a bundle that must be signed; without a
  // signature, the checksum that read() has compared finds damage as well.
  const auto checksum = found.is_signed ? store::Checksum::compare : store::Checksum::was_compared;
  const auto opened = KILN_TRY(store::open_entry(sealed, checksum));
  const auto damaged = [](std::string why) { return Error(ErrorCode::damaged, std::move(why)); };
  if (opened.label.key != found.program.key) return damaged("the entry is of another program");
  if (opened.label.target != found.target.digest) return damaged("the entry was made for another device");
  const Binary* binary = opened.entry.binary();
  if (binary == nullptr) return damaged("the entry has no binary");
  auto compiled = KILN_TRY(with_room([&] { return backend_->adapt(found.target.identity, *binary); }));
  if (compiled.module == nullptr) return Error(ErrorCode::device_failed, "the backend returned no module");
  return LoadedBundled{std::move(compiled), opened.entry.compile_time};
}

Error Levels::not_compiled(const Request& request) {
  std::string searched = disk_ ? disk_->path().string() + ", " : "";
  searched += bundles_.names();
  if (!shared_.is_empty()) searched += ", the shared stores";
  return Error(ErrorCode::not_compiled,
               fmt::format("{} is not compiled, and this cache does not compile programs (CacheOptions::compile, "
                           "KILN_COMPILE); its key is {}; searched: {}; `kiln bake` makes a bundle of it",
                           request.name(), request.key().digest.hex(), searched));
}

Error Levels::compile_later(const Request& request) {
  const auto underway = [&] {
    return Error(ErrorCode::not_compiled,
                 fmt::format("{} is being compiled in the background; get it again later", request.name()));
  };
  const Digest& key = request.key().digest;
  {
    const base::MutexLock lock(later_mutex_);
    const auto [later, is_new] = later_.try_emplace(key);
    if (!is_new) {
      if (!later->second) return underway();
      Error error = *std::move(later->second);
      later_.erase(later);
      return error;
    }
  }
  workers_.submit(
      [this, request] {
        auto compiled = without_exceptions([&]() -> Result<std::optional<Program>> {
          // What has not begun is dropped at the end.
          if (is_ending_) return std::optional<Program>{};
          return find_or_compile(request, {.ask_stores = AskStores::no, .urgency = Urgency::background});
        });
        const base::MutexLock lock(later_mutex_);
        if (compiled)
          later_.erase(request.key().digest);
        else
          later_[request.key().digest] = std::move(compiled).error();
      },
      Urgency::background);
  return underway();
}

bool Levels::is_compiled_later(const Digest& key) {
  if (policy_ != CompilePolicy::background) return false;
  const base::MutexLock lock(later_mutex_);
  return later_.contains(key);
}

void Levels::compile_bundled_requests() {
  if (policy_ == CompilePolicy::never || !uses_locks() || !backend_->usable_from_any_thread() ||
      backend_->identity().compiler.empty())
    return;
  // Called with every miss, and does something with the first one.
  if (ahead_has_begun_.exchange(true)) return;
  std::vector<std::shared_ptr<const store::BundleFile>> files;
  for (const auto& file : bundles_.files())
    if (file->has_requests()) files.push_back(file);
  if (files.empty()) return;
  static_cast<void>(ahead_.run(
      [this, files] {
        for (const auto& file : files)
          if (auto compiled = without_exceptions([&] { return compile_requests_of(*file); }); !compiled)
            options_.log.debug(fmt::format("the requests of {} are not compiled ahead of time: {}", file->name(),
                                           compiled.error().message()));
      },
      CallThreads::AtEnd::wait));
}

Result<void> Levels::compile_requests_of(const store::BundleFile& file) {
  const auto record = KILN_TRY(file.requests());
  std::set<Digest> on_disk;
  if (const auto items = disk_->list())
    for (const auto& item : *items) on_disk.insert(item.key.digest);
  std::size_t number = 0;
  std::optional<base::ScratchFolder> folder;
  for (const auto& entry : record.entries()) {
    const Digest& key = entry.key.digest;
    if (is_ending_) return {};
    if (entry.api != backend_->identity().api || on_disk.contains(key) || bundles_.has(key)) continue;
    if (!folder) folder.emplace(KILN_TRY(base::ScratchFolder::create()));
    const auto rebuilt = record.rebuild(entry, folder->path() / std::to_string(number++));
    // Another version of the toolkit gives it another key, here and in the application.
    if (!rebuilt || rebuilt->request.error() || is_ending_) continue;
    const auto compiled =
        find_or_compile(rebuilt->request, {.ask_stores = AskStores::patiently, .urgency = Urgency::background});
    if (!compiled)
      options_.log.debug(
          fmt::format("{} is not compiled ahead of time: {}", entry.key.name, compiled.error().message()));
  }
  return {};
}

}  // namespace kiln::cache
