#include "cache/flights.hpp"

#include <utility>

namespace kiln::cache {
namespace {

/// Owned by a Scope.
thread_local constinit const WorkForThread::State* work_of_this_thread = nullptr;

}  // namespace

WorkForThread::WorkForThread()
    : state_(std::make_shared<State>(work_of_this_thread != nullptr ? work_of_this_thread->shared_from_this()
                                                                    : nullptr)) {}

WorkForThread::Scope::Scope(std::shared_ptr<const State> work)
    : work_(std::move(work)), outer_(std::exchange(work_of_this_thread, work_.get())) {}

WorkForThread::Scope::~Scope() { work_of_this_thread = outer_; }

bool WorkForThread::is_done_for(std::thread::id thread) {
  if (thread == std::this_thread::get_id()) return true;
  for (const State* work = work_of_this_thread; work != nullptr && work->is_waited_for; work = work->outer.get())
    if (work->waiting == thread) return true;
  return false;
}

Flights::Landed Flights::fly(const Digest& key, const std::function<Program()>& landed_before,
                             const std::function<Outcome()>& fly) {
  std::promise<Outcome> promise;
  std::shared_future<Outcome> theirs;
  {
    const base::MutexLock lock(mutex_);
    const auto found = in_flight_.find(key);
    if (found != in_flight_.end()) {
      if (WorkForThread::is_done_for(found->second.thread))
        return {
            Error(ErrorCode::invalid_request, "a backend or a store requested the program that it is providing"),
            false};
      theirs = found->second.outcome;
    } else if (Program program = landed_before()) {
      return {std::optional(std::move(program)), false};
    } else {
      in_flight_.emplace(key, Flight{promise.get_future().share(), std::this_thread::get_id()});
    }
  }
  if (theirs.valid()) {
    const WorkerPool::Uncounted waiting(workers_);
    return {without_exceptions([&theirs] { return theirs.get(); }), true};
  }

  // Removes the flight of the key on every path, also if an exception is thrown.
  struct Landing {
    Flights& flights;
    const Digest& key;
    std::vector<Continuation> land() const {
      const base::MutexLock lock(flights.mutex_);
      auto flight = flights.in_flight_.extract(key);
      return flight ? std::move(flight.mapped().then) : std::vector<Continuation>();
    }
    ~Landing() { static_cast<void>(land()); }
  };
  const Landing landing{*this, key};
  Outcome outcome = without_exceptions(fly);
  promise.set_value(outcome);
  for (const Continuation& then : landing.land()) then(outcome);
  return {std::move(outcome), false};
}

bool Flights::when_landed(const Digest& key, Continuation then) {
  const base::MutexLock lock(mutex_);
  const auto found = in_flight_.find(key);
  if (found == in_flight_.end() || WorkForThread::is_done_for(found->second.thread)) return false;
  found->second.then.push_back(std::move(then));
  return true;
}

bool Flights::is_in_flight(const Digest& key) {
  const base::MutexLock lock(mutex_);
  return in_flight_.contains(key);
}

}  // namespace kiln::cache
