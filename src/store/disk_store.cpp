#include "store/disk_store.hpp"

#include <utility>

#include <fmt/format.h>

#include "store/directory.hpp"
#include "store/entry_file.hpp"
#include "store/manifest.hpp"

namespace kiln::store {
namespace {

// An entry's time of last use is kept in the file's own time, and worth a write once an hour.
constexpr std::int64_t touch_after_seconds = 3600;

Error about(const std::filesystem::path& file, const Error& error) {
  return Error(error.code(), fmt::format("{}: {}", file.string(), error.message()));
}

std::int64_t now_seconds() { return std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()); }

}  // namespace

struct DiskStore::Opened {
  base::Folder folder;
  base::FileHandle lock_file;
};

DiskStore::DiskStore(Private, const std::filesystem::path& root, const Identity& identity, Log log,
                     Durability durability, const base::FileSystem& system)
    : identity_(identity),
      identity_digest_(identity.digest()),
      path_(root / identity.folder()),
      log_(std::move(log)),
      durability_(durability),
      system_(system) {}

Result<std::unique_ptr<DiskStore>> DiskStore::open(const std::filesystem::path& root, const Identity& identity,
                                                   Log log, Durability durability, const base::FileSystem& system) {
  auto folder = base::Folder::open(root, true, system);
  if (!folder) return std::move(folder).error();
  if (durability == Durability::fsync) folder->sync_name();
  auto store = std::make_unique<DiskStore>(Private{}, root, identity, std::move(log), durability, system);
  std::error_code error;
  if (std::filesystem::exists(store->path_, error))
    if (auto opened = store->reopen(false); !opened) return std::move(opened).error();
  return store;
}

std::shared_ptr<const DiskStore::Opened> DiskStore::last_opened() const {
  const base::MutexLock lock(opened_mutex_);
  return opened_;
}

std::shared_ptr<const DiskStore::Opened> DiskStore::opened() {
  const auto opened = last_opened();
  if (opened != nullptr && opened->folder.exists()) return opened;
  // Another process may have made it since, or made it again after it was removed.
  auto found = reopen(false);
  return found ? *found : nullptr;
}

Result<std::shared_ptr<const DiskStore::Opened>> DiskStore::opened_or_made() {
  if (auto opened = this->opened()) return opened;
  return reopen(true);
}

Result<std::shared_ptr<const DiskStore::Opened>> DiskStore::reopen(bool create) {
  const base::MutexLock lock(opened_mutex_);
  auto folder = base::Folder::open(path_, create, system_);
  if (!folder) return std::move(folder).error();
  const bool is_new = create && !folder->status(manifest_name);
  base::FileHandle lock_file;
  // Without a lock file programs may be compiled twice; nothing worse.
  if (auto opened = folder->open_lock_file(lock_name)) lock_file = std::move(*opened);
  if (durability_ == Durability::fsync) folder->sync_name();
  if (is_new)
    if (auto written = store::write_manifest(*folder, identity_); !written) log_.debug(written.error().message());
  opened_ = std::make_shared<const Opened>(Opened{std::move(*folder), std::move(lock_file)});
  return opened_;
}

Result<std::optional<Entry>> DiskStore::get(const Key& key) {
  const std::string name = entry_file_name(key);
  auto opened = last_opened();
  Result<std::optional<base::FileContents>> file = std::optional<base::FileContents>{};
  if (opened != nullptr) file = opened->folder.read(name, max_entry_bytes);
  if (file && !*file) {
    // A folder that was removed has no files; only then is it worth asking for another.
    auto now = this->opened();
    if (now == opened || now == nullptr) return std::optional<Entry>{};
    opened = std::move(now);
    file = opened->folder.read(name, max_entry_bytes);
  }
  if (!file) return std::move(file).error();
  if (!*file) return std::optional<Entry>{};
  auto decoded = decode_entry((*file)->bytes);
  if (!decoded) return about(path_ / name, decoded.error());
  if (decoded->key != key.digest || decoded->identity != identity_digest_)
    return Error(ErrorCode::damaged, fmt::format("{}: it holds another program", (path_ / name).string()));
  if (now_seconds() - (*file)->changed > touch_after_seconds)
    if (auto touched = opened->folder.touch(name); !touched) log_.debug(touched.error().message());
  return std::optional(std::move(decoded->entry));
}

Result<void> DiskStore::put(const Key& key, const Entry& entry) {
  const std::vector<std::byte> bytes = encode_entry(key.digest, identity_digest_, entry);
  if (bytes.size() > max_entry_bytes)
    return Error(ErrorCode::unsupported, fmt::format("the binary of {} is too large to be kept", key.name));
  const std::string name = entry_file_name(key);
  auto opened = opened_or_made();
  if (!opened) return std::move(opened).error();
  if (auto written = (*opened)->folder.replace(name, bytes, durability_); !written) return written;
  const std::string meta = meta_of({key.digest, identity_digest_, entry}, bytes.size());
  // For people only: the entry counts without it.
  if (auto written =
          (*opened)->folder.replace(meta_file_name(name), std::as_bytes(std::span(meta.data(), meta.size())));
      !written)
    log_.debug(written.error().message());
  return {};
}

Result<void> DiskStore::remove(const Key& key) {
  const auto opened = this->opened();
  if (opened == nullptr) return {};
  const std::string name = entry_file_name(key);
  if (auto removed = opened->folder.remove(name); !removed) return std::move(removed).error();
  if (auto removed = opened->folder.remove(meta_file_name(name)); !removed) log_.debug(removed.error().message());
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

Result<std::vector<StoreItem>> DiskStore::list() {
  std::vector<StoreItem> items;
  const auto opened = this->opened();
  if (opened == nullptr) return items;
  auto files = stored_files(opened->folder);
  if (!files) return std::move(files).error();
  for (StoredFile& file : *files) items.push_back({std::move(file.key), file.bytes, file.last_use});
  return items;
}

std::optional<DiskStore::KeyLock> DiskStore::lock(const Key& key, std::chrono::milliseconds timeout) {
  auto opened = opened_or_made();
  if (!opened || !(*opened)->lock_file) return std::nullopt;
  auto lock = base::FileLock::acquire((*opened)->lock_file, key.digest.word(0), timeout);
  if (!lock) return std::nullopt;
  return KeyLock(std::move(*opened), std::move(*lock));
}

Result<void> DiskStore::write_manifest() {
  const auto opened = this->opened();
  if (opened == nullptr) return {};
  return store::write_manifest(opened->folder, identity_);
}

}  // namespace kiln::store
