#include "store/disk_store.hpp"

#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "key/identity.hpp"
#include "store/directory.hpp"
#include "store/sealed_entry.hpp"

namespace kiln::store {
namespace {

// The last use is the file's modification time; updated at most once an hour.
constexpr std::int64_t touch_after_seconds = 3600;

// A killed process leaves at most this many of its saves uncounted until the next prune.
constexpr std::size_t puts_before_counting = 32;

std::optional<std::int64_t> bytes_of(const base::Folder& folder, const std::string& name) {
  const auto status = folder.status(name);
  return status ? std::optional(static_cast<std::int64_t>(status->st_size)) : std::nullopt;
}

/// Gives a nameless entry the name that its program turns out to have. Returns whether there was one.
bool name_entry(const base::Folder& folder, const Key& key) {
  const std::string nameless = entry_file_name({key.digest, {}});
  const std::string name = entry_file_name(key);
  if (name == nameless || !folder.status(nameless) || !folder.rename(nameless, name)) return false;
  folder.rename(meta_file_name(nameless), meta_file_name(name));
  return true;
}

std::int64_t now_seconds() { return std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()); }

}  // namespace

struct DiskStore::Opened {
  base::Folder folder;
  /// Not open if locks are not available.
  base::FileHandle lock_file;
};

DiskStore::DiskStore(Private, const std::filesystem::path& root, const Identity& identity, Log log,
                     Durability durability, const base::FileSystem& system)
    : identity_(identity),
      identity_digest_(identity.digest()),
      path_(root / key::folder_name(identity, identity_digest_)),
      log_(std::move(log)),
      durability_(durability),
      system_(system) {}

Result<std::unique_ptr<DiskStore>> DiskStore::open(const std::filesystem::path& root, const Identity& identity,
                                                   Log log, Durability durability, const base::FileSystem& system) {
  auto folder = KILN_TRY(base::Folder::open(root, true, system));
  if (durability == Durability::fsync) folder.sync_name();
  auto store = std::make_unique<DiskStore>(Private{}, root, identity, std::move(log), durability, system);
  std::error_code error;
  if (std::filesystem::exists(store->path_, error)) KILN_TRY(store->reopen(false));
  return store;
}

std::shared_ptr<const DiskStore::Opened> DiskStore::last_opened() const {
  const base::MutexLock lock(opened_mutex_);
  return opened_;
}

std::shared_ptr<const DiskStore::Opened> DiskStore::opened() {
  const auto opened = last_opened();
  if (opened != nullptr && opened->folder.exists()) return opened;
  // Another process may have created it since, or created it again after a removal.
  auto found = reopen(false);
  return found ? *found : nullptr;
}

Result<std::shared_ptr<const DiskStore::Opened>> DiskStore::opened_or_made() {
  if (auto opened = this->opened()) return opened;
  return reopen(true);
}

Result<std::shared_ptr<const DiskStore::Opened>> DiskStore::reopen(bool create) {
  const base::MutexLock lock(opened_mutex_);
  auto folder = KILN_TRY(base::Folder::open(path_, create, system_));
  const bool is_new = create && !folder.status(manifest_name);
  base::FileHandle lock_file;
  // Without a lock file, processes may compile the same program twice; nothing else breaks.
  if (auto opened = folder.open_lock_file(lock_name); opened && base::FileLock::is_held(*opened, 0))
    lock_file = std::move(*opened);
  if (durability_ == Durability::fsync) folder.sync_name();
  if (is_new)
    if (auto written = store::write_manifest(folder, identity_); !written) log_.debug(written.error().message());
  lock_descriptor_ = lock_file.get();
  opened_ = std::make_shared<const Opened>(Opened{std::move(folder), std::move(lock_file)});
  return opened_;
}

void DiskStore::leave_to_parent() noexcept {
  if (const int descriptor = lock_descriptor_.exchange(-1); descriptor >= 0) system_.close(descriptor);
}

Result<std::optional<std::vector<std::byte>>> DiskStore::get(const EntryAddress& address) {
  using Found = std::optional<std::vector<std::byte>>;
  if (address.identity != identity_digest_) return Found{};
  const std::string name = entry_file_name(address.key);
  auto opened = last_opened();
  Result<std::optional<base::FileContents>> file = std::optional<base::FileContents>{};
  if (opened != nullptr) file = opened->folder.read(name, max_entry_bytes);
  if (file && !*file) {
    // The file may be missing because the folder was removed; look for a new folder only then.
    auto now = this->opened();
    if (now == nullptr || (now == opened && !name_entry(now->folder, address.key))) return Found{};
    opened = std::move(now);
    file = opened->folder.read(name, max_entry_bytes);
  }
  if (!file) return std::move(file).error();
  if (!*file) return Found{};
  if (now_seconds() - (*file)->changed > touch_after_seconds)
    if (auto touched = opened->folder.touch(name); !touched) log_.debug(touched.error().message());
  return Found(std::move((*file)->bytes));
}

Result<void> DiskStore::put(const EntryAddress& address, std::span<const std::byte> sealed) {
  if (address.identity != identity_digest_)
    return Error(ErrorCode::invalid_request, fmt::format("{} was made for another device or compiler, not for {}",
                                                         address.key.name, path_.string()));
  return write(address.key, sealed, std::nullopt);
}

Result<void> DiskStore::put(const EntryAddress& address, std::span<const std::byte> sealed, std::string_view meta) {
  if (address.identity != identity_digest_) return put(address, sealed);
  return write(address.key, sealed, meta);
}

Result<void> DiskStore::write(const Key& key, std::span<const std::byte> sealed,
                              std::optional<std::string_view> meta) {
  if (sealed.size() > max_entry_bytes)
    return Error(ErrorCode::unsupported, fmt::format("the binary of {} is too large to be stored", key.name));
  auto opened = KILN_TRY(opened_or_made());
  const base::Folder& folder = opened->folder;
  const std::string name = entry_file_name(key);
  const std::string meta_name = meta_file_name(name);
  const auto bytes_before = bytes_of(folder, name);
  const auto meta_before = bytes_of(folder, meta_name);
  KILN_TRY(folder.replace(name, sealed, durability_));
  UsageChange change{bytes_before ? 0 : 1, static_cast<std::int64_t>(sealed.size()) - bytes_before.value_or(0)};
  if (meta) {
    // The .meta file is informational: the entry is valid without it.
    if (auto written = folder.replace(meta_name, std::as_bytes(std::span(meta->data(), meta->size()))); written)
      change.bytes += static_cast<std::int64_t>(meta->size()) - meta_before.value_or(0);
    else
      log_.debug(written.error().message());
  }
  count(folder, change);
  return {};
}

Result<void> DiskStore::remove(const Key& key) {
  const auto opened = this->opened();
  if (opened == nullptr) return {};
  const base::Folder& folder = opened->folder;
  const std::string name = entry_file_name(key);
  const std::string meta_name = meta_file_name(name);
  UsageChange change{-1, -bytes_of(folder, name).value_or(0)};
  const auto meta_bytes = bytes_of(folder, meta_name);
  auto removed = KILN_TRY(folder.remove(name));
  if (!removed) change = {};
  if (auto meta_removed = folder.remove(meta_name); !meta_removed)
    log_.debug(meta_removed.error().message());
  else if (*meta_removed)
    change.bytes -= meta_bytes.value_or(0);
  count(folder, change);
  return {};
}

Result<void> DiskStore::touch(const Key& key) {
  const auto opened = this->opened();
  if (opened == nullptr) return {};
  const std::string name = entry_file_name(key);
  const auto status = opened->folder.status(name);
  if (!status || now_seconds() - status->st_mtime <= touch_after_seconds) return {};
  return opened->folder.touch(name);
}

Result<std::vector<StoredItem>> DiskStore::list() {
  std::vector<StoredItem> items;
  const auto opened = this->opened();
  if (opened == nullptr) return items;
  auto files = KILN_TRY(stored_files(opened->folder));
  for (StoredFile& file : files) items.push_back({std::move(file.key), file.bytes, file.last_use});
  return items;
}

bool DiskStore::has_locks() {
  const auto opened = opened_or_made();
  return opened && (*opened)->lock_file;
}

bool DiskStore::is_locked(const Key& key) {
  const auto opened = this->opened();
  return opened != nullptr && opened->lock_file &&
         base::FileLock::is_held(opened->lock_file, key.digest.word(0)).value_or(false);
}

std::optional<DiskStore::KeyLock> DiskStore::lock(const Key& key, std::chrono::milliseconds timeout, Turn turn) {
  auto opened = opened_or_made();
  if (!opened || !(*opened)->lock_file) return std::nullopt;
  const std::uint64_t byte = key.digest.word(turn == Turn::first ? 0 : 1);
  auto lock = base::FileLock::acquire((*opened)->lock_file, byte, timeout);
  if (!lock) return std::nullopt;
  return KeyLock(*this, key, std::move(*opened), std::move(*lock));
}

Usage DiskStore::usage() {
  const auto opened = this->opened();
  if (opened == nullptr) return {};
  if (const auto usage = read_usage(opened->folder)) return add(*usage, uncounted());
  const base::MutexLock saving(save_mutex_);
  if (!counted_) {
    // The listing includes earlier puts; concurrent puts make the count approximate.
    const UsageChange listed = uncounted();
    const auto counted = count_usage(opened->folder);
    if (!counted) return {};
    auto written = write_usage(opened->folder, *counted);
    if (!written) log_.debug(written.error().message());
    // Keep the counts of a folder that is not writable, so that it is listed only once.
    if (!written) counted_ = *counted;
    now_counted(listed);
    if (written) return add(*counted, uncounted());
  }
  return add(*counted_, uncounted());
}

UsageChange DiskStore::uncounted() const {
  const base::MutexLock lock(notes_mutex_);
  return uncounted_;
}

void DiskStore::now_counted(const UsageChange& change) {
  const base::MutexLock lock(notes_mutex_);
  uncounted_.programs -= change.programs;
  uncounted_.bytes -= change.bytes;
}

void DiskStore::count(const base::Folder& folder, const UsageChange& change) {
  {
    const base::MutexLock lock(notes_mutex_);
    uncounted_.programs += change.programs;
    uncounted_.bytes += change.bytes;
    if (++uncounted_puts_ < puts_before_counting) return;
    uncounted_puts_ = 0;
  }
  const base::MutexLock saving(save_mutex_);
  if (auto saved = save_counts(folder, std::chrono::milliseconds(0)); !saved) log_.debug(saved.error().message());
}

Result<void> DiskStore::save_counts(const base::Folder& folder, std::chrono::milliseconds timeout) {
  const UsageChange change = uncounted();
  if (change.empty()) return {};
  auto added = add_to_usage(folder, change, timeout);
  if (added) now_counted(change);
  return added;
}

Performance DiskStore::performance(const Digest& key) {
  const auto opened = last_opened();
  const base::MutexLock lock(notes_mutex_);
  if (const auto noted = noted_.find(key); noted != noted_.end()) return noted->second;
  if (!measured_ && opened != nullptr) measured_ = PerformanceFile::read(opened->folder);
  return measured_ ? measured_->find(key) : Performance{};
}

void DiskStore::note_performance(const Digest& key, const Performance& performance) {
  {
    const base::MutexLock lock(notes_mutex_);
    noted_.insert_or_assign(key, performance);
    if (noted_.size() < PerformanceFile::max_programs) return;
  }
  // The file cannot hold more notes than this.
  if (const auto opened = last_opened()) {
    const base::MutexLock saving(save_mutex_);
    if (auto saved = save_performance(opened->folder); !saved) log_.debug(saved.error().message());
  }
  // Drop notes that cannot be written, so that memory stays bounded.
  const base::MutexLock lock(notes_mutex_);
  if (noted_.size() >= PerformanceFile::max_programs) noted_.clear();
}

Result<void> DiskStore::save_performance(const base::Folder& folder) {
  std::map<Digest, Performance> notes;
  {
    const base::MutexLock lock(notes_mutex_);
    notes = noted_;
  }
  if (notes.empty()) return {};
  auto written = KILN_TRY(PerformanceFile::add(folder, notes));
  const base::MutexLock lock(notes_mutex_);
  measured_ = std::move(written);
  // Notes that changed during the write stay pending.
  std::erase_if(noted_, [&notes](const auto& noted) {
    const auto found = notes.find(noted.first);
    return found != notes.end() && found->second == noted.second;
  });
  return {};
}

Result<void> DiskStore::save_notes() {
  const auto opened = this->opened();
  if (opened == nullptr) return {};
  const base::Folder& folder = opened->folder;
  const base::MutexLock saving(save_mutex_);
  Result<void> first = ensure_manifest(folder, identity_);
  if (auto saved = save_counts(folder, bookkeeping_timeout); !saved && first) first = std::move(saved);
  if (auto saved = save_performance(folder); !saved && first) first = std::move(saved);
  return first;
}

}  // namespace kiln::store
