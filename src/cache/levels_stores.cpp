// The functions of Levels that wait for shared stores and for other machines.
#include <algorithm>
#include <thread>
#include <utility>

#include "cache/levels.hpp"

namespace kiln::cache {
namespace {

/// How long a request waits for the shared stores before it also compiles.
constexpr std::chrono::milliseconds longest_head_start{150};
/// How many programs' compile times are remembered.
constexpr std::size_t most_times = 4096;

}  // namespace

std::optional<Program> Levels::await_stores(const Request& request, Fetch& fetch, AskStores ask,
                                            std::chrono::steady_clock::time_point start) {
  auto patience = ask == AskStores::briefly ? head_start(request.name()) : longest_head_start;
  while (!fetch.wait_until(std::min(start + patience, fetch.deadline()))) {
    const bool is_late = patience >= longest_head_start;
    if (is_late && fetch.unanswered()) return std::nullopt;
    if (ask == AskStores::briefly || std::chrono::steady_clock::now() >= fetch.deadline()) {
      if (!is_late) fetch.stopped_waiting();
      return std::nullopt;
    }
    patience += longest_head_start;
  }
  return load_fetched(request.key(), fetch.take());
}

std::optional<Program> Levels::load_fetched(const Key& key, std::optional<Fetched> fetched, Won* won,
                                            std::optional<KeyLock>* lock) {
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
              lock != nullptr ? std::move(*lock) : std::nullopt, fetched->place);
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
    if (auto program = load_fetched(request.key(), fetch.take(), &race->won)) {
      fetch.count_race(true);
      return program;
    }
  }
}

Levels::Waited Levels::wait_for_fleet(const Request& request, const How& how, std::optional<KeyLock>& lock,
                                      std::unique_ptr<CompilePlace>& place, Won* won) {
  using Kind = FleetLeases::Turn::Kind;
  // What this cache compiles is for itself, or the driver has no binaries to share.
  if (shared_.is_empty() || !options_.save || backend_->identity().formats.empty()) return {};
  const auto is_lost = [won] { return won != nullptr && *won; };
  const auto expected = expected_time(request.name());
  bool has_place = true;
  // In a race, another thread waits for what the store has, and that takes long.
  bool is_useless = won != nullptr || shared_.has_refused(request.key().digest);
  while (!is_lost()) {
    auto turn = shared_.ask_fleet(request.key(), expected, has_place, is_useless);
    if ((turn.kind == Kind::compile || turn.kind == Kind::get_place) && !has_place) {
      place = backend_->wait_for_place(how.urgency);
      has_place = true;
    }
    if (turn.kind == Kind::compile) return {.lease = std::move(turn.lease)};
    if (turn.kind == Kind::load) {
      if (auto program = load_from_fleet(request, lock, won)) return {.program = std::move(program)};
      is_useless = true;
    } else if (turn.kind == Kind::wait) {
      if (how.if_locked == IfLocked::return_nothing) break;
      // Its holder may replace it.
      is_useless = false;
      place.reset();
      has_place = false;
      const WorkerPool::Uncounted waiting(workers_);
      constexpr auto slice = std::chrono::milliseconds(50);
      for (auto now = std::chrono::steady_clock::now(); now < turn.ask_again && !is_lost();
           now = std::chrono::steady_clock::now())
        std::this_thread::sleep_until(std::min(turn.ask_again, now + slice));
    }
  }
  return {.leaves_it = true};
}

std::optional<Program> Levels::load_from_fleet(const Request& request, std::optional<KeyLock>& lock, Won* won) {
  shared_.forget_lacking(request.key().digest);
  const auto fetch = shared_.fetch(request.key(), expected_time(request.name()));
  if (!fetch) return std::nullopt;
  fetch->wait_until(fetch->deadline());
  return load_fetched(request.key(), fetch->take(), won, &lock);
}

std::chrono::nanoseconds Levels::head_start(const std::string& name) {
  const auto expected = expected_time(name);
  return expected ? std::min<std::chrono::nanoseconds>(longest_head_start, *expected) : longest_head_start;
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

}  // namespace kiln::cache
