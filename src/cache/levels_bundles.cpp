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
    const std::pair<const store::BundleFile*, std::uint64_t> place(&found.file, found.program.offset);
    {
      const base::MutexLock lock(refused_mutex_);
      if (refused_.contains(place)) continue;
    }
    auto loaded = load_bundled(found);
    if (!loaded) {
      ++counters_.store_failures;
      options_.log.warning(
          fmt::format("{} of {} cannot be used: {}", request.name(), found.file.name(), loaded.error().message()));
      const base::MutexLock lock(refused_mutex_);
      if (loaded.error().code() != ErrorCode::out_of_memory) refused_.insert(place);
      continue;
    }
    auto& [compiled, compile_time] = *loaded;
    ++counters_.bundle_hits;
    counters_.compile_saved_ns += compile_time.count();
    Program program = admit(request.key(), std::move(compiled.module), Origin::bundle, compile_time);
    // What the driver made of a portable program is for this machine alone. On disk it must be what the compiler of
    // the identity would have made of this key.
    const std::string& compiler = backend_->identity().compiler;
    const bool is_own = compiler.empty() || (found.has_key && found.compiler == compiler);
    if (compiled.binary && options_.save && is_own) {
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

bool Levels::permits(CompilePolicy forbidden, const Request& request) const noexcept {
  switch (request.language()) {
    case Language::spirv:
    case Language::ptx:
    case Language::cubin:
    case Language::fatbin:
    case Language::code_object: return true;
    default: return policy_ != forbidden;
  }
}

Result<Program> Levels::get_without_compiler(const Request& request) {
  if (request.error()) return failure(*request.error());
  if (auto refusal = refusal_of_call()) return failure(std::move(*refusal));
  const UnderWay::Call call(under_way_);
  const Digest& key = request.key().digest;
  const bool is_compiled = wait_for_compiler(key);
  if (Program program = table_.find(key)) return program;
  if (!is_compiled)
    if (auto found = KILN_TRY(find_or_compile(request, {.if_missing = IfMissing::come_back})))
      return *std::move(found);
  return failure(compile_later(request));
}

bool Levels::wait_for_compiler(const Digest& key) {
  const auto has_landed = std::make_shared<std::atomic<bool>>(false);
  const bool is_in_flight = flights_.when_landed(key, [this, has_landed](const Outcome&) {
    const base::MutexLock lock(later_mutex_);
    *has_landed = true;
    later_changed_.notify_all();
  });
  const base::MutexLock lock(later_mutex_);
  const auto is_compiled = [&]() KILN_REQUIRES(later_mutex_) {
    return later_.contains(key) || compiling_.contains(key);
  };
  while (is_in_flight && !*has_landed && !is_compiled()) later_changed_.wait(later_mutex_);
  return is_compiled();
}

Error Levels::compile_later(const Request& request) {
  const Digest& key = request.key().digest;
  const auto underway = [&] {
    return Error(ErrorCode::not_compiled,
                 fmt::format("{} is being compiled in the background; get it again later", request.name()));
  };
  {
    const base::MutexLock lock(later_mutex_);
    const auto [later, is_new] = later_.try_emplace(key);
    if (!is_new && later->second) {
      Error error = *std::move(later->second);
      later_.erase(later);
      return error;
    }
    if (!is_new) return underway();
  }
  workers_.submit(
      [this, request] {
        auto compiled = without_exceptions([&]() -> Result<std::optional<Program>> {
          // What has not begun is dropped at the end.
          if (is_ending_) return std::optional<Program>{};
          // First the place: a request that cannot wait must not join one that waits for it.
          auto place = backend_->wait_for_place(Urgency::background);
          return find_or_compile(
              request, {.ask_stores = AskStores::patiently, .urgency = Urgency::background, .place = &place});
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

void Levels::compile_bundled_requests() {
  if (bundles_.is_empty() || policy_ == CompilePolicy::never || !uses_locks() ||
      !backend_->usable_from_any_thread() || backend_->identity().compiler.empty())
    return;
  // Called with every miss, and does something with the first one.
  if (ahead_has_begun_.exchange(true)) return;
  std::vector<std::shared_ptr<const store::BundleFile>> files;
  for (const auto& file : bundles_.files())
    if (file->has_requests()) files.push_back(file);
  if (files.empty()) return;
  // finish() waits for it, so that its programs are saved before the last flush.
  const auto call = std::make_shared<const UnderWay::Call>(under_way_);
  static_cast<void>(ahead_.run(
      [this, files, call] {
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
  const auto is_there = [&](const Digest& key) { return on_disk.contains(key) || bundles_.has(key); };
  for (const auto& entry : record.entries()) {
    if (is_ending_) return {};
    if (entry.api != backend_->identity().api || is_there(entry.key.digest)) continue;
    const auto folder = KILN_TRY(base::ScratchFolder::create());
    const auto request = rebuilt(record, entry, folder.path() / "files");
    if (!request || is_there(request->key().digest)) continue;
    const bool was_in_memory = static_cast<bool>(table_.find_uncounted(request->key().digest));
    auto place = backend_->wait_for_place(Urgency::background);
    if (is_ending_) return {};
    // The handle is released at once: the application may never need the program.
    if (const auto compiled = find_or_compile(*request, {.ask_stores = AskStores::patiently,
                                                         .urgency = Urgency::background,
                                                         .place = &place,
                                                         .is_recorded = false});
        !compiled)
      options_.log.debug(
          fmt::format("{} is not compiled ahead of time: {}", entry.key.name, compiled.error().message()));
    if (!was_in_memory) static_cast<void>(table_.evict(request->key().digest));
  }
  return {};
}

Result<Request> Levels::rebuilt(const key::RequestRecord& record, const key::RequestRecord::Entry& entry,
                                const std::filesystem::path& folder) {
  const auto failed = [&entry](ErrorCode code, std::string_view why) {
    return Error(code, fmt::format("{} cannot be made again: {}", entry.key.name, why));
  };
  const auto unpacked = record.unpack(entry, folder);
  if (!unpacked) return failed(unpacked.error().code(), unpacked.error().message());
  if (unpacked->working_folder)
    return failed(ErrorCode::outdated,
                  "it depends on files of the working folder, so only a process that runs there can compile it");
  auto rebuilt = record.rebuild(entry, *unpacked);
  if (!rebuilt) return failed(rebuilt.error().code(), rebuilt.error().message());
  if (rebuilt->request.error()) return *rebuilt->request.error();
  return std::move(rebuilt->request);
}

}  // namespace kiln::cache
