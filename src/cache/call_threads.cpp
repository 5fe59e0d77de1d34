#include "cache/call_threads.hpp"

#include <chrono>
#include <deque>
#include <list>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <pthread.h>

#include "base/mutex.hpp"

namespace kiln::cache {
namespace {

constexpr auto idle_limit = std::chrono::seconds(10);

}  // namespace

struct CallThreads::Worker {
  std::thread thread = {};
  /// It is inside a call that may hang.
  bool may_hang = false;
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
  std::vector<std::thread> ended;
  {
    const base::MutexLock lock(state_->mutex);
    state_->waiting.push_back({std::move(call), at_end});
    if (state_->idle < state_->waiting.size() && state_->alive < state_->most) {
      for (auto worker = state_->workers.begin(); worker != state_->workers.end();) {
        if (worker->ended) ended.push_back(std::move(worker->thread));
        worker = worker->ended ? state_->workers.erase(worker) : std::next(worker);
      }
      Worker& worker = state_->workers.emplace_back();
      try {
        worker.thread = std::thread([state = state_, &worker] { work(state, worker); });
        ++state_->alive;
      } catch (const std::system_error&) {
        state_->workers.pop_back();
        if (state_->alive == 0) {
          state_->waiting.pop_back();
          return false;
        }
      }
    }
    state_->changed.notify_one();
  }
  for (std::thread& thread : ended) thread.join();
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
    }
    call.run();
  }
}

}  // namespace kiln::cache
