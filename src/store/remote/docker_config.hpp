#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <kiln/result.hpp>

#include "store/registry.hpp"

namespace kiln::store {

/// What a configuration of Docker or Podman has for a registry. A value. Contains secrets.
struct RegistryCredentials {
  std::string user = {};
  std::string password = {};
  /// Which the token server accepts in place of a password; empty if there is none.
  std::string identity_token = {};
  /// The program that has the credentials, which Kiln does not run; empty if there is none.
  std::string helper = {};

  bool is_known() const noexcept { return !user.empty() || !identity_token.empty(); }
  friend bool operator==(const RegistryCredentials&, const RegistryCredentials&) = default;
};

/// Finds those for a repository in the text of config.json or auth.json; the entry with the longest path wins.
/// Fails with io; the message is a reason without a subject.
Result<RegistryCredentials> find_registry_credentials(std::string_view text, const RegistryUrl& url);

/// The credentials of this user, and the file that has them.
struct FoundCredentials {
  RegistryCredentials credentials = {};
  /// The file that was read, or the first one that could have been.
  std::string file = {};
  bool exists = false;
};

/// Reads $REGISTRY_AUTH_FILE, or else $DOCKER_CONFIG/config.json, or else ~/.docker/config.json. Fails with io.
Result<FoundCredentials> read_registry_credentials(const RegistryUrl& url);

}  // namespace kiln::store
