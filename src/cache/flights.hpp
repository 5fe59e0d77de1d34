#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <kiln/digest.hpp>
#include <kiln/program.hpp>
#include <kiln/result.hpp>

#include "base/mutex.hpp"
#include "cache/worker_pool.hpp"

namespace kiln::cache {

/// Calls a backend. Exceptions become errors.
template <class Call>
auto without_exceptions(Call call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::out_of_memory, "this process ran out of memory");
  } catch (const std::exception& exception) {
    const char* what = exception.what();
    return Error(ErrorCode::device_failed,
                 std::string("the backend threw an exception: ") + (what != nullptr ? what : "unknown"));
  } catch (...) {
    return Error(ErrorCode::device_failed, "the backend threw an exception");
  }
}

/// A thread waits for the work of another one: its flights count as those of the other thread, so that a recursive
/// call there is noticed.
class WorkForThread {
 public:
  /// The calling thread waits for the work.
  WorkForThread();
  ~WorkForThread() { state_->is_waited_for = false; }
  WorkForThread(const WorkForThread&) = delete;
  WorkForThread& operator=(const WorkForThread&) = delete;

  struct State : std::enable_shared_from_this<State> {
    explicit State(std::shared_ptr<const State> work_of_waiting_thread)
        : outer(std::move(work_of_waiting_thread)) {}
    const std::thread::id waiting = std::this_thread::get_id();
    /// The work that the waiting thread does itself for another one.
    const std::shared_ptr<const State> outer;
    std::atomic<bool> is_waited_for{true};
  };
  const std::shared_ptr<State>& state() const noexcept { return state_; }

  /// During its lifetime, the calling thread does the work.
  class Scope {
   public:
    explicit Scope(std::shared_ptr<const State> work);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const std::shared_ptr<const State> work_;
    const State* const outer_;
  };

  /// Whether `thread` is the calling thread, or waits for what the calling thread does.
  static bool is_done_for(std::thread::id thread);

 private:
  const std::shared_ptr<State> state_;
};

/// Single flight per key: the first caller does the work, and concurrent callers wait for its outcome.
class Flights {
 public:
  /// A program, an error, or nothing if the program was not found.
  using Outcome = Result<std::optional<Program>>;
  using Continuation = std::function<void(const Outcome&)>;

  struct Landed {
    Outcome outcome;
    /// Whether another thread did the work.
    bool joined;
  };

  /// `workers` is the pool that flights may depend on: a worker that waits for another thread's flight does not
  /// count as one of its workers.
  explicit Flights(WorkerPool& workers) : workers_(workers) {}

  /// Runs `fly`, unless another thread already does so for this key; then waits for that thread's outcome. Calls
  /// `landed_before` first, while no flight of this key can land, and returns its program if it finds one.
  /// Exceptions from `fly` become errors. A recursive call for the same key from `fly` fails instead of
  /// deadlocking.
  Landed fly(const Digest& key, const std::function<Program()>& landed_before, const std::function<Outcome()>& fly);

  /// Registers `then`, which the thread that flies this key calls with the outcome. Returns false, and does not
  /// register `then`, if no thread flies this key or if it is the calling thread.
  bool when_landed(const Digest& key, Continuation then);
  /// Whether a thread flies this key now.
  bool is_in_flight(const Digest& key);

 private:
  struct Flight {
    std::shared_future<Outcome> outcome;
    std::thread::id thread;
    std::vector<Continuation> then = {};
  };

  WorkerPool& workers_;
  base::Mutex mutex_;
  std::map<Digest, Flight> in_flight_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::cache
