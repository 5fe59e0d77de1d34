#include "fakes/registries.hpp"

#include <cstdlib>
#include <sstream>

#include <fmt/format.h>
#include <openssl/evp.h>

#include "fakes/files.hpp"

namespace kiln::fakes {
namespace {

/// The password by bcrypt, which is all that docker-registry reads.
constexpr const char* password_hash = "$2b$04$abcdefghijklmnopqrstuudV9/Ms85zTd6pflsMgVfy6cAcy3qfoS";

}  // namespace

std::string docker_config(const std::string& registry, const std::string& user, const std::string& password) {
  const std::string plain = user + ":" + password;
  std::string encoded(plain.size() * 2 + 4, '\0');
  const int size =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(encoded.data()),
                      reinterpret_cast<const unsigned char*>(plain.data()), static_cast<int>(plain.size()));
  encoded.resize(static_cast<std::size_t>(size));
  return fmt::format(R"({{"auths": {{"{}": {{"auth": "{}"}}}}}})", registry, encoded);
}

DockerEnvironment::DockerEnvironment(const std::string& text) {
  if (!text.empty()) write_file(file(), text);
  ::unsetenv("REGISTRY_AUTH_FILE");
  const char* before = std::getenv("DOCKER_CONFIG");
  before_ = before != nullptr ? before : "";
  ::setenv("DOCKER_CONFIG", folder_.path().c_str(), 1);
}

DockerEnvironment::~DockerEnvironment() { ::setenv("DOCKER_CONFIG", before_.c_str(), 1); }

DockerRegistry::DockerRegistry(const Options& options) : Server(Address::ipv4, options.tls), options_(options) {
  const std::string here = folder().string();
  std::string more;
  if (options.tls)
    more +=
        fmt::format("  tls:\n    certificate: {}\n    key: {}\n", certificate().string(), private_key().string());
  if (options.has_users) {
    write_file(folder() / "users", fmt::format("{}:{}\n", registry_user, password_hash));
    more += fmt::format("auth:\n  htpasswd:\n    realm: tests\n    path: {}/users\n", here);
  }
  write_file(folder() / "config.yml", fmt::format("version: 0.1\nlog:\n  level: error\n"
                                                  "storage:\n  filesystem:\n    rootdirectory: {}/data\n"
                                                  "http:\n  addr: {}\n  secret: tests\n{}",
                                                  here, authority(), more));
  set_command({"docker-registry", "serve", folder() / "config.yml"});
  start();
}

std::string DockerRegistry::url(const std::string& reference) const {
  return fmt::format("oci://{}/{}{}", name(), reference, options_.tls ? "?ca=" + certificate().string() : "");
}

std::size_t DockerRegistry::requests(const std::string& text) const {
  std::size_t count = 0;
  std::istringstream lines(log());
  for (std::string line; std::getline(lines, line);) count += line.find(text) != std::string::npos ? 1U : 0U;
  return count;
}

FakeRegistry::FakeRegistry() : Server(Address::ipv4, false) {
  const char* system_python = "/usr/bin/python3";
  set_command({is_installed(system_python) ? system_python : "python3", KILN_REGISTRY_SERVER, "--port",
               std::to_string(port()), "--folder", folder()});
  start();
}

void FakeRegistry::behave(const std::string& json) const {
  write_file(folder() / "next", json);
  std::filesystem::rename(folder() / "next", folder() / "behaviour.json");
}

std::string FakeRegistry::requests() const {
  const auto file = folder() / "requests";
  return std::filesystem::exists(file) ? read_file(file) : "";
}

}  // namespace kiln::fakes
