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
#include "store/shared_store.hpp"

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
  if (!queue(job)) job();
}

bool Writer::queue(std::function<void()>& job) {
  const base::MutexLock lock(mutex_);
  if (queue_.size() >= bound_ || !start()) return false;
  queue_.push_back(std::move(job));
  ++queued_;
  changed_.notify_all();
  return true;
}

bool Writer::start() {
  if (thread_.joinable()) return true;
  try {
    thread_ = std::thread([this] { run(); });
    runner_ = thread_.get_id();
  } catch (const std::system_error&) {
    return false;  // No thread available.
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
      // A user's store may throw, and memory may run out. Only this job is lost.
    }
    job = nullptr;
    const base::MutexLock lock(mutex_);
    ++done_;
    changed_.notify_all();
  }
}

Saver::Saver(const Identity& identity, const Digest& digest, std::shared_ptr<store::DiskStore> disk,
             SharedStores& shared, memory::ProgramTable& table, Options options)
    : identity_(identity),
      digest_(digest),
      disk_(std::move(disk)),
      shared_(shared),
      table_(table),
      options_(std::move(options)),
      writer_(options_.queue) {}

void Saver::save(const Key& key, Entry entry, std::optional<KeyLock> lock, std::size_t upload_before,
                 std::shared_ptr<HeldLease> lease) {
  if (!options_.save) {
    if (disk_) table_.keep_unsaved(key.digest, std::move(entry));
    return;
  }
  const bool upload = upload_before > 0 && shared_.takes_uploads();
  if (!disk_ && !upload) return;
  if (disk_) {
    const base::MutexLock guard(waiting_mutex_);
    waiting_.insert_or_assign(key.digest, entry);
  }
  auto held = std::make_shared<std::optional<KeyLock>>(std::move(lock));
  writer_.write([this, key, entry = std::move(entry), held = std::move(held), upload, upload_before,
                 lease = std::move(lease)] {
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
    if (upload) shared_.upload(key, shared_form(key, *entry, sealed), upload_before, lease);
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

SharedStores::Sealed Saver::seal(const Key& key, const store::UnsavedEntry& entry) const {
  return std::make_shared<const std::vector<std::byte>>(
      entry.sealed.empty() ? shared_.sign(store::seal_entry(label_of(key), entry.entry)) : entry.sealed);
}

SharedStores::Sealed Saver::shared_form(const Key& key, const store::UnsavedEntry& entry,
                                        const SharedStores::Sealed& sealed) const {
  // What came from a store is passed on as it is: it has the signatures of others.
  if (!shared_.strips_facts() || !entry.sealed.empty()) return sealed;
  return std::make_shared<const std::vector<std::byte>>(
      shared_.sign(store::seal_entry(label_of(key), store::without_facts(entry.entry))));
}

Result<void> Saver::save_now(const Key& key, const Entry& entry, std::span<const std::byte> sealed) {
  auto put = disk_->put({digest_, key}, sealed, store::meta_of(label_of(key), entry->entry, sealed.size()));
  if (put) {
    ++saves_;
    table_.mark_stored(key.digest);
    return put;
  }
  const auto failure = [&] {
    return fmt::format("{} can be used but was not saved to disk: {}", key.name, put.error().message());
  };
  if (entry->is_elsewhere) {
    options_.log.debug(failure());
    return put;
  }
  ++failures_;
  table_.keep_unsaved(key.digest, entry);
  // A full or read-only disk fails for every program; warn once.
  const bool first = !warned_.exchange(true);
  options_.log.write(first ? LogLevel::warning : LogLevel::debug, failure());
  return put;
}

}  // namespace kiln::cache
