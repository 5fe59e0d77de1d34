#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include <kiln/digest.hpp>
#include <kiln/request.hpp>
#include <kiln/result.hpp>

namespace kiln {

/// Where an entry is kept: under the identity that its binary was made for (Identity::digest()), and its key. Equal
/// keys under different identities are different programs.
struct EntryAddress {
  Digest identity = {};
  Key key = {};
};

/// A place that keeps compiled programs beyond the process, such as a server shared between machines. Implement it
/// to bring your own, and hand it to a cache as CacheOptions::shared.
///
/// A store moves sealed entries: bytes that only the cache writes and reads. The cache checks key, identity and
/// digest of what a store returns before a driver sees a byte, so a store that loses, mixes up or damages entries
/// costs compiles and nothing else. Whatever a store does wrong is a miss: errors and exceptions of any type are
/// logged and counted (Stats::store_failures), and the program is compiled.
///
/// Both functions are called from any number of threads at once. get() is called on the thread that wants the
/// program, for get_async() and preload() on one of the cache's own: a get() that blocks delays requests for that
/// key, and occupies that thread. put() is called on a thread of the cache's own;
/// nobody waits for it longer than CacheOptions::upload_limit. A cache never deletes what it could not use:
/// retention is the store's business. A store must not request programs from the cache that it belongs to: such
/// requests fail.
class Store {
 public:
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store() = default;

  /// The bytes last put under this address; nothing if there are none.
  virtual Result<std::optional<std::vector<std::byte>>> get(const EntryAddress& address) = 0;
  /// Keeps the bytes under this address, in place of what was there. A reader sees the old bytes, the new ones or
  /// none.
  virtual Result<void> put(const EntryAddress& address, std::span<const std::byte> sealed) = 0;
};

}  // namespace kiln
