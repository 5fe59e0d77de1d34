#include "cache/saver.hpp"

#include <algorithm>
#include <atomic>
#include <deque>
#include <system_error>
#include <thread>
#include <utility>

#include <pthread.h>

#include <fmt/format.h>

#include "base/mutex.hpp"
#include "store/directory.hpp"

namespace kiln::cache {

Writer::~Writer() {
  std::thread thread;
  {
    const base::MutexLock lock(mutex_);
    stopping_ = true;
    std::swap(thread, thread_);
    changed_.notify_all();
  }
  if (thread.joinable()) thread.join();
}

void Writer::write(std::function<void()> job) {
  {
    const base::MutexLock lock(mutex_);
    if (queue_.size() < bound_ && start()) {
      queue_.push_back(std::move(job));
      ++queued_;
      changed_.notify_all();
      return;
    }
  }
  job();
}

bool Writer::start() {
  if (thread_.joinable()) return true;
  try {
    thread_ = std::thread([this] { run(); });
    runner_ = thread_.get_id();
  } catch (const std::system_error&) {
    return false;  // No thread available: the caller saves.
  }
  return true;
}

void Writer::flush() {
  const base::MutexLock lock(mutex_);
  // On the writer's thread, the current job would wait for itself.
  if (runner_ == std::this_thread::get_id()) return;
  const std::uint64_t target = queued_;
  while (done_ < target) changed_.wait(mutex_);
}

void Writer::run() {
  pthread_setname_np(pthread_self(), "kiln-writer");
  for (;;) {
    std::function<void()> job;
    {
      const base::MutexLock lock(mutex_);
      while (queue_.empty() && !stopping_) changed_.wait(mutex_);
      if (queue_.empty()) return;
      job = std::move(queue_.front());
      queue_.pop_front();
    }
    try {
      job();
    } catch (...) {
      // A user's store or log may throw. Only this job is lost.
    }
    job = nullptr;
    const base::MutexLock lock(mutex_);
    ++done_;
    changed_.notify_all();
  }
}

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
      log.warning(fmt::format("{} was not uploaded to the shared store: {}", address.key.name, why));
    } catch (...) {
      // A user's log may throw; there is no one to report that to.
    }
  }

  const GuardedStore store;
  /// The sink belongs to the caller and must not be used after the uploader's destruction.
  const Log log;
  const std::size_t bound;
  std::atomic<std::uint64_t> failures{0};

  base::Mutex mutex;
  base::Condition changed;
  std::deque<Upload> queue KILN_GUARDED_BY(mutex);
  /// An upload has left the queue and is not finished.
  bool busy KILN_GUARDED_BY(mutex) = false;
  /// The thread is inside the store, which may block indefinitely.
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
      problem = fmt::format("the upload queue is full, with {} programs", state_->queue.size());
    } else if (!thread_.joinable()) {
      try {
        thread_ = std::thread([state = state_] { run(state); });
      } catch (const std::system_error& error) {
        problem = fmt::format("cannot start the upload thread: {}", error.what());
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
  // Bounded, so that the addition cannot overflow.
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
      // The uploader is destroyed, and the log may be, too.
      if (state->ending) return;
      state->in_store = false;
    }
    if (!put) state->failed(upload.address, put.error().message());
    const base::MutexLock lock(state->mutex);
    state->busy = false;
    state->changed.notify_all();
  }
}

Saver::Saver(const Identity& identity, const Digest& digest, std::shared_ptr<store::DiskStore> disk,
             const std::optional<GuardedStore>& shared, memory::ProgramTable& table, Options options)
    : identity_(identity),
      digest_(digest),
      disk_(std::move(disk)),
      table_(table),
      options_(std::move(options)),
      writer_(options_.queue) {
  if (shared) uploader_.emplace(*shared, options_.log, std::max<std::size_t>(options_.queue, 1));
}

void Saver::save(const Key& key, Entry entry, std::optional<KeyLock> lock, Publish publish) {
  if (!options_.save) {
    if (disk_) table_.keep_unsaved(key.digest, std::move(entry));
    return;
  }
  const bool upload = publish == Publish::yes && uploader_;
  if (!disk_ && !upload) return;
  if (disk_) {
    const base::MutexLock guard(waiting_mutex_);
    waiting_.insert_or_assign(key.digest, entry);
  }
  auto held = std::make_shared<std::optional<KeyLock>>(std::move(lock));
  writer_.write([this, key, entry = std::move(entry), held = std::move(held), upload] {
    std::shared_ptr<const std::vector<std::byte>> sealed;
    {
      // Removes the entry from waiting_ even if the save throws, for example out of memory.
      struct Done {
        Saver& saver;
        const Digest& key;
        const Entry& entry;
        ~Done() { saver.stop_waiting(key, entry); }
      } const done{*this, key.digest, entry};
      sealed = seal(key, *entry);
      if (disk_) static_cast<void>(save_now(key, entry, *sealed));
    }
    held->reset();
    if (upload) uploader_->upload({digest_, key}, sealed);
  });
}

Saver::Entry Saver::waiting(const Digest& key) {
  const base::MutexLock guard(waiting_mutex_);
  const auto found = waiting_.find(key);
  return found != waiting_.end() ? found->second : nullptr;
}

void Saver::stop_waiting(const Digest& key, const Entry& entry) {
  const base::MutexLock guard(waiting_mutex_);
  const auto found = waiting_.find(key);
  if (found != waiting_.end() && found->second == entry) waiting_.erase(found);
}

Result<void> Saver::save_unsaved() {
  Result<void> first;
  for (const auto& [key, entry] : table_.take_unsaved())
    if (auto saved = save_now(key, entry, *seal(key, *entry)); !saved && first) first = std::move(saved);
  return first;
}

std::shared_ptr<const std::vector<std::byte>> Saver::seal(const Key& key, const store::UnsavedEntry& entry) const {
  return std::make_shared<const std::vector<std::byte>>(
      entry.sealed.empty() ? store::seal_entry(label_of(key), entry.entry) : entry.sealed);
}

Result<void> Saver::save_now(const Key& key, const Entry& entry, std::span<const std::byte> sealed) {
  auto put = disk_->put({digest_, key}, sealed, store::meta_of(label_of(key), entry->entry, sealed.size()));
  if (put) {
    ++saves_;
    table_.mark_stored(key.digest);
    return put;
  }
  ++failures_;
  table_.keep_unsaved(key.digest, entry);
  // A full or read-only disk fails for every program; warn once.
  const bool first = !warned_.exchange(true);
  options_.log.write(first ? LogLevel::warning : LogLevel::debug,
                     fmt::format("{} can be used but was not saved to disk: {}", key.name, put.error().message()));
  return put;
}

}  // namespace kiln::cache
