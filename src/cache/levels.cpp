#include "cache/levels.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "store/directory.hpp"
#include "store/settings.hpp"

namespace kiln::cache {
namespace {

unsigned worker_count(unsigned wanted) {
  return wanted != 0 ? wanted : std::clamp(std::thread::hardware_concurrency(), 1U, 16U);
}

/// Unchanged if the working folder was removed.
void make_absolute(std::filesystem::path& path) {
  std::error_code error;
  auto absolute = path.empty() ? std::filesystem::path() : std::filesystem::absolute(path, error);
  if (!error) path = std::move(absolute);
}

/// Resolves the paths once, so that later changes of the environment or the working directory have no effect.
CacheOptions with_absolute_paths(CacheOptions options, const store::Settings& settings) {
  if (!options.record) options.record = settings.record.value;
  make_absolute(*options.record);
  if (options.bundles)
    for (Bundle& bundle : *options.bundles) make_absolute(bundle.path);
  if (options.disk && options.directory.empty()) options.directory = default_directory();
  if (options.disk) make_absolute(options.directory);
  return options;
}

store::Settings with_absolute_paths(store::Settings settings) {
  for (auto& bundle : settings.bundles.value) make_absolute(bundle.value.path);
  return settings;
}

/// Whether the cache may get programs to save: what it compiles, and what shared stores have.
bool may_save(const CacheOptions& options, const store::Settings& settings) {
  const bool has_stores = options.stores ? !options.stores->empty() : !settings.stores.value.empty();
  return has_stores || options.compile.value_or(settings.compile.value) != CompilePolicy::never;
}

std::shared_ptr<store::DiskStore> open_disk(const Backend& backend, const CacheOptions& options,
                                            const store::Settings& settings, const base::FileSystem& system) {
  // Without binary formats there is nothing to store; the device has already logged this.
  if (!options.disk || backend.identity().formats.empty()) return nullptr;
  if (options.directory.empty()) {
    if (!may_save(options, settings)) return nullptr;
    options.log.warning("programs are kept in memory only: none of KILN_CACHE_DIR, XDG_CACHE_HOME and HOME is set");
    return nullptr;
  }
  // A read-only image gets no directory that it does not need.
  std::error_code ignored;
  if (!may_save(options, settings) && !std::filesystem::exists(options.directory, ignored)) return nullptr;
  auto opened =
      store::DiskStore::open(options.directory, backend.identity(), options.log, options.durability, system);
  if (opened) return std::move(*opened);
  options.log.warning(fmt::format("programs are kept in memory only: {}", opened.error().message()));
  return nullptr;
}

}  // namespace

Levels::Levels(std::shared_ptr<Backend> backend, CacheOptions options, memory::ProgramTable& table,
               const base::FileSystem& system)
    : Levels(std::move(backend), std::move(options), store::read_settings(), table, system) {}

Levels::Levels(std::shared_ptr<Backend> backend, CacheOptions options, const store::Settings& settings,
               memory::ProgramTable& table, const base::FileSystem& system)
    : backend_(std::move(backend)),
      identity_digest_(backend_->identity().digest()),
      options_(with_absolute_paths(std::move(options), settings)),
      settings_(with_absolute_paths(settings)),
      policy_(options_.compile.value_or(settings.compile.value)),
      system_(system),
      disk_(open_disk(*backend_, options_, settings_, system_)),
      bundles_(options_, settings_, *backend_),
      table_(table),
      recorder_(*options_.record, backend_->identity().api, options_.log, system_),
      shared_(options_, settings_, backend_->identity(), this),
      prefetch_(prefetch_of_record()),
      saver_(backend_->identity(), identity_digest_, disk_, shared_, table_,
             {.save = options_.save, .queue = options_.write_queue, .log = options_.log}),
      workers_(worker_count(options_.threads)) {}

Levels::Levels(const Levels& parents)
    : Levels(parents.backend_, parents.options_, parents.settings_, parents.table_, parents.system_) {}

void Levels::leave_to_parent() noexcept {
  if (disk_) disk_->leave_to_parent();
}

void Levels::finish() {
  is_ending_ = true;
  workers_.finish();
  under_way_.wait_for_all();
  flush();
}

// The path of a request: memory, disk, bundles, shared stores, compiler.
Result<std::optional<Program>> Levels::find_or_compile(const Request& request, const How& how) {
  if (request.error()) return failure(*request.error());
  const Key& key = request.key();
  if (Program program = table_.find(key.digest)) return std::optional(std::move(program));
  if (auto refusal = refusal_of_call()) return failure(std::move(*refusal));
  const UnderWay::Call call(under_way_);
  for (bool is_first = true;; is_first = false) {
    auto [outcome, joined] = flights_.fly(
        key.digest, [&] { return table_.find_locked(key.digest); }, [&] { return look_further(request, how); });
    // A joined find(), warm() or preload() that found nothing does not answer a get(). A joined preload() does not
    // answer a find() either: it looks on disk only.
    if (joined && outcome && !*outcome && (how.if_missing == IfMissing::compile || is_first)) continue;
    // The request of a caller that comes back is counted then.
    if (joined && how.if_missing == IfMissing::come_back && outcome && !*outcome) return std::move(outcome);
    if (joined)
      ++counters_.joined;
    else if (!outcome)
      ++counters_.failures;
    if (outcome && *outcome && how.is_recorded) recorder_.note(request, (*outcome)->compile_time());
    return std::move(outcome);
  }
}

Levels::Outcome Levels::look_further(const Request& request, const How& how) {
  const Key& key = request.key();
  const bool compiles = how.if_missing == IfMissing::compile;
  const Look look = how.if_missing == IfMissing::return_nothing ? Look::last : Look::first;
  // Callers that come back do so often.
  if (compiles && how.if_locked == IfLocked::return_nothing && shared_.waits_for_fleet(key.digest))
    return std::optional<Program>{};
  if (auto program = load_from_disk(key, std::nullopt, look)) return program;
  if (auto program = load_from_bundles(request)) return program;
  if (how.if_missing != IfMissing::return_nothing) compile_bundled_requests();
  // A caller that comes back for it needs neither a store nor a place to find that the key is still locked.
  if (compiles && how.if_locked == IfLocked::return_nothing && uses_locks() && disk_->is_locked(key))
    return std::optional<Program>{};
  // No key's lock and no place is held while an entry is fetched.
  const auto start = std::chrono::steady_clock::now();
  if (prefetch_ && how.ask_stores != AskStores::no &&
      prefetch_->wait_for(key.digest, start + head_start(request.name())))
    if (auto program = load_from_disk(key, std::nullopt, Look::first)) return program;
  std::unique_ptr<Fetch> fetch;
  if (how.ask_stores != AskStores::no && !shared_.is_empty())
    fetch = shared_.fetch(key, expected_time(request.name()));
  if (fetch)
    if (auto program = await_stores(request, *fetch, how.ask_stores, start)) return program;
  if (how.if_missing == IfMissing::return_nothing) ++counters_.absent;
  if (!compiles) return std::optional<Program>{};
  if (fetch && !fetch->has_ended() && backend_->usable_from_any_thread()) return race(request, how, *fetch);
  return provide(request, how, {.late = fetch.get()});
}

Levels::Outcome Levels::provide(const Request& request, const How& how, const Rivals& rivals) {
  const Key& key = request.key();
  const Compiling compiling(*this, key.digest);
  const auto is_lost = [won = rivals.won] { return won != nullptr && *won; };
  // First the place, then the lock: what is locked here, no other process compiles.
  auto place = how.place != nullptr && *how.place ? std::move(*how.place) : backend_->wait_for_place(how.urgency);
  if (is_lost()) return std::optional<Program>{};
  auto lock = lock_key(key, how.if_locked, place, rivals.won);
  if (is_lost()) return std::optional<Program>{};
  if (!lock && uses_locks()) {
    const bool leaves_it = how.if_locked == IfLocked::return_nothing || how.if_locked == IfLocked::take_over;
    if (leaves_it && disk_->has_locks()) return std::optional<Program>{};
    options_.log.debug(fmt::format("compiling {} without the lock between processes", key.name));
  }
  if (auto program = load_from_disk(key, lock, Look::last, rivals.won)) return program;
  if (place == nullptr) place = backend_->wait_for_place(how.urgency);
  auto waited = wait_for_fleet(request, how, lock, place, rivals.won);
  if (waited.program || waited.leaves_it) return std::move(waited.program);
  if (rivals.late != nullptr && rivals.late->has_ended())
    if (auto program = load_fetched(key, rivals.late->take())) return program;
  return std::optional(KILN_TRY(compile(request, std::move(lock), std::move(waited.lease), rivals.won)));
}

std::optional<Program> Levels::find_ready(const Request& request, bool is_recorded) {
  const Key& key = request.key();
  // The thread that provides the program may take long.
  if (request.error() || (!disk_ && bundles_.is_empty()) || flights_.is_in_flight(key.digest)) return std::nullopt;
  const auto [outcome, joined] = flights_.fly(
      key.digest, [&] { return table_.find_locked(key.digest); },
      [&]() -> Outcome {
        auto program = load_from_disk(key, std::nullopt, Look::first);
        return program ? std::move(program) : load_from_bundles(request);
      });
  if (!outcome || !*outcome) return std::nullopt;
  if (joined) ++counters_.joined;
  if (is_recorded) recorder_.note(request, (*outcome)->compile_time());
  return *outcome;
}

Result<Program> Levels::get(const Request& request) {
  if (!permits(CompilePolicy::never, request)) {
    // A program that is not compiled here is worth waiting for.
    auto found = KILN_TRY(
        find_or_compile(request, {.if_missing = IfMissing::come_back, .ask_stores = AskStores::patiently}));
    return found ? Result<Program>(std::move(*found)) : failure(not_compiled(request));
  }
  // A backend that is tied to a thread compiles on it.
  if (!permits(CompilePolicy::background, request) && backend_->usable_from_any_thread())
    return get_without_compiler(request);
  auto found = KILN_TRY(find_or_compile(request, {}));
  return std::move(*found);
}

Result<std::optional<Program>> Levels::find(const Request& request) {
  return find_or_compile(request, {.if_missing = IfMissing::return_nothing, .ask_stores = AskStores::patiently});
}

Result<Program> Levels::compile(const Request& request, std::optional<KeyLock> lock,
                                std::shared_ptr<HeldLease> lease, Won* won) {
  const auto lost = [] { return Error(ErrorCode::cancelled, "a shared store was faster"); };
  if (won != nullptr && *won) return lost();
  // The compiler reads files itself. If one changes meanwhile, the program does not belong to this key.
  const Digest files = KILN_TRY(request.check_files());
  const auto start = std::chrono::steady_clock::now();
  auto compiled = with_room([&] { return backend_->compile(request); });
  const auto took = std::chrono::steady_clock::now() - start;
  if (!compiled) return std::move(compiled).error();
  if (KILN_TRY(request.check_files()) != files)
    return Error(ErrorCode::outdated,
                 fmt::format("a file that \"{}\" can include was changed or touched while it was "
                             "compiled; get it again",
                             request.name()));
  counters_.compile_ns += took.count();
  if (!shared_.is_empty()) note_time(request.name(), took);
  if (!wins(won)) return lost();
  ++counters_.compiles;
  options_.log.debug(fmt::format("compiled {} in {:.1f} ms", request.name(),
                                 std::chrono::duration<double, std::milli>(took).count()));

  Program program = table_.insert({request.key(), std::move(compiled->module), Origin::compiled, took});
  if (compiled->binary) {
    saver_.save(request.key(), unsaved(request, std::move(*compiled->binary), took), std::move(lock),
                SharedStores::to_all, std::move(lease));
  }
  return program;
}

std::shared_ptr<const store::UnsavedEntry> Levels::unsaved(const Request& request, Binary binary,
                                                           std::chrono::nanoseconds compile_time) {
  store::Entry entry{
      .compile_time = compile_time, .created = std::chrono::system_clock::now(), .facts = request.describe()};
  entry.parts.emplace(store::binary_part, std::move(binary));
  // A source without included files is in the facts.
  if (request.files().size() > 1) {
    const std::string files = request.describe_files();
    const auto bytes = std::as_bytes(std::span(files));
    entry.parts.emplace(store::files_part, Binary{.bytes = {bytes.begin(), bytes.end()}});
  }
  return std::make_shared<const store::UnsavedEntry>(store::UnsavedEntry{std::move(entry)});
}

std::optional<Program> Levels::load_from_disk(const Key& key, const std::optional<KeyLock>& lock, Look look,
                                              Won* won) {
  if (!disk_) return std::nullopt;
  // An entry that waits to be saved counts as on disk.
  if (const auto waiting = saver_.waiting(key.digest))
    if (auto module = with_room([&] { return backend_->load(*waiting->entry.binary()); })) {
      if (!wins(won)) return std::nullopt;
      ++counters_.disk_hits;
      counters_.compile_saved_ns += waiting->entry.compile_time.count();
      return admit(key, std::move(*module), Origin::disk, waiting->entry.compile_time);
    }
  auto loaded = load_stored(key);
  if (loaded && *loaded) {
    if (!wins(won)) return std::nullopt;
    const auto compile_time = (*loaded)->stored.entry.compile_time;
    ++counters_.disk_hits;
    counters_.compile_saved_ns += compile_time.count();
    return admit(key, std::move((*loaded)->module), Origin::disk, compile_time);
  }
  if (!loaded && look == Look::last) {
    reject(key, loaded.error());
    if (lock) remove_unusable(loaded.error(), *lock);
  }
  return std::nullopt;
}

Result<std::optional<Levels::Loaded>> Levels::load_stored(const Key& key) {
  auto sealed = KILN_TRY(without_exceptions([&] { return disk_->get({identity_digest_, key}); }));
  if (!sealed) return std::optional<Loaded>{};
  const auto unusable = [&](const Error& why) {
    return Error(why.code(),
                 fmt::format("{}: {}", (disk_->path() / store::entry_file_name(key)).string(), why.message()),
                 why.log());
  };
  const auto damaged = [&](std::string why) { return unusable(Error(ErrorCode::damaged, std::move(why))); };
  auto opened = store::open_entry(*sealed);
  if (!opened) return unusable(opened.error());
  if (opened->label.key != key.digest) return damaged("it holds another program");
  if (opened->label.identity != identity_digest_)
    return damaged("it was made for another device, driver or compiler");
  const Binary* binary = opened->entry.binary();
  if (binary == nullptr) return damaged("it has no binary");
  auto module = with_room([&] { return backend_->load(*binary); });
  if (!module) return unusable(module.error());
  return std::optional(Loaded{std::move(*module), {std::move(opened->entry), std::move(*sealed)}});
}

void Levels::reject(const Key& key, const Error& problem) {
  ++counters_.store_failures;
  options_.log.warning(fmt::format("the stored copy of {} cannot be used: {}", key.name, problem.message()));
}

void Levels::remove_unusable(const Error& problem, const KeyLock& lock) {
  if (problem.code() != ErrorCode::damaged && problem.code() != ErrorCode::load_failed) return;
  if (auto removed = lock.remove_entry())
    ++counters_.replaced;
  else
    options_.log.debug(removed.error().message());
}

Program Levels::admit(const Key& key, std::unique_ptr<Module> module, Origin origin,
                      std::chrono::nanoseconds compile_time) {
  if (!module->is_complete()) {
    ++counters_.incomplete;
    options_.log.debug(fmt::format("{} is loaded; the driver compiles more at its first launch", key.name));
  }
  store::Performance measured;
  if (disk_) {
    // A program that was evicted and is loaded again keeps its noted performance.
    for (const auto& [digest, gflops, gbps] : table_.take_notes_of_evicted())
      disk_->note_performance(digest, {gflops, gbps});
    measured = disk_->performance(key.digest);
  }
  return table_.insert(
      {key, std::move(module), origin, compile_time, measured.gflops, measured.gbps, origin == Origin::disk});
}

Result<Program> Levels::add(const Request& request, Compiled compiled, std::chrono::nanoseconds compile_time) {
  if (request.error()) return failure(*request.error());
  if (compiled.module == nullptr)
    return Error(ErrorCode::invalid_request,
                 fmt::format("cannot add {}: Compiled::module is null", request.name()));
  if (auto refusal = refusal_of_call()) return failure(std::move(*refusal));
  const Digest& digest = request.key().digest;
  const UnderWay::Call call(under_way_);
  for (;;) {
    auto [outcome, joined] = flights_.fly(
        digest, [&] { return table_.find_locked(digest); },
        [&]() -> Outcome {
          Program program = table_.insert({request.key(), std::move(compiled.module), Origin::added, compile_time});
          if (compiled.binary) {
            saver_.save(request.key(), unsaved(request, std::move(*compiled.binary), compile_time), std::nullopt,
                        SharedStores::to_all);
          }
          return std::optional(std::move(program));
        });
    if (!outcome && !joined) return failure(std::move(outcome).error());
    // A joined flight that failed or found nothing does not answer an add().
    if (outcome && *outcome) {
      if (joined) ++counters_.joined;
      recorder_.note(request, (**outcome).compile_time());
      return std::move(**outcome);
    }
  }
}

std::optional<Levels::KeyLock> Levels::lock_key(const Key& key, IfLocked if_locked,
                                                std::unique_ptr<CompilePlace>& place, const Won* won) {
  if (!uses_locks()) return std::nullopt;
  using enum store::DiskStore::Turn;
  const auto wait = [&](store::DiskStore::Turn turn) {
    // Another thread that provides the program may be faster: then this one need not wait.
    constexpr auto slice = std::chrono::milliseconds(100);
    auto left = options_.lock_timeout;
    for (; won != nullptr && left > slice; left -= slice) {
      if (*won) return std::optional<KeyLock>();
      if (auto lock = disk_->lock(key, slice, turn)) return lock;
    }
    return disk_->lock(key, left, turn);
  };
  auto lock = disk_->lock(key, {});
  if (!lock && if_locked == IfLocked::wait) {
    // One process compiles; the others get the lock later and find its entry on disk.
    place.reset();
    lock = wait(first);
  }
  if (!lock && if_locked == IfLocked::wait) return wait(second);
  if (!lock && if_locked != IfLocked::return_nothing) lock = disk_->lock(key, {}, second);
  return lock;
}

Levels::IfLocked Levels::if_locked_after(std::chrono::steady_clock::duration waited) const {
  if (waited < options_.lock_timeout) return IfLocked::return_nothing;
  return waited / 2 < options_.lock_timeout ? IfLocked::take_over : IfLocked::compile;
}

std::optional<Error> Levels::refusal_of_call() const {
  if (!GuardedStore::is_called_by(this)) return std::nullopt;
  return Error(ErrorCode::invalid_request, "a store must not request programs from the cache that it belongs to");
}

Error Levels::failure(Error error) {
  ++counters_.failures;
  return error;
}

}  // namespace kiln::cache
