#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <kiln/identity.hpp>
#include <kiln/store.hpp>

#include "base/sha256.hpp"
#include "fakes/files.hpp"
#include "store/directory.hpp"
#include "store/disk_store.hpp"

namespace kiln::store {

/// An identity with a device of its own for each number.
inline Identity sample_identity(int number = 0) {
  return {"fake", "Kiln", fakes::numbered("device", number), "1.0", "1.0", {7}};
}

/// A key that has nothing in common with those of other names.
inline Key sample_key(const std::string& name) { return {base::sha256(name), name}; }

/// An entry with something in every field; times are whole seconds, as entry files keep them.
inline Entry sample_entry(const std::string& binary) {
  return {.parts = {{std::string(binary_part), {.format = 7, .bytes = fakes::bytes_of(binary)}}},
          .compile_time = std::chrono::nanoseconds(123'456'789),
          .created = std::chrono::system_clock::time_point(std::chrono::seconds(1'700'000'000)),
          .facts = R"({"name":"sample","entry":"main"})"};
}

/// What an entry of an identity is for.
inline EntryLabel label_of(const Digest& key, const Identity& identity = sample_identity()) {
  return {key, identity.digest(), identity.target_digest()};
}

/// Bytes that no codec makes smaller, always the same for one size.
inline std::string incompressible(std::size_t size) {
  std::mt19937 random(static_cast<unsigned>(size));
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random() & 0xffU);
  return text;
}

/// A disk store that logs nothing, with entries sealed and opened as a cache does.
class SampleStore {
 public:
  SampleStore(std::unique_ptr<DiskStore> disk, Identity identity)
      : disk_(std::move(disk)), identity_(std::move(identity)) {}

  Result<void> put(const Key& key, const Entry& entry) {
    const auto label = label_of(key.digest, identity_);
    const auto sealed = seal_entry(label, entry);
    return disk_->put({label.identity, key}, sealed, meta_of(label, entry, sealed.size()));
  }
  Result<std::optional<Entry>> get(const Key& key) {
    auto sealed = disk_->get({identity_.digest(), key});
    if (!sealed) return std::move(sealed).error();
    if (!*sealed) return std::optional<Entry>{};
    auto opened = open_entry(**sealed);
    if (!opened) return std::move(opened).error();
    if (opened->label.key != key.digest || opened->label.identity != identity_.digest())
      return Error(ErrorCode::damaged, "it holds another program");
    return std::optional(std::move(opened->entry));
  }
  Result<void> remove(const Key& key) { return disk_->remove(key); }
  Result<void> touch(const Key& key) { return disk_->touch(key); }
  Result<std::vector<StoredItem>> list() { return disk_->list(); }
  std::optional<DiskStore::KeyLock> lock(const Key& key, std::chrono::milliseconds timeout) {
    return disk_->lock(key, timeout);
  }
  Result<void> save_notes() { return disk_->save_notes(); }
  const std::filesystem::path& path() const noexcept { return disk_->path(); }
  DiskStore& disk() noexcept { return *disk_; }

 private:
  std::unique_ptr<DiskStore> disk_;
  Identity identity_;
};

inline std::unique_ptr<SampleStore> open_store(const std::filesystem::path& root,
                                               const Identity& identity = sample_identity()) {
  return std::make_unique<SampleStore>(DiskStore::open(root, identity, Log(LogLevel::off, {})).value(), identity);
}

/// What a store answers: the binary as text, "nothing", or "error: …".
inline std::string answer(SampleStore& store, const Key& key) {
  auto found = store.get(key);
  if (!found) return "error: " + found.error().message();
  return *found ? fakes::text_of((*found)->binary()->bytes) : "nothing";
}

/// The code a store answers with; invalid_request where it is no error.
inline ErrorCode code_of_get(SampleStore& store, const Key& key) {
  auto found = store.get(key);
  return found ? ErrorCode::invalid_request : found.error().code();
}

/// Where a store keeps an entry.
inline std::filesystem::path entry_path(const SampleStore& store, const Key& key) {
  return store.path() / entry_file_name(key);
}
inline std::filesystem::path meta_path(const SampleStore& store, const Key& key) {
  return store.path() / meta_file_name(entry_file_name(key));
}

}  // namespace kiln::store
