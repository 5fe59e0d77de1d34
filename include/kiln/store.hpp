#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include <kiln/digest.hpp>
#include <kiln/request.hpp>
#include <kiln/result.hpp>

namespace kiln {

/// The address of an entry: the identity that its binary was made for, and its key. Equal keys under different
/// identities are different programs. A value.
struct EntryAddress {
  /// Identity::digest() of the device, driver and compiler.
  Digest identity = {};
  /// Its digest decides; its name, which may contain any characters, is for people.
  Key key = {};
};

/// A place that keeps compiled programs beyond the process, shared between machines. Implement it for your own
/// server or folder, and pass it to a cache as CacheOptions::shared. examples/own_store.cpp is a complete one.
///
/// A store moves sealed entries: bytes that only the cache writes and reads. The cache checks key, identity and
/// digest of the bytes before a driver sees them, so a store that loses, mixes up or damages entries costs compiles
/// and nothing else. Errors of any code and exceptions of any type are logged and counted in
/// Stats::store_failures; a get() that fails is a miss.
///
/// Both functions are called from any number of threads at once. A cache never deletes entries, not even those that
/// it could not use: retention is the task of the store. A store must not request programs from its own cache:
/// programs in memory are returned, all others fail with invalid_request. Caches share ownership of their store.
class Store {
 public:
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store() = default;

  /// The bytes last put under this address; nothing if there are none, which is not an error. Called on the thread
  /// that requests the program, or on one of the cache's own for get_async() and preload(). There is no time limit:
  /// a get() that blocks delays requests for that key, for up to CacheOptions::lock_timeout also in other processes
  /// that use the directory. `address` is valid until the call returns.
  virtual Result<std::optional<std::vector<std::byte>>> get(const EntryAddress& address) = 0;
  /// Keeps the bytes under this address, in place of older ones. A reader must see the old bytes, the new ones or
  /// none. Called after a compile or Cache::add(), unless CacheOptions::save is off, on a thread of the cache; one
  /// cache makes one call at a time. `address` and `sealed` are valid until the call returns: copy the bytes to
  /// keep them. A failed upload is not retried.
  ///
  /// Only Cache::flush() and the cache's destructor wait for it, for CacheOptions::upload_limit at most. So a call
  /// may still run after the cache is destroyed; the store and the bytes are kept alive until it returns.
  virtual Result<void> put(const EntryAddress& address, std::span<const std::byte> sealed) = 0;
};

}  // namespace kiln
