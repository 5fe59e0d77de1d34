#pragma once

#include <memory>

#include <kiln/result.hpp>

#include "store/object_store.hpp"
#include "store/store_url.hpp"

namespace kiln::store {

/// A store in a Redis server, version 2.8 or later, or in a server with the same protocol. An object is a string
/// with the key "<prefix>/<path>". Listing a folder searches all keys of the database (SCAN). Connections are kept
/// open and shared by all threads. A call whose kept connection turns out to be closed repeats its command once on
/// a new one.
///
/// Connects with the first call. Reads `password_file` here, and again for new connections, at most once per
/// second, so that passwords can be changed; fails with invalid_request if an option cannot be used. Use it only in
/// the process that made it; a forked child may destroy it, which sends nothing to the server.
Result<std::unique_ptr<ObjectStore>> make_redis_store(const StoreUrl& url);

}  // namespace kiln::store
