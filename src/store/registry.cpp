#include "store/registry.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/sha256.hpp"
#include "base/text.hpp"
#include "base/try.hpp"
#include "store/store_url.hpp"

namespace kiln::store {
namespace {

constexpr std::string_view plain_scheme = "oci+http://";
constexpr std::string_view registry_scheme = "oci://";
constexpr std::string_view digest_prefix = "sha256:";
constexpr std::size_t max_repository_size = 255;
constexpr std::size_t max_tag_size = 128;

Error bad_url(std::string_view why) {
  return Error(ErrorCode::invalid_request, fmt::format("the registry URL {}", why));
}

bool is_alphanumeric(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

/// Parts of lower-case letters and digits, divided by '/', '.', '_', "__" or any number of '-'.
bool is_repository(std::string_view text) {
  if (text.empty() || text.size() > max_repository_size) return false;
  if (!is_alphanumeric(text.front()) || !is_alphanumeric(text.back())) return false;
  while (!text.empty()) {
    text.remove_prefix(static_cast<std::size_t>(std::ranges::find_if_not(text, is_alphanumeric) - text.begin()));
    const auto between =
        text.substr(0, static_cast<std::size_t>(std::ranges::find_if(text, is_alphanumeric) - text.begin()));
    const bool is_separator = between.empty() || between == "/" || between == "." || between == "_" ||
                              between == "__" || between.find_first_not_of('-') == std::string_view::npos;
    if (!is_separator) return false;
    text.remove_prefix(between.size());
  }
  return true;
}

bool is_tag(std::string_view text) {
  const auto is_word = [](char c) { return is_alphanumeric(base::to_lower(c)) || c == '_'; };
  return !text.empty() && text.size() <= max_tag_size && is_word(text.front()) &&
         std::ranges::all_of(text, [&](char c) { return is_word(c) || c == '.' || c == '-'; });
}

/// As docker decides. Such a host is this machine.
bool is_this_machine(std::string_view host) {
  return host == "localhost" || host.ends_with(".localhost") || host == "[::1]" ||
         (host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string_view::npos);
}

/// Parses the host, the port and the options, which are those of a store.
Result<StoreUrl> parse_parts(std::string_view authority, std::string_view options) {
  if (authority.find('@') != std::string_view::npos)
    return bad_url("names a user; log in with `docker login`, or write $REGISTRY_AUTH_FILE");
  for (std::string_view rest = options; !rest.empty();) {
    const std::string_view item = rest.substr(0, rest.find('&'));
    if (!item.starts_with("ca=") && !item.starts_with("timeout="))
      return bad_url("has an unknown option; it can have ca= and timeout=");
    rest.remove_prefix(std::min(item.size() + 1, rest.size()));
  }
  auto url = parse_store_url(fmt::format("https://{}?{}", authority, options));
  if (url) return url;
  constexpr std::string_view subject = "the store URL ";
  const std::string& why = url.error().message();
  return bad_url(why.starts_with(subject) ? std::string_view(why).substr(subject.size())
                                          : "cannot be used: " + why);
}

}  // namespace

std::string RegistryUrl::reference() const { return digest ? std::string(digest_prefix) + digest->hex() : tag; }

std::string RegistryUrl::display() const {
  const std::size_t end = registry.starts_with('[') ? registry.find(']') + 1 : registry.find(':');
  const bool is_marked = is_plain_http && !is_this_machine(registry.substr(0, end));
  return fmt::format("{}{}/{}{}{}", is_marked ? plain_scheme : registry_scheme, registry, repository,
                     digest ? "@" : ":", reference());
}

bool is_registry_url(std::string_view text) {
  const std::string lower = base::to_lower(text.substr(0, plain_scheme.size()));
  return lower.starts_with(registry_scheme) || lower.starts_with(plain_scheme);
}

Result<RegistryUrl> parse_registry_url(std::string_view text) {
  if (!is_registry_url(text)) return bad_url("does not begin with oci:// or oci+http://");
  RegistryUrl url;
  const bool is_plain = base::to_lower(text.substr(0, plain_scheme.size())) == plain_scheme;
  text.remove_prefix(is_plain ? plain_scheme.size() : registry_scheme.size());
  const std::size_t question = std::min(text.find('?'), text.size());
  const std::string_view options = text.substr(std::min(question + 1, text.size()));
  text = text.substr(0, question);
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos || slash + 1 == text.size())
    return bad_url("names no repository, as in oci://registry.example/team/app:v1");

  const StoreUrl parts = KILN_TRY(parse_parts(text.substr(0, slash), options));
  url.registry = parts.port == 0 ? parts.host : fmt::format("{}:{}", parts.host, parts.port);
  url.is_plain_http = is_plain || is_this_machine(parts.host);
  url.ca = parts.option("ca");
  if (is_plain && !url.ca.empty()) return bad_url("has a ca=, which plain HTTP does not use");
  // A registry that is on this machine may have TLS.
  if (!url.ca.empty()) url.is_plain_http = false;
  if (options.find("timeout=") != std::string_view::npos) url.timeout = parts.timeout;

  text.remove_prefix(slash + 1);
  if (const std::size_t at = text.find('@'); at != std::string_view::npos) {
    const std::string_view digest = text.substr(at + 1);
    if (digest.starts_with(digest_prefix)) url.digest = base::digest_from_hex(digest.substr(digest_prefix.size()));
    if (!url.digest) return bad_url("has an '@' without sha256: and 64 lower-case hexadecimal digits");
    text = text.substr(0, at);
  }
  if (const std::size_t colon = text.find(':'); colon != std::string_view::npos) {
    if (!is_tag(text.substr(colon + 1)))
      return bad_url("has a tag that is not of up to 128 letters, digits, '_', '.' and '-'");
    url.tag = text.substr(colon + 1);
    text = text.substr(0, colon);
  }
  if (!is_repository(text))
    return bad_url(
        "has a repository that is not of lower-case letters and digits, with '/', '.', '_' or '-' between");
  url.repository = text;
  return url;
}

}  // namespace kiln::store
