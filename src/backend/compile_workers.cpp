#include "backend/compile_workers.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <list>
#include <string_view>
#include <utility>
#include <variant>

#include <pthread.h>

#include <fmt/format.h>

#include "backend/probe.hpp"

namespace kiln {
namespace {

using Steady = std::chrono::steady_clock;

/// A number in the environment; nothing if it is not set or is no number.
std::optional<unsigned> number_in(const char* variable) {
  const char* const text = base::environment(variable);
  if (text == nullptr) return std::nullopt;
  unsigned number = 0;
  const char* const end = text + std::strlen(text);
  const auto [read, error] = std::from_chars(text, end, number);
  return error == std::errc() && read == end && read != text ? std::optional(number) : std::nullopt;
}

/// What is set for this process, and the places that its devices share.
struct OfProcess {
  base::ForkMutex mutex{base::ForkMutex::Order::inner};
  CompileWorkers options KILN_GUARDED_BY(mutex) = default_compile_workers();
  std::weak_ptr<backend::CompilePlaces> places KILN_GUARDED_BY(mutex);

  static OfProcess& get() {
    return base::once_per_process<OfProcess>([] { return std::make_unique<OfProcess>(); });
  }
};

CompileWorkers options() {
  OfProcess& process = OfProcess::get();
  const base::MutexLock lock(process.mutex);
  return process.options;
}

}  // namespace

CompileWorkers default_compile_workers() {
  CompileWorkers workers{.most = number_in("KILN_COMPILE_WORKERS")};
  if (const auto seconds = number_in("KILN_COMPILE_LIMIT")) workers.time_limit = std::chrono::seconds(*seconds);
  return workers;
}

void set_compile_workers(const CompileWorkers& workers) {
  OfProcess& process = OfProcess::get();
  const base::MutexLock lock(process.mutex);
  process.options = workers;
}

namespace backend {
namespace {

/// How long no worker is started after one could not be.
constexpr auto pause_after_failure = std::chrono::seconds(30);
/// After this time without a token, processes that have more than their share are stopped or do not compile: this
/// one starts its share of workers without tokens.
constexpr auto patience_for_tokens = std::chrono::seconds(1);
/// How often a process that waits for a place looks whether other processes have ended compiling. Nothing notifies
/// it of that.
constexpr auto next_look_at_others = std::chrono::milliseconds(50);

/// Bounded, so that sums with the current time cannot overflow.
std::chrono::milliseconds bounded(std::chrono::milliseconds limit) {
  return std::min<std::chrono::milliseconds>(limit, std::chrono::hours(24 * 365));
}

}  // namespace

/// A worker, or the right to start one. While it is busy, only the thread that has the place changes it.
struct CompilePlaces::Slot {
  /// Null for a worker without one: see is_without_tokens().
  std::unique_ptr<Processors::Token> token;
  /// Changed under the mutex, because a forked child looks at it.
  std::unique_ptr<CompileWorker> worker = {};
  /// What the worker was started with.
  std::string compiler = {};
  std::string library = {};
  bool is_busy = true;
  Steady::time_point idle_since = {};
};

struct CompilePlaces::State {
  explicit State(const Machine& machine) : processors(machine) {}

  base::Condition changed;
  Processors processors;
  std::list<std::unique_ptr<Slot>> slots;
  bool is_here[2] = {false, false};
  std::size_t places = 0;
  std::size_t urgent_waiting = 0;
  /// One of the waiting threads looks at other processes; the others wait for it.
  bool is_looking_at_others = false;
  bool looked_for_helper = false;
  std::string helper;
  Steady::time_point no_worker_before = {};
  /// Since when there has been no token for a worker that this process may have.
  std::optional<Steady::time_point> no_token_since = {};
  std::thread keeper;
  bool keeper_runs = false;
  bool ends = false;
};

class CompilePlaces::Place final : public CompilePlace {
 public:
  enum class Kind { here, here_beside_others, worker };

  Place(std::shared_ptr<CompilePlaces> of, Kind which, Urgency how_urgent, Slot* for_worker)
      : kind(which),
        urgency(how_urgent),
        slot(for_worker),
        of_(std::move(of)),
        before_(std::exchange(of_this_thread(), this)) {}
  ~Place() override {
    of_this_thread() = before_;
    of_->release(*this);
  }

  /// The latest place of the calling thread.
  static Place*& of_this_thread() {
    thread_local Place* place = nullptr;
    return place;
  }

  const Kind kind;
  const Urgency urgency;
  /// A child that is forked meanwhile has places of its own.
  const std::uint64_t process = base::fork_generation();
  /// Null unless it is a worker's.
  Slot* const slot;

 private:
  const std::shared_ptr<CompilePlaces> of_;
  Place* const before_;
};

std::shared_ptr<CompilePlaces> CompilePlaces::of_process() {
  // Made before the lock: it has a ForkMutex of its own.
  auto made = std::make_shared<CompilePlaces>();
  std::shared_ptr<CompilePlaces> places;
  {
    OfProcess& process = OfProcess::get();
    const base::MutexLock lock(process.mutex);
    places = process.places.lock();
    if (places == nullptr) process.places = places = made;
  }
  return places;
}

CompilePlaces::CompilePlaces(Machine machine)
    : machine_(std::move(machine)),
      mutex_(base::ForkMutex::Order::outer,
             [this] {
               // The old state has conditions, threads and processes of the parent.
               State& parents = *state_.release();
               parents.processors.leave_to_parent();
               for (const auto& slot : parents.slots)
                 if (slot->worker != nullptr) slot->worker->leave_to_parent();
               state_ = std::make_unique<State>(machine_);
             }),
      state_(std::make_unique<State>(machine_)) {}

CompilePlaces::~CompilePlaces() {
  std::thread keeper;
  std::list<std::unique_ptr<Slot>> slots;
  {
    const base::MutexLock lock(mutex_);
    state_->ends = true;
    state_->changed.notify_all();
    keeper.swap(state_->keeper);
  }
  if (keeper.joinable()) keeper.join();
  {
    const base::MutexLock lock(mutex_);
    slots.swap(state_->slots);
  }
  for (auto& slot : slots) stop(std::move(slot));
}

std::unique_ptr<CompilePlace> CompilePlaces::wait(Urgency urgency) {
  const base::MutexLock lock(mutex_);
  state_->processors.set_compiling(true);
  bool waited = false;
  for (;;) {
    if (auto place = take(urgency)) {
      ++state_->places;
      // Others may wait because this one came first, or because it looked at other processes.
      if (waited) state_->changed.notify_all();
      return place;
    }
    waited = true;
    const std::size_t urgent = urgency == Urgency::now ? 1 : 0;
    state_->urgent_waiting += urgent;
    if (std::exchange(state_->is_looking_at_others, true)) {
      state_->changed.wait(mutex_);
    } else {
      state_->changed.wait_until(mutex_, Steady::now() + next_look_at_others);
      state_->is_looking_at_others = false;
    }
    state_->urgent_waiting -= urgent;
  }
}

std::unique_ptr<CompilePlaces::Place> CompilePlaces::take(Urgency urgency) {
  State& state = *state_;
  const auto make = [&](Place::Kind kind, Slot* slot) {
    return std::make_unique<Place>(shared_from_this(), kind, urgency, slot);
  };
  if (bool& is_here = state.is_here[static_cast<int>(urgency)]; !is_here) {
    auto place = make(Place::Kind::here, nullptr);
    is_here = true;
    return place;
  }
  if (!may_have_workers()) return make(Place::Kind::here_beside_others, nullptr);
  if (urgency == Urgency::background && state.urgent_waiting > 0) return nullptr;
  for (const auto& slot : state.slots)
    if (!slot->is_busy) {
      auto place = make(Place::Kind::worker, slot.get());
      slot->is_busy = true;
      return place;
    }
  if (state.slots.size() + 1 < allowed()) {
    auto token = state.processors.take_token();
    if (token != nullptr) state.no_token_since.reset();
    if (token != nullptr || is_without_tokens()) {
      state.slots.push_back(std::make_unique<Slot>(Slot{std::move(token)}));
      return make(Place::Kind::worker, state.slots.back().get());
    }
  }
  // If this process may have no worker at all, urgent requests do not wait for the one that compiles here.
  if (urgency == Urgency::now && state.slots.empty()) return make(Place::Kind::here_beside_others, nullptr);
  return nullptr;
}

bool CompilePlaces::is_without_tokens() {
  auto& since = state_->no_token_since;
  if (!since) since = Steady::now();
  return Steady::now() - *since > patience_for_tokens;
}

bool CompilePlaces::may_have_workers() {
  State& state = *state_;
  if (base::has_more_rights_than_its_caller() || state.processors.count() < 2) return false;
  if (options().most == 0U || Steady::now() < state.no_worker_before) return false;
  if (!std::exchange(state.looked_for_helper, true)) state.helper = find_helper().value_or("");
  return !state.helper.empty();
}

std::size_t CompilePlaces::allowed() const {
  const std::size_t share = state_->processors.share();
  const auto most = options().most;
  return most ? std::min<std::size_t>(share, std::size_t{*most} + 1) : share;
}

void CompilePlaces::release(Place& place) {
  std::unique_ptr<Slot> surplus;
  {
    const base::MutexLock lock(mutex_);
    State& state = *state_;
    if (place.process != base::fork_generation()) return;
    --state.places;
    if (place.kind == Place::Kind::here) state.is_here[static_cast<int>(place.urgency)] = false;
    if (place.slot != nullptr) {
      const auto at = std::ranges::find(state.slots, place.slot, [](const auto& slot) { return slot.get(); });
      if (place.slot->worker == nullptr || state.slots.size() + 1 > allowed()) {
        surplus = std::move(*at);
        state.slots.erase(at);
      } else {
        keep(*place.slot);
      }
    }
    if (state.places == 0) state.processors.set_compiling(false);
    state.changed.notify_all();
  }
  if (surplus != nullptr) stop(std::move(surplus));
}

void CompilePlaces::stop(std::unique_ptr<Slot> slot) {
  // Waits for the end of the process.
  slot->worker.reset();
  const base::MutexLock lock(mutex_);
  slot.reset();
  state_->changed.notify_all();
}

void CompilePlaces::replace(Slot& slot, std::unique_ptr<CompileWorker> worker) {
  // The old one is destroyed, and its process stopped, without the lock.
  const base::MutexLock lock(mutex_);
  slot.worker.swap(worker);
}

void CompilePlaces::keep(Slot& slot) {
  State& state = *state_;
  slot.is_busy = false;
  slot.idle_since = Steady::now();
  if (state.keeper_runs || state.ends) return;
  // It has ended, or is about to.
  if (state.keeper.joinable()) state.keeper.detach();
  try {
    state.keeper = std::thread([this] { stop_idle(); });
    state.keeper_runs = true;
  } catch (...) {
    // Without the thread, the worker ends with this object.
  }
}

void CompilePlaces::stop_idle() {
  pthread_setname_np(pthread_self(), "kiln-compile");
  for (;;) {
    std::unique_ptr<Slot> old;
    {
      const base::MutexLock lock(mutex_);
      State& state = *state_;
      while (!state.ends && !state.slots.empty() && old == nullptr) {
        const auto limit = bounded(options().idle_limit);
        auto next = Steady::time_point::max();
        for (auto slot = state.slots.begin(); slot != state.slots.end(); ++slot) {
          if ((*slot)->is_busy) continue;
          if ((*slot)->idle_since + limit <= Steady::now()) {
            old = std::move(*slot);
            state.slots.erase(slot);
            break;
          }
          next = std::min(next, (*slot)->idle_since + limit);
        }
        if (old != nullptr) break;
        if (next == Steady::time_point::max())
          state.changed.wait(mutex_);
        else
          state.changed.wait_until(mutex_, next);
      }
      if (old == nullptr) {
        state.keeper_runs = false;
        return;
      }
    }
    stop(std::move(old));
  }
}

Result<std::optional<std::string>> CompilePlaces::run(const Compilation& compilation) {
  std::unique_ptr<CompilePlace> own;
  if (Place::of_this_thread() == nullptr) own = wait(Urgency::now);
  if (Slot* const slot = Place::of_this_thread()->slot; slot != nullptr)
    if (auto answer = run_in(*slot, compilation)) {
      if (!*answer) return std::move(*answer).error();
      return std::optional(std::move(**answer));
    }
  compilation.here();
  return std::optional<std::string>();
}

std::optional<Result<std::string>> CompilePlaces::run_in(Slot& slot, const Compilation& compilation) {
  const auto no_worker = [&] {
    replace(slot, nullptr);
    const base::MutexLock lock(mutex_);
    state_->no_worker_before = Steady::now() + pause_after_failure;
    return std::nullopt;
  };
  const std::string call = compilation.call();
  if (call.size() > max_message) return std::nullopt;
  for (bool is_second = false;; is_second = true) {
    if (slot.compiler != compilation.compiler || slot.library != compilation.library) replace(slot, nullptr);
    if (slot.worker == nullptr) {
      std::string helper;
      {
        const base::MutexLock lock(mutex_);
        helper = state_->helper;
      }
      auto started = CompileWorker::start(helper, compilation.compiler, compilation.library);
      if (!started) return no_worker();
      replace(slot, std::move(*started));
      slot.compiler = compilation.compiler;
      slot.library = compilation.library;
    }
    const auto limit = bounded(options().time_limit);
    // Without an answer, the worker may be in the middle of one: it is not used again.
    struct Drop {
      CompilePlaces& places;
      Slot& slot;
      bool is_due = true;
      ~Drop() {
        if (is_due) places.replace(slot, nullptr);
      }
    } drop{*this, slot};
    auto answer = slot.worker->compile(
        call, limit.count() > 0 ? CompileWorker::Deadline(Steady::now() + limit) : CompileWorker::Deadline());
    drop.is_due = !std::holds_alternative<std::string>(answer);
    if (auto* text = std::get_if<std::string>(&answer)) return std::move(*text);
    auto& failed = std::get<CompileWorker::Failed>(answer);
    if (failed.is_foreign) return no_worker();
    if (failed.timed_out)
      return Error(
          ErrorCode::timed_out,
          fmt::format("{} did not compile {} within {} s, and was stopped; allow more with "
                      "KILN_COMPILE_LIMIT or set_compile_workers()",
                      compilation.title, compilation.program, std::chrono::duration<double>(limit).count()),
          std::move(failed.output));
    const int signal = failed.end ? failed.end->signal : 0;
    if (failed.end && (failed.end->is_crash() || signal == 0))
      return Error(ErrorCode::compile_failed,
                   signal != 0 ? fmt::format("{} crashed while it compiled {} ({})", compilation.title,
                                             compilation.program, sigdescr_np(signal))
                               : fmt::format("{} ended its process while it compiled {} (exit status {})",
                                             compilation.title, compilation.program, failed.end->exit_status),
                   std::move(failed.output));
    // Something else killed the worker, perhaps for another process's need of memory.
    if (is_second)
      return Error(ErrorCode::device_failed,
                   fmt::format("the process in which {} compiled {} was killed twice{}; the machine may have too "
                               "little memory",
                               compilation.title, compilation.program,
                               signal != 0 ? fmt::format(" ({})", sigdescr_np(signal)) : ""),
                   std::move(failed.output));
  }
}

std::size_t CompilePlaces::workers() const {
  const base::MutexLock lock(mutex_);
  return static_cast<std::size_t>(
      std::ranges::count_if(state_->slots, [](const auto& slot) { return slot->worker != nullptr; }));
}

}  // namespace backend
}  // namespace kiln
