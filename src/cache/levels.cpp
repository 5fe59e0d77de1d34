#include "cache/levels.hpp"

#include <algorithm>
#include <exception>
#include <map>
#include <numeric>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/try.hpp"
#include "store/bookkeeping.hpp"
#include "store/compile_times.hpp"
#include "store/directory.hpp"
#include "store/json_file.hpp"

namespace kiln::cache {
namespace {

/// How long a request waits for the shared stores before it also compiles.
constexpr std::chrono::milliseconds longest_head_start{150};
/// How many programs' compile times are remembered.
constexpr std::size_t most_times = 4096;

unsigned worker_count(unsigned wanted) {
  return wanted != 0 ? wanted : std::clamp(std::thread::hardware_concurrency(), 1U, 16U);
}

/// Resolves the directory once, so that later changes of the environment or the working directory have no effect.
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
  // Without binary formats there is nothing to store; the device has already logged this.
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

std::shared_ptr<const store::UnsavedEntry> unsaved(const Request& request, Binary binary,
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

}  // namespace

Levels::Levels(std::shared_ptr<Backend> backend, CacheOptions options, memory::ProgramTable& table,
               const base::FileSystem& system)
    : backend_(std::move(backend)),
      identity_digest_(backend_->identity().digest()),
      options_(with_absolute_directory(std::move(options))),
      system_(system),
      disk_(open_disk(*backend_, options_, system_)),
      table_(table),
      shared_(options_, backend_->identity(), this),
      saver_(backend_->identity(), identity_digest_, disk_, shared_, table_,
             {.save = options_.save, .queue = options_.write_queue, .log = options_.log}),
      workers_(worker_count(options_.threads)) {}

Levels::Levels(const Levels& parents)
    : Levels(parents.backend_, parents.options_, parents.table_, parents.system_) {}

void Levels::leave_to_parent() noexcept {
  if (disk_) disk_->leave_to_parent();
}

void Levels::finish() {
  workers_.finish();
  under_way_.wait_for_all();
  flush();
}

// The path of a request: memory, disk, shared stores, compiler.
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
    return std::move(outcome);
  }
}

Levels::Outcome Levels::look_further(const Request& request, const How& how) {
  const Key& key = request.key();
  const bool compiles = how.if_missing == IfMissing::compile;
  const Look look = how.if_missing == IfMissing::return_nothing ? Look::last : Look::first;
  if (auto program = load_from_disk(key, std::nullopt, look)) return program;
  // A caller that comes back for it needs neither a store nor a place to find that the key is still locked.
  if (compiles && how.if_locked == IfLocked::return_nothing && uses_locks() && disk_->is_locked(key))
    return std::optional<Program>{};
  // No lock and no place is held while a store is asked.
  std::unique_ptr<Fetch> fetch;
  if (how.ask_stores != AskStores::no) fetch = shared_.fetch(key, expected_time(request.name()));
  if (fetch)
    if (auto program = await_stores(request, *fetch, how.ask_stores)) return program;
  if (how.if_missing == IfMissing::return_nothing) ++counters_.absent;
  if (!compiles) return std::optional<Program>{};
  if (fetch && !fetch->has_ended() && backend_->usable_from_any_thread()) return race(request, how, *fetch);
  return provide(request, how, {.late = fetch.get()});
}

Levels::Outcome Levels::provide(const Request& request, const How& how, const Rivals& rivals) {
  const Key& key = request.key();
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
  if (rivals.late != nullptr && rivals.late->has_ended())
    if (auto program = load_fetched(key, *rivals.late)) return program;
  return std::optional(KILN_TRY(compile(request, std::move(lock), rivals.won)));
}

std::optional<Program> Levels::await_stores(const Request& request, Fetch& fetch, AskStores ask) {
  const auto start = std::chrono::steady_clock::now();
  const auto expected = expected_time(request.name());
  auto patience = std::chrono::nanoseconds(longest_head_start);
  if (ask == AskStores::briefly && expected) patience = std::min(patience, *expected);
  while (!fetch.wait_until(std::min(start + patience, fetch.deadline()))) {
    const bool is_late = patience >= longest_head_start;
    if (is_late && fetch.unanswered()) return std::nullopt;
    if (ask == AskStores::briefly || std::chrono::steady_clock::now() >= fetch.deadline()) {
      if (!is_late) fetch.stopped_waiting();
      return std::nullopt;
    }
    patience += longest_head_start;
  }
  return load_fetched(request.key(), fetch);
}

std::optional<Program> Levels::load_fetched(const Key& key, Fetch& fetch, Won* won) {
  auto fetched = fetch.take();
  if (!fetched) return std::nullopt;
  auto module = with_room([&] { return backend_->load(*fetched->entry.binary()); });
  if (!module) {
    shared_.refuse(fetched->place, key, module.error());
    return std::nullopt;
  }
  if (!wins(won)) return std::nullopt;
  const auto compile_time = fetched->entry.compile_time;
  ++counters_.shared_hits;
  shared_.count_hit(fetched->place);
  counters_.compile_saved_ns += compile_time.count();
  Program program = admit(key, std::move(*module), Origin::shared, compile_time);
  // The driver accepted the binary, so keep it on the local disk, and in the stores that are faster.
  saver_.save(key,
              std::make_shared<const store::UnsavedEntry>(
                  store::UnsavedEntry{std::move(fetched->entry), std::move(fetched->sealed)}),
              std::nullopt, fetched->place);
  return program;
}

Levels::Outcome Levels::race(const Request& request, const How& how, Fetch& fetch) {
  struct Race {
    base::Mutex mutex;
    base::Condition changed;
    bool store_ended KILN_GUARDED_BY(mutex) = false;
    std::optional<Outcome> provided KILN_GUARDED_BY(mutex);
    Won won{false};
  };
  const auto race = std::make_shared<Race>();
  const WorkForThread work;
  const auto call = std::make_shared<const UnderWay::Call>(under_way_);
  // Place and lock belong to the thread that gets them.
  const bool started = racers_.run(
      [this, race, request, if_locked = how.if_locked, urgency = how.urgency, call, work = work.state()] {
        const WorkForThread::Scope scope(work);
        auto provided = without_exceptions(
            [&] { return provide(request, {.if_locked = if_locked, .urgency = urgency}, {.won = &race->won}); });
        const base::MutexLock guard(race->mutex);
        race->provided = std::move(provided);
        race->changed.notify_all();
      },
      CallThreads::AtEnd::wait);
  if (!started) return provide(request, how, {.late = &fetch});
  fetch.when_ended([race] {
    const base::MutexLock guard(race->mutex);
    race->store_ended = true;
    race->changed.notify_all();
  });

  // The other thread may need this worker's share of the work.
  const WorkerPool::Uncounted waiting(workers_);
  for (bool store_is_out = false;;) {
    {
      const base::MutexLock guard(race->mutex);
      // An error, or nothing, is no result yet: the store may have the program.
      const auto has_provided = [&]() KILN_REQUIRES(race->mutex) {
        return race->provided && ((*race->provided && **race->provided) || store_is_out || race->won);
      };
      while (!has_provided() && (store_is_out || !race->store_ended)) {
        if (!race->provided) {
          race->changed.wait(race->mutex);
          continue;
        }
        const auto until = std::min(std::chrono::steady_clock::now() + std::chrono::nanoseconds(longest_head_start),
                                    fetch.deadline());
        race->changed.wait_until(race->mutex, until);
        if (std::chrono::steady_clock::now() >= until && !race->store_ended)
          store_is_out = fetch.unanswered() || until == fetch.deadline();
      }
      if (has_provided()) {
        if (*race->provided && **race->provided) fetch.count_race(false);
        return std::move(*race->provided);
      }
    }
    store_is_out = true;
    if (auto program = load_fetched(request.key(), fetch, &race->won)) {
      fetch.count_race(true);
      return program;
    }
  }
}

std::optional<std::chrono::nanoseconds> Levels::expected_time(const std::string& name) {
  const base::MutexLock lock(times_mutex_);
  const auto found = times_.find(name);
  return found != times_.end() ? std::optional(found->second) : std::nullopt;
}

void Levels::note_time(const std::string& name, std::chrono::nanoseconds took) {
  const base::MutexLock lock(times_mutex_);
  if (times_.size() >= most_times) times_.clear();
  times_[name] = took;
}

std::optional<Program> Levels::find_ready(const Request& request) {
  const Key& key = request.key();
  // The thread that provides the program may take long.
  if (request.error() || !disk_ || flights_.is_in_flight(key.digest)) return std::nullopt;
  const auto [outcome, joined] = flights_.fly(
      key.digest, [&] { return table_.find_locked(key.digest); },
      [&]() -> Outcome { return load_from_disk(key, std::nullopt, Look::first); });
  if (!outcome || !*outcome) return std::nullopt;
  if (joined) ++counters_.joined;
  return *outcome;
}

Result<Program> Levels::get(const Request& request) {
  auto found = KILN_TRY(find_or_compile(request, {}));
  return std::move(*found);
}

Result<std::optional<Program>> Levels::find(const Request& request) {
  return find_or_compile(request, {.if_missing = IfMissing::return_nothing, .ask_stores = AskStores::patiently});
}

Result<Program> Levels::compile(const Request& request, std::optional<KeyLock> lock, Won* won) {
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
                SharedStores::to_all);
  }
  return program;
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

void Levels::get_async(Request request, Callback done) {
  if (Program program = table_.find(request.key().digest)) return call(done, std::move(program));
  if (auto refusal = refusal_of_call()) return call(done, failure(std::move(*refusal)));
  if (!backend_->usable_from_any_thread()) return call(done, get(request));
  // The caller may be a worker inside a backend, and may wait for the result.
  workers_.let_caller_wait();
  answer_later(std::make_shared<Asked>(Asked{std::move(request), std::move(done)}));
}

Future<Program> Levels::get_async(Request request) {
  const Promise<Program> promise;
  get_async(std::move(request), [promise](Result<Program> program) { promise.set(std::move(program)); });
  return promise.future();
}

void Levels::answer_later(const std::shared_ptr<Asked>& asked) {
  workers_.submit([this, asked] {
    // A worker must not block on another thread's flight, because that flight may need a worker.
    const auto then = [this, asked](const Outcome& outcome) {
      // A find() or warm() that found nothing does not answer a get().
      if (outcome && !*outcome) return answer_later(asked);
      ++counters_.joined;
      workers_.submit([this, asked, outcome] {
        answer(*asked, outcome ? Result<Program>(**outcome) : Result<Program>(outcome.error()));
      });
    };
    if (flights_.when_landed(asked->request.key().digest, then)) return;
    const auto waited = asked->postponed ? std::chrono::steady_clock::now() - *asked->postponed
                                         : std::chrono::steady_clock::duration(0);
    auto found = find_or_compile(asked->request, {.if_locked = if_locked_after(waited)});
    if (found && !*found) return postpone(asked);
    answer(*asked, found ? Result<Program>(std::move(**found)) : std::move(found).error());
  });
}

void Levels::postpone(const std::shared_ptr<Asked>& asked) {
  {
    const base::MutexLock lock(postponed_mutex_);
    postponed_.push_back(asked);
    if (asked->postponed) return;
    asked->postponed = std::chrono::steady_clock::now();
    // Then a worker retries them already.
    if (++postponed_left_ > 1) return;
  }
  workers_.submit([this] { retry_postponed(); });
}

void Levels::retry_postponed() {
  const WorkerPool::Uncounted waiting(workers_);
  for (;;) {
    constexpr auto pause = std::chrono::milliseconds(3);
    std::this_thread::sleep_for(pause);
    std::vector<std::shared_ptr<Asked>> again;
    {
      const base::MutexLock lock(postponed_mutex_);
      if (postponed_left_ == 0) return;
      again.swap(postponed_);
    }
    for (const auto& asked : again) answer_later(asked);
  }
}

void Levels::answer(const Asked& asked, Result<Program> program) {
  if (asked.postponed) {
    const base::MutexLock lock(postponed_mutex_);
    --postponed_left_;
  }
  // The callback may wait for other programs of this cache.
  const WorkerPool::Uncounted waiting(workers_);
  call(asked.done, std::move(program));
}

void Levels::call(const Callback& done, Result<Program> program) {
  try {
    done(std::move(program));
  } catch (const std::exception& exception) {
    options_.log.error(fmt::format("a callback of get_async() threw an exception: {}", exception.what()));
  } catch (...) {
    options_.log.error("a callback of get_async() threw an exception");
  }
}

std::size_t Levels::batch_threads() const {
  if (!backend_->usable_from_any_thread()) return 1;
  const unsigned useful = options_.threads == 0 ? backend_->useful_threads() : 0;
  return useful != 0 ? std::min<std::size_t>(useful, workers_.size()) : workers_.size();
}

PreloadReport Levels::preload(std::span<const Request> requests, const ProgressCallback& progress) {
  if (auto refusal = refusal_of_call()) return {0, {std::move(*refusal)}};
  const UnderWay::Call call(under_way_);
  const Batch::Name name = [&](std::size_t i) -> const std::string& { return requests[i].name(); };
  Batch batch(requests.size(), name, progress, workers_, batch_threads());
  std::vector<std::size_t> places(requests.size());
  std::iota(places.begin(), places.end(), std::size_t{0});

  using Tried = Batch::Tried;
  using End = Batch::End;
  places = batch.run(places, Batch::Start::gradually, [&](std::size_t i, auto) {
    if (table_.find(requests[i].key().digest) || find_ready(requests[i])) return Tried{End::done};
    return Tried{End::not_done};
  });
  if (places.empty()) return batch.finish();
  if (!shared_.is_empty()) {
    places = batch.run(places, Batch::Start::all_at_once, [&](std::size_t i, auto) {
      auto found =
          find_or_compile(requests[i], {.if_missing = IfMissing::come_back, .ask_stores = AskStores::patiently});
      if (!found) return Tried{End::failed, std::move(found).error()};
      return Tried{*found ? End::done : End::not_done};
    });
    if (places.empty()) return batch.finish();
  }
  batch.expect(sort_by_cost(requests, places));
  const auto get_if = [&](IfLocked if_locked) {
    return [&, if_locked](std::size_t i, std::unique_ptr<CompilePlace> place) {
      auto found = find_or_compile(
          requests[i],
          {.if_locked = if_locked, .ask_stores = AskStores::no, .urgency = Urgency::background, .place = &place});
      if (!found) return Tried{End::failed, std::move(found).error()};
      return Tried{*found ? End::done : End::not_done};
    };
  };
  // A request for a program that another thread has begun joins it, so none begins before it has a place.
  places = batch.run(places, Batch::Start::all_at_once, get_if(IfLocked::return_nothing),
                     [&] { return backend_->wait_for_place(Urgency::background); });
  // Other processes compile the rest.
  const auto since = std::chrono::steady_clock::now();
  constexpr auto shortest_pause = std::chrono::milliseconds(1);
  constexpr auto longest_pause = std::chrono::milliseconds(10);
  for (auto pause = shortest_pause; !places.empty(); pause = std::min(pause * 2, longest_pause)) {
    const auto if_locked = if_locked_after(std::chrono::steady_clock::now() - since);
    const std::size_t before = places.size();
    places = batch.run(places, Batch::Start::all_at_once, get_if(if_locked));
    if (places.size() < before)
      pause = shortest_pause;
    else
      std::this_thread::sleep_for(pause);
  }
  return batch.finish();
}

std::vector<double> Levels::sort_by_cost(std::span<const Request> requests,
                                         std::vector<std::size_t>& places) const {
  std::map<std::string, std::chrono::nanoseconds> times;
  if (disk_ && places.size() > 1) {
    std::set<std::string> names;
    for (const std::size_t i : places) names.insert(requests[i].name());
    times = store::compile_times(disk_->path().parent_path(), backend_->identity(), names, system_);
  }
  // An unknown program takes as long for each byte of its source as the known ones.
  double known_time = 0;
  double known_bytes = 0;
  for (const std::size_t i : places)
    if (const auto known = times.find(requests[i].name()); known != times.end()) {
      known_time += static_cast<double>(known->second.count());
      known_bytes += static_cast<double>(requests[i].source().size());
    }
  const double time_per_byte = known_bytes > 0 ? known_time / known_bytes : 1;
  std::vector<double> costs(requests.size());
  for (const std::size_t i : places) {
    const auto known = times.find(requests[i].name());
    costs[i] = known != times.end() ? static_cast<double>(known->second.count())
                                    : time_per_byte * static_cast<double>(requests[i].source().size());
  }
  std::ranges::stable_sort(places, [&](std::size_t a, std::size_t b) { return costs[a] > costs[b]; });
  return costs;
}

PreloadReport Levels::warm(const ProgressCallback& progress) {
  if (auto refusal = refusal_of_call()) return {0, {std::move(*refusal)}};
  const UnderWay::Call call(under_way_);
  if (!disk_) return {};
  auto items = disk_->list();
  if (!items) return {0, {std::move(items).error()}};
  std::sort(items->begin(), items->end(),
            [](const store::StoredItem& a, const store::StoredItem& b) { return a.last_use > b.last_use; });
  // Select as many as fit in memory, and load the most recently used last, so that they are evicted last.
  std::size_t room = 0;
  std::uint64_t bytes = 0;
  while (room < items->size() && room < options_.max_programs && bytes <= options_.max_bytes)
    bytes += (*items)[room++].stored_bytes;
  items->resize(room);
  std::reverse(items->begin(), items->end());
  const Batch::Name name = [&](std::size_t i) -> const std::string& { return (*items)[i].key.name; };
  Batch batch(items->size(), name, progress, workers_, batch_threads());
  std::vector<double> costs;
  for (const store::StoredItem& item : *items) costs.push_back(static_cast<double>(item.stored_bytes));
  batch.expect(std::move(costs));
  std::vector<std::size_t> places(items->size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  batch.run(places, Batch::Start::gradually, [&](std::size_t i, auto) -> Batch::Tried {
    const Key& key = (*items)[i].key;
    for (;;) {
      // The error goes only to this caller: a get() that joins must continue to the compiler.
      std::optional<Error> problem;
      auto [outcome, joined] = flights_.fly(
          key.digest, [&] { return table_.find_uncounted(key.digest); },
          [&]() -> Outcome {
            auto program = warm_one(key);
            if (program) return std::optional(std::move(*program));
            problem = std::move(program).error();
            return std::optional<Program>{};
          });
      if (outcome && *outcome) return {Batch::End::done};
      if (!joined)
        return {Batch::End::failed, outcome ? std::move(problem) : std::optional(std::move(outcome).error())};
    }
  });
  return batch.finish();
}

Result<Program> Levels::warm_one(const Key& key) {
  auto loaded = load_stored(key);
  if (!loaded) {
    // Retry under the lock: another process may be replacing the entry.
    const auto lock = uses_locks() ? disk_->lock(key, options_.lock_timeout) : std::nullopt;
    loaded = load_stored(key);
    if (!loaded) {
      reject(key, loaded.error());
      if (lock) remove_unusable(loaded.error(), *lock);
      return std::move(loaded).error();
    }
  }
  if (!*loaded) return Error(ErrorCode::io, key.name + " was removed from the disk before it could be loaded");
  // A file name may hold only part of the program's name; the entry has all of it.
  const store::Entry& entry = (*loaded)->stored.entry;
  const auto facts = store::parse_json(entry.facts);
  const bool named = facts && facts->contains("name") && (*facts)["name"].is_string();
  return admit({key.digest, named ? (*facts)["name"].get<std::string>() : key.name}, std::move((*loaded)->module),
               Origin::disk, entry.compile_time);
}

}  // namespace kiln::cache
