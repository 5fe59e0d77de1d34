#pragma once

#include <string>
#include <utility>
#include <vector>

#include "fakes/servers.hpp"

namespace kiln::fakes {

/// The credentials that registries of tests accept. Their messages must not contain the password.
inline constexpr const char* registry_user = "wilhelmina";
inline constexpr const char* registry_password = "hunter-2";

/// The text of a config.json of Docker with credentials for a registry.
std::string docker_config(const std::string& registry, const std::string& user = registry_user,
                          const std::string& password = registry_password);

/// Sets REGISTRY_AUTH_FILE, until its end, to a file with this text; with an empty text, to one that does not
/// exist.
class DockerEnvironment {
 public:
  explicit DockerEnvironment(const std::string& text = {});
  ~DockerEnvironment();
  DockerEnvironment(const DockerEnvironment&) = delete;
  DockerEnvironment& operator=(const DockerEnvironment&) = delete;

  std::string file() const { return (folder_.path() / "config.json").string(); }

 private:
  TemporaryFolder folder_;
  std::string before_;
};

/// Debian's docker-registry, which is installed if is_installed("docker-registry"). Keeps its files in its folder.
class DockerRegistry : public Server {
 public:
  struct Options {
    bool tls = false;
    /// Whether it requires the credentials above.
    bool has_users = false;
  };

  DockerRegistry() : DockerRegistry(Options{}) {}
  explicit DockerRegistry(const Options& options);

  /// As in "127.0.0.1:5000".
  std::string name() const { return authority(); }
  /// The URL of a bundle, as in "oci://127.0.0.1:5000/team/app:v1".
  std::string url(const std::string& reference) const;
  /// How many requests its log has with this text, as in "PUT /v2/team/app/blobs".
  std::size_t requests(const std::string& text) const;

 private:
  const Options options_;
};

/// tests/fakes/registry_server.py.
class FakeRegistry : public Server {
 public:
  FakeRegistry();

  std::string name() const { return authority(); }
  std::string url(const std::string& reference) const { return "oci://" + name() + "/" + reference; }
  /// From the next request on. The members of the JSON object are those of Behaviour in registry_server.py.
  void behave(const std::string& json) const;
  /// A line "METHOD PATH STATUS CREDENTIALS" for each request.
  std::string requests() const;
};

}  // namespace kiln::fakes
