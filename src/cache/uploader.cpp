#include "cache/uploader.hpp"

#include <deque>
#include <system_error>
#include <utility>

#include <pthread.h>

#include <fmt/format.h>

#include "base/event.hpp"
#include "base/mutex.hpp"

namespace kiln::cache {
namespace {

/// Beyond the timeout of the store, an upload gets the time that this slow a connection needs.
constexpr double least_bytes_per_second = 1 << 20;

}  // namespace

struct Uploader::State {
  struct Upload {
    EntryAddress address;
    Sealed sealed;
    std::shared_ptr<HeldLease> lease;
  };

  State(std::shared_ptr<StoreClient> to, std::size_t at_most, May is_allowed)
      : client(std::move(to)), bound(at_most), may(std::move(is_allowed)) {}

  const std::shared_ptr<StoreClient> client;
  const std::size_t bound;
  const May may;
  /// Cancels the upload under way.
  const base::Event cancelled;

  base::Mutex mutex;
  base::Condition changed;
  std::deque<Upload> queue KILN_GUARDED_BY(mutex);
  /// An upload has left the queue and is not finished.
  bool busy KILN_GUARDED_BY(mutex) = false;
  std::uint64_t done KILN_GUARDED_BY(mutex) = 0;
  /// The value of `done` when somebody waited in vain.
  std::optional<std::uint64_t> in_vain KILN_GUARDED_BY(mutex) = {};
  bool ending KILN_GUARDED_BY(mutex) = false;
};

Uploader::Uploader(std::shared_ptr<StoreClient> client, std::size_t bound, May may)
    : state_(std::make_shared<State>(std::move(client), bound, std::move(may))) {}

Uploader::~Uploader() {
  bool may_hang = false;
  std::deque<State::Upload> dropped;
  {
    const base::MutexLock lock(state_->mutex);
    state_->ending = true;
    dropped.swap(state_->queue);
    state_->changed.notify_all();
    may_hang = state_->busy && !state_->client->settings().keeps_limits;
  }
  state_->cancelled.set();
  if (!thread_.joinable()) return;
  if (may_hang)
    thread_.detach();
  else
    thread_.join();
}

void Uploader::upload(EntryAddress address, Sealed sealed, std::shared_ptr<HeldLease> lease) {
  if (!state_->client->takes_uploads()) return;
  std::string problem;
  {
    const base::MutexLock lock(state_->mutex);
    if (state_->queue.size() >= state_->bound) {
      problem = fmt::format("the upload queue is full, with {} programs", state_->queue.size());
    } else if (!thread_.joinable()) {
      try {
        thread_ = std::thread([state = state_] { run(state); });
      } catch (const std::system_error& error) {
        problem = fmt::format("cannot start the upload thread: {}", error.what());
      }
    }
    if (problem.empty()) {
      state_->queue.push_back({std::move(address), std::move(sealed), std::move(lease)});
      state_->changed.notify_all();
      return;
    }
  }
  state_->client->count_dropped_upload(address, problem);
}

bool Uploader::wait_until(std::chrono::steady_clock::time_point deadline) {
  const base::MutexLock lock(state_->mutex);
  while (state_->busy || !state_->queue.empty()) {
    if (state_->in_vain == state_->done) return false;
    if (std::chrono::steady_clock::now() >= deadline) {
      state_->in_vain = state_->done;
      return false;
    }
    state_->changed.wait_until(state_->mutex, deadline);
  }
  return true;
}

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
    }
    if (state->may(*upload.sealed)) {
      const std::chrono::duration<double> transfer(static_cast<double>(upload.sealed->size()) /
                                                   least_bytes_per_second);
      const auto limit = std::chrono::steady_clock::now() + state->client->settings().timeout +
                         std::chrono::duration_cast<std::chrono::milliseconds>(transfer);
      static_cast<void>(state->client->put(upload.address, *upload.sealed, {limit, state->cancelled.descriptor()}));
    }
    upload.lease = nullptr;
    const base::MutexLock lock(state->mutex);
    state->busy = false;
    ++state->done;
    state->changed.notify_all();
  }
}

}  // namespace kiln::cache
