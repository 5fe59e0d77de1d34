#include "cache/call_threads.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <iterator>
#include <list>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include <pthread.h>

#include "base/mutex.hpp"

namespace kiln::cache {
namespace {

constexpr auto idle_limit = std::chrono::seconds(10);
/// A call that takes so long counts as one that hangs.
constexpr auto hanging_after = std::chrono::milliseconds(500);
constexpr std::size_t most_hanging = 1024;
/// How long the end waits for calls that may hang.
constexpr auto grace = std::chrono::milliseconds(100);

}  // namespace

struct CallThreads::Worker {
  std::thread thread = {};
  /// It is inside a call that may hang, since `began`.
  bool may_hang = false;
  std::chrono::steady_clock::time_point began = {};
  /// It has ended, and can be joined without waiting.
  bool ended = false;
};

struct CallThreads::State {
  struct Call {
    std::function<void()> run;
    AtEnd at_end;
  };

  State(const char* its_name, std::size_t at_most) : name(its_name), most(at_most) {}

  const char* const name;
  const std::size_t most;
  base::Mutex mutex;
  base::Condition changed;
  std::deque<Call> waiting KILN_GUARDED_BY(mutex);
  std::size_t idle KILN_GUARDED_BY(mutex) = 0;
  std::size_t alive KILN_GUARDED_BY(mutex) = 0;
  /// Their places do not change.
  std::list<Worker> workers KILN_GUARDED_BY(mutex);
  bool ending KILN_GUARDED_BY(mutex) = false;

  /// The workers that have ended.
  std::list<Worker> take_ended() KILN_REQUIRES(mutex) {
    std::list<Worker> ended;
    for (auto worker = workers.begin(); worker != workers.end();) {
      const auto next = std::next(worker);
      if (worker->ended) ended.splice(ended.end(), workers, worker);
      worker = next;
    }
    return ended;
  }
  /// Whether a thread may be started: those that hang do not count for long.
  bool has_room() KILN_REQUIRES(mutex) {
    const auto late = std::chrono::steady_clock::now() - hanging_after;
    const auto hanging = static_cast<std::size_t>(std::ranges::count_if(
        workers, [&](const Worker& worker) { return worker.may_hang && worker.began < late; }));
    return alive - hanging < most && hanging < most_hanging;
  }
};

CallThreads::CallThreads(const char* name, std::size_t most) : state_(std::make_shared<State>(name, most)) {}

CallThreads::~CallThreads() {
  std::deque<State::Call> dropped;
  std::vector<std::thread> to_join;
  {
    const base::MutexLock lock(state_->mutex);
    state_->ending = true;
    dropped.swap(state_->waiting);
    state_->changed.notify_all();
    const auto hangs = [this]() KILN_REQUIRES(state_->mutex) {
      return std::ranges::any_of(state_->workers, [](const Worker& worker) { return worker.may_hang; });
    };
    const auto limit = std::chrono::steady_clock::now() + grace;
    while (hangs() && std::chrono::steady_clock::now() < limit) state_->changed.wait_until(state_->mutex, limit);
    for (Worker& worker : state_->workers) {
      if (worker.may_hang)
        worker.thread.detach();
      else
        to_join.push_back(std::move(worker.thread));
    }
  }
  for (std::thread& thread : to_join) thread.join();
}

bool CallThreads::run(std::function<void()> call, AtEnd at_end) {
  std::list<Worker> ended;
  bool runs = false;
  {
    const base::MutexLock lock(state_->mutex);
    try {
      ended = state_->take_ended();
      const bool is_full = state_->idle <= state_->waiting.size() && !state_->has_room();
      runs = state_->idle > state_->waiting.size() || is_full || start(state_);
      if (runs) state_->waiting.push_back({std::move(call), at_end});
    } catch (const std::bad_alloc&) {
      runs = false;
    }
    if (runs) state_->changed.notify_one();
  }
  for (Worker& worker : ended) worker.thread.join();
  return runs;
}

bool CallThreads::start(const std::shared_ptr<State>& state) {
  Worker& worker = state->workers.emplace_back();
  try {
    worker.thread = std::thread([state, &worker] { work(state, worker); });
  } catch (...) {
    state->workers.pop_back();
    return false;
  }
  ++state->alive;
  return true;
}

void CallThreads::work(const std::shared_ptr<State>& state, Worker& self) {
  pthread_setname_np(pthread_self(), state->name);
  for (;;) {
    State::Call call;
    {
      const base::MutexLock lock(state->mutex);
      self.may_hang = false;
      ++state->idle;
      // The end waits for calls that may hang.
      if (state->ending) state->changed.notify_all();
      const auto end = std::chrono::steady_clock::now() + idle_limit;
      while (state->waiting.empty() && !state->ending && std::chrono::steady_clock::now() < end)
        state->changed.wait_until(state->mutex, end);
      --state->idle;
      if (state->waiting.empty()) {
        --state->alive;
        self.ended = true;
        return;
      }
      call = std::move(state->waiting.front());
      state->waiting.pop_front();
      self.may_hang = call.at_end == AtEnd::leave_behind;
      self.began = std::chrono::steady_clock::now();
    }
    try {
      call.run();
    } catch (...) {
      // Out of memory. The call has told those who wait for it.
    }
  }
}

}  // namespace kiln::cache
