#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
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

/// A place that keeps compiled programs beyond the process, shared between machines. Kiln has stores for folders,
/// HTTP and Redis: see SharedStore. Implement this for another server, and pass it to a cache in
/// CacheOptions::stores. examples/own_store.cpp is a complete one.
///
/// A store moves sealed entries: bytes that only the cache writes and reads. The cache checks key, identity and
/// digest of the bytes before a driver sees them, so a store that loses, mixes up or damages entries costs compiles
/// and nothing else. Errors of any code and exceptions of any type are logged and counted in StoreStats::errors; a
/// get() that fails is a miss. After several failures in a row the cache does not call the store for a while.
///
/// Both functions are called from any number of threads at once, which belong to the cache. A cache never deletes
/// entries, not even those that it could not use: retention is the task of the store. A store must not request
/// programs from its own cache: programs in memory are returned, all others fail with invalid_request. Caches share
/// ownership of their stores.
class Store {
 public:
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store() = default;

  /// The bytes last put under this address; nothing if there are none, which is not an error. The cache does
  /// not wait for a call that takes longer than the compiler or SharedStore::timeout: the program is compiled, and
  /// what the call returns later is dropped. So a call may still run after the cache is destroyed. `address` is
  /// valid until the call returns.
  virtual Result<std::optional<std::vector<std::byte>>> get(const EntryAddress& address) = 0;
  /// Keeps the bytes under this address, in place of older ones. A reader must see the old bytes, the new ones or
  /// none. Called after a compile or Cache::add(), unless CacheOptions::save is off; one cache makes one call at a
  /// time. `address` and `sealed` are valid until the call returns: copy the bytes to keep them. A failed upload is
  /// not retried.
  ///
  /// Only Cache::flush() and the cache's destructor wait for it, for CacheOptions::upload_limit at most. So a call
  /// may still run after the cache is destroyed; the store and the bytes are kept alive until it returns.
  virtual Result<void> put(const EntryAddress& address, std::span<const std::byte> sealed) = 0;
};

/// What a cache does with a shared store.
enum class StoreMode { read_write, read_only, write_only };

/// Whether a cache uses only entries with a signature by a trusted key: see docs/sharing.md.
enum class Verification { required, off };

/// How long a call on a shared store may take, unless it is set for the store.
inline constexpr std::chrono::milliseconds default_store_timeout = std::chrono::seconds(2);

/// One of the shared stores of a cache: a URL, or an object of the application. Converts implicitly from both. A
/// value.
///
/// URLs are `file:///mnt/kiln`, `http://host/prefix`, `https://…`, `redis://user:password@host:6379/0`,
/// `rediss://…`, `redis+unix:///run/redis.sock` and `s3://bucket/prefix`. They may end with options, as in
/// `?mode=ro&timeout=200ms&verify=off`. Signatures are required for servers, and for folders that others than this
/// user and root can write to. docs/sharing.md describes all of it.
struct SharedStore {
  SharedStore(std::string store_url) : url(std::move(store_url)) {}
  SharedStore(const char* store_url) : url(store_url) {}
  template <std::derived_from<Store> Kind>
  SharedStore(std::shared_ptr<Kind> store) : object(std::move(store)) {}

  /// Empty if this is an object.
  std::string url = {};
  std::shared_ptr<Store> object = {};

  /// The other members are for objects; a URL has them in its options. The name is for messages and statistics.
  std::string name = "the application's store";
  StoreMode mode = StoreMode::read_write;
  std::chrono::milliseconds timeout = default_store_timeout;
  Verification verify = Verification::off;
};

}  // namespace kiln
