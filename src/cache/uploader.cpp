#include "cache/uploader.hpp"

#include <algorithm>
#include <atomic>
#include <deque>
#include <system_error>
#include <thread>
#include <utility>

#include <pthread.h>

#include <fmt/format.h>

#include "base/mutex.hpp"

namespace kiln::cache {

struct Uploader::State {
  struct Upload {
    EntryAddress address;
    std::shared_ptr<const std::vector<std::byte>> sealed;
  };

  State(GuardedStore to, Log messages, std::size_t at_most)
      : store(std::move(to)), log(std::move(messages)), bound(at_most) {}

  void failed(const EntryAddress& address, std::string_view why) {
    ++failures;
    try {
      log.warning(fmt::format("{} is not shared: {}", address.key.name, why));
    } catch (...) {
      // A log of the user's own may throw. Nobody here could do anything about it.
    }
  }

  const GuardedStore store;
  /// The sink is the caller's: it is not used once the uploader is gone.
  const Log log;
  const std::size_t bound;
  std::atomic<std::uint64_t> failures{0};

  base::Mutex mutex;
  base::Condition changed;
  std::deque<Upload> queue KILN_GUARDED_BY(mutex);
  /// An upload was taken from the queue and is not done.
  bool busy KILN_GUARDED_BY(mutex) = false;
  /// The thread is within the store, and nobody knows for how long.
  bool in_store KILN_GUARDED_BY(mutex) = false;
  bool ending KILN_GUARDED_BY(mutex) = false;
};

Uploader::Uploader(GuardedStore store, Log log, std::size_t bound)
    : state_(std::make_shared<State>(std::move(store), std::move(log), bound)) {}

Uploader::~Uploader() {
  bool stuck = false;
  {
    const base::MutexLock lock(state_->mutex);
    state_->ending = true;
    state_->queue.clear();
    state_->changed.notify_all();
    stuck = state_->in_store;
  }
  if (!thread_.joinable()) return;
  if (stuck)
    thread_.detach();
  else
    thread_.join();
}

void Uploader::upload(EntryAddress address, std::shared_ptr<const std::vector<std::byte>> sealed) {
  std::string problem;
  {
    const base::MutexLock lock(state_->mutex);
    if (state_->queue.size() >= state_->bound) {
      problem = fmt::format("{} programs wait for the shared store already", state_->queue.size());
    } else if (!thread_.joinable()) {
      try {
        thread_ = std::thread([state = state_] { run(state); });
      } catch (const std::system_error& error) {
        problem = fmt::format("no thread can be started: {}", error.what());
      }
    }
    if (problem.empty()) {
      state_->queue.push_back({std::move(address), std::move(sealed)});
      state_->changed.notify_all();
      return;
    }
  }
  state_->failed(address, problem);
}

bool Uploader::wait(std::chrono::milliseconds limit) {
  // Bounded, so that the sum is a time.
  const auto deadline =
      std::chrono::steady_clock::now() + std::min<std::chrono::milliseconds>(limit, std::chrono::hours(24 * 365));
  const base::MutexLock lock(state_->mutex);
  while (state_->busy || !state_->queue.empty()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    state_->changed.wait_until(state_->mutex, deadline);
  }
  return true;
}

std::uint64_t Uploader::failures() const noexcept { return state_->failures; }

void Uploader::run(const std::shared_ptr<State>& state) {
  pthread_setname_np(pthread_self(), "kiln-uploader");
  for (;;) {
    State::Upload upload;
    {
      const base::MutexLock lock(state->mutex);
      while (state->queue.empty() && !state->ending) state->changed.wait(state->mutex);
      if (state->ending) return;
      upload = std::move(state->queue.front());
      state->queue.pop_front();
      state->busy = true;
      state->in_store = true;
    }
    const auto put = state->store.put(upload.address, *upload.sealed);
    {
      const base::MutexLock lock(state->mutex);
      // The uploader is gone, and so may be the log.
      if (state->ending) return;
      state->in_store = false;
    }
    if (!put) state->failed(upload.address, put.error().message());
    const base::MutexLock lock(state->mutex);
    state->busy = false;
    state->changed.notify_all();
  }
}

}  // namespace kiln::cache
