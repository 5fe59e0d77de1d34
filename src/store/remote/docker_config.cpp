#include "store/remote/docker_config.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "base/process.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "store/json_text.hpp"
#include "store/remote/secret_file.hpp"

namespace kiln::store {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t max_config_bytes = 1 << 20;

/// Nothing if the text is not Base64.
std::optional<std::string> decode_base64(std::string_view text) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string decoded;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const std::size_t digit = digits.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    bits = bits << 6U | static_cast<std::uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    decoded += static_cast<char>(bits >> static_cast<unsigned>(count) & 0xffU);
  }
  return decoded;
}

bool has_controls(std::string_view text) {
  return std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; });
}

const Json* entry_named(const Json& object, const std::string& name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found != object.end() ? &*found : nullptr;
}

std::string text_in(const Json& object, const std::string& name) {
  const Json* value = entry_named(object, name);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

/// The name of an entry without a scheme, and without what older versions of Docker add.
std::string_view plain_name(std::string_view name) {
  for (const std::string_view scheme : {"https://", "http://"})
    if (name.starts_with(scheme)) name.remove_prefix(scheme.size());
  while (name.ends_with('/')) name.remove_suffix(1);
  for (const std::string_view version : {"/v1", "/v2"})
    if (name.ends_with(version)) return name.substr(0, name.size() - version.size());
  return name;
}

/// The names that entries for the repository can have, the longest first.
std::vector<std::string> names_of(const RegistryUrl& url) {
  std::vector<std::string> names;
  for (std::string name = url.registry + "/" + url.repository;;) {
    names.push_back(name);
    if (name == url.registry) break;
    name.resize(name.rfind('/'));
  }
  if (url.registry == "docker.io") names.emplace_back("index.docker.io");
  return names;
}

/// The value of an entry of `object` for the repository; null if it has none.
const Json* entry_for(const Json* object, const RegistryUrl& url) {
  if (object == nullptr || !object->is_object()) return nullptr;
  for (const std::string& name : names_of(url))
    for (const auto& [key, value] : object->items())
      if (plain_name(key) == name) return &value;
  return nullptr;
}

std::string docker_variable(const char* name) {
  const char* value = base::environment(name);
  return value != nullptr ? value : "";
}

std::string config_file() {
  if (std::string file = docker_variable("REGISTRY_AUTH_FILE"); !file.empty()) return file;
  if (const std::string folder = docker_variable("DOCKER_CONFIG"); !folder.empty()) return folder + "/config.json";
  const std::string home = docker_variable("HOME");
  return home.empty() ? "" : home + "/.docker/config.json";
}

}  // namespace

Result<RegistryCredentials> find_registry_credentials(std::string_view text, const RegistryUrl& url) {
  const auto unusable = [](const char* why) { return Error(ErrorCode::io, why); };
  const auto config = parse_json(text);
  if (!config) return unusable("it is not a JSON object");
  RegistryCredentials found;
  if (const Json* helper = entry_for(entry_named(*config, "credHelpers"), url);
      helper != nullptr && helper->is_string())
    found.helper = helper->get<std::string>();
  if (found.helper.empty()) found.helper = text_in(*config, "credsStore");
  const Json* entry = entry_for(entry_named(*config, "auths"), url);
  if (entry == nullptr) return found;
  found.identity_token = text_in(*entry, "identitytoken");
  found.user = text_in(*entry, "username");
  found.password = text_in(*entry, "password");
  if (const std::string auth = text_in(*entry, "auth"); !auth.empty()) {
    const auto decoded = decode_base64(auth);
    const std::size_t colon = decoded ? decoded->find(':') : std::string::npos;
    if (colon == std::string::npos) return unusable("its auth is not the Base64 form of user:password");
    found.user = decoded->substr(0, colon);
    found.password = decoded->substr(colon + 1);
    // Docker adds one to passwords.
    while (found.password.ends_with('\0')) found.password.pop_back();
  }
  for (const std::string* part : {&found.user, &found.password, &found.identity_token})
    if (has_controls(*part)) return unusable("its credentials have control characters");
  // With a token, Docker writes this user, which names nobody.
  if (!found.identity_token.empty()) found.user.clear();
  return found;
}

Result<FoundCredentials> read_registry_credentials(const RegistryUrl& url) {
  FoundCredentials found{.file = config_file()};
  if (found.file.empty()) return found;
  const auto unusable = [&](const Error& error) {
    return Error(ErrorCode::io, fmt::format("cannot use the credentials in {} for {}: {}", found.file, url.registry,
                                            error.message()));
  };
  const auto text = read_small_file(found.file, max_config_bytes, FileAccess::trusted);
  if (!text) return unusable(text.error());
  found.exists = text->has_value();
  if (!*text || base::trimmed(**text).empty()) return found;
  auto credentials = find_registry_credentials(**text, url);
  if (!credentials) return unusable(credentials.error());
  found.credentials = *std::move(credentials);
  return found;
}

}  // namespace kiln::store
