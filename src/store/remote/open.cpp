// What libkiln_remote exports.
#include <cstdint>

#include "store/remote/curl.hpp"
#include "store/remote/http_store.hpp"
#include "store/remote/oci_registry.hpp"
#include "store/remote/redis_store.hpp"
#include "store/remote/s3_store.hpp"
#include "store/remote_library.hpp"

namespace kiln::store {

extern "C" [[gnu::visibility("default")]] const char* kiln_remote_version() { return KILN_VERSION; }

extern "C" [[gnu::visibility("default")]] std::uint64_t kiln_remote_interface() { return remote_interface(); }

extern "C" [[gnu::visibility("default")]] bool kiln_remote_start() { return start_curl().ok(); }

[[gnu::visibility("default")]] Result<std::unique_ptr<ObjectStore>> open_remote(const StoreUrl& url) __asm__(
    "kiln_remote_open");

Result<std::unique_ptr<ObjectStore>> open_remote(const StoreUrl& url) {
  switch (url.scheme) {
    case StoreUrl::Scheme::http:
    case StoreUrl::Scheme::https: return make_http_store(url);
    case StoreUrl::Scheme::redis:
    case StoreUrl::Scheme::rediss:
    case StoreUrl::Scheme::redis_unix: return make_redis_store(url);
    case StoreUrl::Scheme::s3: return make_s3_store(url);
    case StoreUrl::Scheme::file: break;
  }
  return Error(ErrorCode::unsupported, url.display() + " is a folder, not a server");
}

[[gnu::visibility("default")]] Result<std::unique_ptr<Registry>> open_remote_registry(
    const RegistryUrl& url) __asm__("kiln_remote_registry");

Result<std::unique_ptr<Registry>> open_remote_registry(const RegistryUrl& url) { return make_oci_registry(url); }

}  // namespace kiln::store
