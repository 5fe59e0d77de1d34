#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <kiln/store.hpp>

#include "fakes/files.hpp"

namespace kiln::fakes {

/// A correct store in memory.
class MemoryStore final : public Store {
 public:
  Result<std::optional<std::vector<std::byte>>> get(const EntryAddress& address) override {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find({address.identity, address.key.digest});
    if (found == entries_.end()) return std::optional<std::vector<std::byte>>{};
    return std::optional(found->second);
  }
  Result<void> put(const EntryAddress& address, std::span<const std::byte> sealed) override {
    const std::lock_guard lock(mutex_);
    entries_[{address.identity, address.key.digest}].assign(sealed.begin(), sealed.end());
    return {};
  }
  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return entries_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<Digest, Digest>, std::vector<std::byte>> entries_;
};

class FunctionStore final : public Store {
 public:
  using Get = std::function<Result<std::optional<std::vector<std::byte>>>(const EntryAddress&)>;
  using Put = std::function<Result<void>(const EntryAddress&, std::span<const std::byte>)>;

  FunctionStore(Get get, Put put) : get_(std::move(get)), put_(std::move(put)) {}

  Result<std::optional<std::vector<std::byte>>> get(const EntryAddress& address) override { return get_(address); }
  Result<void> put(const EntryAddress& address, std::span<const std::byte> sealed) override {
    return put_(address, sealed);
  }

 private:
  Get get_;
  Put put_;
};

/// A store in a folder shared by processes. It ignores the identity, so it returns entries of other identities.
class CarelessFolderStore final : public Store {
 public:
  explicit CarelessFolderStore(std::filesystem::path folder) : folder_(std::move(folder)) {}

  Result<std::optional<std::vector<std::byte>>> get(const EntryAddress& address) override {
    const auto file = folder_ / address.key.digest.hex();
    if (!std::filesystem::exists(file)) return std::optional<std::vector<std::byte>>{};
    return std::optional(bytes_of(read_file(file)));
  }
  Result<void> put(const EntryAddress& address, std::span<const std::byte> sealed) override {
    write_file(folder_ / address.key.digest.hex(), text_of({sealed.begin(), sealed.end()}));
    return {};
  }

 private:
  std::filesystem::path folder_;
};

}  // namespace kiln::fakes
