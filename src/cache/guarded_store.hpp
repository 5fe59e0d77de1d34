#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <kiln/log.hpp>
#include <kiln/store.hpp>

namespace kiln::cache {

/// All calls on a store go through this guard. A store may be anybody's code: whatever it throws becomes an error,
/// and a call back into the cache from within one of its functions can be told from any other.
class GuardedStore {
 public:
  /// `owner` is the cache that the store answers to.
  GuardedStore(std::shared_ptr<Store> store, const void* owner) : store_(std::move(store)), owner_(owner) {}

  Result<std::optional<std::vector<std::byte>>> get(const EntryAddress& address) const;
  Result<void> put(const EntryAddress& address, std::span<const std::byte> sealed) const;

  /// Whether this thread is within a call of `owner` on a store.
  static bool is_called_by(const void* owner) noexcept;

 private:
  std::shared_ptr<Store> store_;
  const void* owner_;
};

}  // namespace kiln::cache
