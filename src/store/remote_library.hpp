#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <kiln/result.hpp>

#include "store/object_store.hpp"
#include "store/registry.hpp"
#include "store/store_url.hpp"

namespace kiln::store {

/// Opens libkiln_remote, which has the stores of servers, with the first call of the process. Fails with
/// unsupported if the library is not installed or belongs to another version or build of Kiln, and in a program
/// with more rights than its caller; the message says why. Fails with invalid_request for an option that cannot be
/// used, such as a password_file that cannot be read. Connects to nothing.
Result<std::unique_ptr<ObjectStore>> open_remote_store(const StoreUrl& url);

/// Opens a registry of bundles, with the same library and errors.
Result<std::unique_ptr<Registry>> open_registry(const RegistryUrl& url);

/// The functions that libkiln_remote exports, and their names there.
using OpenRemoteStore = Result<std::unique_ptr<ObjectStore>>(const StoreUrl& url);
inline constexpr const char* remote_function = "kiln_remote_open";
using OpenRegistry = Result<std::unique_ptr<Registry>>(const RegistryUrl& url);
inline constexpr const char* remote_registry_function = "kiln_remote_registry";
/// Starts the libraries that libkiln_remote uses. Returns whether it could.
using StartRemoteLibrary = bool();
inline constexpr const char* remote_start_function = "kiln_remote_start";

/// The number of the interface between Kiln and libkiln_remote. Increase it with each change of StoreUrl,
/// ObjectStore, CallLimit, registry.hpp or Result that leaves their sizes as they are, such as another order of
/// functions.
inline constexpr std::uint64_t remote_interface_number = 4;

/// A digest of the interface that this file was compiled with. libkiln_remote returns its own as
/// kiln_remote_interface(), so that an older build of the same version is refused.
constexpr std::uint64_t remote_interface() {
  constexpr std::uint64_t prime = 0x100000001b3;
  std::uint64_t digest = 0xcbf29ce484222325;
  for (const std::uint64_t part : std::array<std::uint64_t, 11>{
           remote_interface_number, sizeof(StoreUrl), alignof(StoreUrl), sizeof(ObjectStore), sizeof(CallLimit),
           sizeof(Result<std::unique_ptr<ObjectStore>>), sizeof(Result<std::optional<std::vector<std::byte>>>),
           sizeof(Error), sizeof(RegistryUrl), sizeof(BundleToPush), sizeof(RegistryBundle)})
    digest = (digest ^ part) * prime;
  return digest;
}

}  // namespace kiln::store
