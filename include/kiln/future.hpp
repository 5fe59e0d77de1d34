#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <kiln/result.hpp>

namespace kiln {

template <class T>
class Future;
template <class T>
class Promise;
class Pending;

/// A future that is ready when all of `pending` are. It has the error of the first in the list that has one. It
/// keeps copies of the handles, cancels none of them, and cannot be cancelled itself. May be called from any
/// thread.
Future<void> when_all(std::span<const Pending> pending);

namespace detail {

/// The point in time `time` from now, or time_point::max() if the clock cannot represent it.
template <class Rep, class Period>
std::chrono::steady_clock::time_point after(std::chrono::duration<Rep, Period> time) {
  using Clock = std::chrono::steady_clock;
  const auto now = Clock::now();
  using Seconds = std::chrono::duration<double>;
  if (Seconds(time) >= Seconds(Clock::time_point::max() - now)) return Clock::time_point::max();
  return now + std::chrono::duration_cast<Clock::duration>(time);
}

/// Runs continuations. Non-owning: work that arrives after the executor has ended runs at once.
using Continue = std::function<void(std::function<void()>)>;

/// The state that a future and its promise share, without the value.
class FutureState {
 public:
  explicit FutureState(std::shared_ptr<const Continue> where) : where_(std::move(where)) {}
  FutureState(const FutureState&) = delete;
  FutureState& operator=(const FutureState&) = delete;
  virtual ~FutureState() = default;

  bool ready() const {
    const std::lock_guard lock(mutex_);
    return ready_;
  }
  void wait() const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ready_; });
  }
  bool wait_until(std::chrono::steady_clock::time_point when) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, when, [this] { return ready_; });
  }
  /// Calls `done` when there is a result: now if there is one already, else on the thread that sets it.
  void when_ready(std::function<void()> done) {
    {
      const std::lock_guard lock(mutex_);
      if (!ready_) {
        waiting_.push_back(std::move(done));
        return;
      }
    }
    done();
  }
  /// The function that cancel() calls; set before the future is handed out.
  void on_cancel(std::function<bool()> cancel) { cancel_ = std::move(cancel); }
  bool cancel() const { return cancel_ && cancel_(); }
  const std::shared_ptr<const Continue>& where() const noexcept { return where_; }

  /// The error in place of a value, or null; only once ready().
  virtual const Error* error() const noexcept = 0;

 protected:
  /// Stores the result by `store` and notifies all threads that wait; false if there was one already.
  template <class Store>
  bool finish(Store store) {
    std::vector<std::function<void()>> waiting;
    {
      const std::lock_guard lock(mutex_);
      if (ready_) return false;
      store();
      ready_ = true;
      waiting.swap(waiting_);
    }
    changed_.notify_all();
    for (const auto& done : waiting) {
      try {
        done();
      } catch (...) {
        // An exception of one must stop neither the others nor this thread.
      }
    }
    return true;
  }

 private:
  const std::shared_ptr<const Continue> where_;
  std::function<bool()> cancel_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool ready_ = false;
  std::vector<std::function<void()>> waiting_;
};

template <class T>
class FutureValue final : public FutureState {
 public:
  using FutureState::FutureState;
  bool set(Result<T> result) {
    return finish([&] { result_.emplace(std::move(result)); });
  }
  /// Only once ready(); does not change then.
  const Result<T>& result() const noexcept { return *result_; }
  const Error* error() const noexcept override { return *result_ ? nullptr : &result_->error(); }

 private:
  std::optional<Result<T>> result_;
};

template <class T>
struct Unwrapped {
  using type = T;
};
template <class T>
struct Unwrapped<Result<T>> {
  using type = T;
};

/// The result of `f`; an exception becomes an error.
template <class T, class F>
Result<T> call(F&& f) {
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<F>>) {
      std::forward<F>(f)();
      return {};
    } else {
      return std::forward<F>(f)();
    }
  } catch (const Failure& failure) {
    return failure.error();
  } catch (const std::exception& e) {
    return Error(ErrorCode::callback_failed, std::string("a continuation threw: ") + e.what());
  } catch (...) {
    return Error(ErrorCode::callback_failed, "a continuation threw an exception of an unknown type");
  }
}

}  // namespace detail

/// The common part of futures of all types, and what a job can wait for (Job::after). A handle: copies share the
/// state, which lives as long as one of them. All functions may be called from any thread.
class Pending {
 public:
  /// Ready from the start, without an error.
  Pending() = default;

  /// Whether there is a result or an error. Does not wait.
  bool ready() const { return state_ == nullptr || state_->ready(); }
  /// Waits until ready(). A continuation must not wait for another one: see Future::then().
  void wait() const {
    if (state_ != nullptr) state_->wait();
  }
  /// Waits for at most `time`; whether it is ready().
  template <class Rep, class Period>
  bool wait_for(std::chrono::duration<Rep, Period> time) const {
    return state_ == nullptr || state_->wait_until(detail::after(time));
  }
  /// Waits; then the error, or null if there is none. Valid as long as this handle or a copy of it, so it does not
  /// compile on a temporary: keep the future, or call get().
  const Error* error() const& {
    wait();
    return state_ != nullptr ? state_->error() : nullptr;
  }
  const Error* error() const&& = delete;
  /// Cancels a job that has not begun; its future then holds the error `cancelled`. Returns whether it was
  /// cancelled. Only jobs can be cancelled: not programs, continuations or when_all().
  bool cancel() const { return state_ != nullptr && state_->cancel(); }
  /// Calls `done` once when this is ready. If it is ready already, calls `done` now and passes exceptions on;
  /// otherwise calls it on the thread that sets the result, which ignores exceptions. Must return soon; put work
  /// into Future::then().
  void when_ready(std::function<void()> done) const {
    if (state_ != nullptr) {
      state_->when_ready(std::move(done));
    } else {
      done();
    }
  }

 protected:
  friend Future<void> when_all(std::span<const Pending> pending);
  explicit Pending(std::shared_ptr<detail::FutureState> state) noexcept : state_(std::move(state)) {}
  std::shared_ptr<detail::FutureState> state_;
};

/// A value that will be there later, or the error in its place. Copies share it, and it lives as long as one of
/// them. All functions may be called from any thread.
template <class T>
class Future : public Pending {
 public:
  /// Waits for the result, which is valid as long as the future or a copy of it. A temporary returns a copy of the
  /// result.
  const Result<T>& get() const& {
    wait();
    return value().result();
  }
  Result<T> get() const&& {
    wait();
    return value().result();
  }

  /// Calls `f` with the result, a value or an error, once it is ready:
  /// - for a future of an executor, on one of its threads for continuations
  /// - for any other, or if the executor has ended, on the thread that sets the result, or on this thread if the
  ///   result is there already
  ///
  /// `f` takes a `const Result<T>&` and returns U, Result<U> or nothing. If it
  /// throws, the new future holds callback_failed, or the error of a Failure. `f` is kept until it has run. It may
  /// submit jobs and wait for them, but not for other continuations. It must neither destroy the executor nor own
  /// the last reference to it.
  template <class F>
  auto then(F f) const {
    using Returned = std::invoke_result_t<F, const Result<T>&>;
    using U = typename detail::Unwrapped<Returned>::type;
    auto next = std::make_shared<detail::FutureValue<U>>(state_->where());
    auto run = [state = state_, next, f = std::make_shared<F>(std::move(f))] {
      const Result<T>& result = static_cast<const detail::FutureValue<T>&>(*state).result();
      next->set(detail::call<U>([&] { return (*f)(result); }));
    };
    state_->when_ready([where = state_->where(), run] {
      if (where != nullptr && *where) {
        (*where)(run);
      } else {
        run();
      }
    });
    return Future<U>(std::move(next));
  }

 private:
  template <class>
  friend class Future;
  template <class>
  friend class Promise;
  explicit Future(std::shared_ptr<detail::FutureState> state) noexcept : Pending(std::move(state)) {}
  const detail::FutureValue<T>& value() const noexcept {
    return static_cast<const detail::FutureValue<T>&>(*state_);
  }
};

/// The other end of a future, which sets its result once. Copies share it; if all are destroyed before a result is
/// set, the future holds the error `cancelled`. All functions but on_cancel() may be called from any thread.
template <class T>
class Promise {
 public:
  /// `where` runs the continuations; null: the thread that sets the result.
  explicit Promise(std::shared_ptr<const detail::Continue> where = {})
      : end_(std::make_shared<const End>(std::make_shared<detail::FutureValue<T>>(std::move(where)))) {}

  /// The future; any number of calls return the same one.
  Future<T> future() const { return Future<T>(end_->state); }
  /// Sets the result, then runs what waits for it. Returns false, and does nothing, if there already is one.
  bool set(Result<T> result) const { return end_->state->set(std::move(result)); }
  /// Sets the function that Pending::cancel() calls and whose result it returns. Call it before the future is
  /// handed out.
  void on_cancel(std::function<bool()> cancel) const { end_->state->on_cancel(std::move(cancel)); }

 private:
  struct End {
    explicit End(std::shared_ptr<detail::FutureValue<T>> of) noexcept : state(std::move(of)) {}
    ~End() {
      if (!state->ready()) state->set(Error(ErrorCode::cancelled, "the promise was destroyed without a result"));
    }
    End(const End&) = delete;
    End& operator=(const End&) = delete;
    const std::shared_ptr<detail::FutureValue<T>> state;
  };
  std::shared_ptr<const End> end_;
};

/// when_all() for futures of one type.
template <class T>
Future<void> when_all(const std::vector<Future<T>>& futures) {
  const std::vector<Pending> pending(futures.begin(), futures.end());
  return when_all(std::span<const Pending>(pending));
}

}  // namespace kiln
