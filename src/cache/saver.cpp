#include "cache/saver.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "store/directory.hpp"

namespace kiln::cache {

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
      // Whatever is thrown, such as for want of memory, the entry no longer waits.
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
  // A full or read-only disk fails for every program; one warning is enough.
  const bool first = !warned_.exchange(true);
  options_.log.write(first ? LogLevel::warning : LogLevel::debug,
                     fmt::format("{} works, but is not kept on disk: {}", key.name, put.error().message()));
  return put;
}

}  // namespace kiln::cache
