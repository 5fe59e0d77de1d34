#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <kiln/backend.hpp>
#include <kiln/request.hpp>
#include <kiln/result.hpp>

namespace kiln {

/// A program as stores keep it: its binary and what is known of it.
struct Entry {
  Binary binary = {};
  /// What the compiler took, and so what a hit saves.
  std::chrono::nanoseconds compile_time = {};
  std::chrono::system_clock::time_point created = {};
  /// Measured performance; 0 while nothing was measured.
  double gflops = 0;
  double gbps = 0;
  /// Request::describe(), for people and tools.
  std::string facts = {};
};

/// One line of a store's listing.
struct StoreItem {
  Key key = {};
  std::uint64_t stored_bytes = 0;
  std::chrono::system_clock::time_point last_use = {};
};

/// Where binaries are kept beyond the process. Safe for any number of threads. To the cache every failure of
/// a store is a miss: it is logged and counted, and the program is compiled.
class Store {
 public:
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store() = default;

  /// The entry, checked; nothing where there is none. A damaged one is ErrorCode::damaged.
  virtual Result<std::optional<Entry>> get(const Key& key) = 0;
  /// Stores or replaces the entry whole: a reader sees the old one, the new one or none.
  virtual Result<void> put(const Key& key, const Entry& entry) = 0;
  /// Removes the entry; removing what is not there is no error.
  virtual Result<void> remove(const Key& key) = 0;
  /// Notes that the entry was used now.
  virtual Result<void> touch(const Key& key) = 0;
  /// All entries; names are those of the files, as far as file names can hold them.
  virtual Result<std::vector<StoreItem>> list() = 0;
};

}  // namespace kiln
