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

/// Wraps all calls on a store, which may be user code: turns exceptions into errors, and lets the cache detect
/// calls from inside its own store.
class GuardedStore {
 public:
  /// `owner` identifies the cache that uses the store.
  GuardedStore(std::shared_ptr<Store> store, const void* owner) : store_(std::move(store)), owner_(owner) {}

  Result<std::optional<std::vector<std::byte>>> get(const EntryAddress& address) const;
  Result<void> put(const EntryAddress& address, std::span<const std::byte> sealed) const;

  /// Whether this thread is inside a store call that `owner` made.
  static bool is_called_by(const void* owner) noexcept;

 private:
  std::shared_ptr<Store> store_;
  const void* owner_;
};

}  // namespace kiln::cache
