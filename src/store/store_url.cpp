#include "store/store_url.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/text.hpp"
#include "base/try.hpp"

namespace kiln::store {
namespace {

using Scheme = StoreUrl::Scheme;

struct SchemeName {
  std::string_view name;
  Scheme scheme;
  /// The options of its own, separated by spaces.
  std::string_view options;
};
constexpr std::array schemes = {
    SchemeName{"file", Scheme::file, ""},
    SchemeName{"http", Scheme::http, "layout password_file token_file unix_socket"},
    SchemeName{"https", Scheme::https, "ca layout password_file token_file unix_socket"},
    SchemeName{"redis", Scheme::redis, "password_file prefix"},
    SchemeName{"rediss", Scheme::rediss, "ca password_file prefix"},
    SchemeName{"redis+unix", Scheme::redis_unix, "db password_file prefix"},
    SchemeName{"s3", Scheme::s3, "ca endpoint profile region style"},
};

const SchemeName& named(Scheme scheme) { return *std::ranges::find(schemes, scheme, &SchemeName::scheme); }

bool has_word(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(' '), words.size());
    if (words.substr(0, end) == word) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
}

Error invalid(std::string why) { return Error(ErrorCode::invalid_request, "the store URL " + std::move(why)); }

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool is_control(char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; }

template <class Number>
std::optional<Number> number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// As in "200ms", "2s" and "1.5s".
std::optional<std::chrono::milliseconds> duration(std::string_view text) {
  double unit = 0;
  if (text.ends_with("ms")) {
    unit = 1;
    text.remove_suffix(2);
  } else if (text.ends_with("s")) {
    unit = 1000;
    text.remove_suffix(1);
  }
  const auto value = number<double>(text);
  constexpr double most = 3'600'000;
  if (unit == 0 || !value || !std::isfinite(*value) || *value * unit < 1 || *value * unit > most)
    return std::nullopt;
  return std::chrono::milliseconds(static_cast<long long>(*value * unit));
}

Result<void> set_common_option(StoreUrl& url, const std::string& name, const std::string& value) {
  if (name == "mode") {
    if (value == "rw")
      url.mode = StoreMode::read_write;
    else if (value == "ro")
      url.mode = StoreMode::read_only;
    else if (value == "wo")
      url.mode = StoreMode::write_only;
    else
      return invalid("has a mode= that is not rw, ro or wo");
  } else if (name == "timeout") {
    const auto timeout = duration(value);
    if (!timeout) return invalid("has a timeout= that is not a time between 1ms and 3600s, such as 200ms or 2s");
    url.timeout = *timeout;
  } else if (value == "required") {
    url.verify = Verification::required;
  } else if (value == "off") {
    url.verify = Verification::off;
  } else {
    return invalid("has a verify= that is not required or off");
  }
  return {};
}

Result<void> set_options(StoreUrl& url, std::string_view text) {
  std::set<std::string> seen;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('&'), text.size());
    const std::string_view item = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t equals = item.find('=');
    const auto name = decode_percent(item.substr(0, equals));
    const auto value = decode_percent(equals == std::string_view::npos ? "" : item.substr(equals + 1));
    if (!name || !value) return invalid("has an option with an invalid % escape");
    if (std::ranges::any_of(*value, is_control)) return invalid("has an option with control characters");
    const bool is_common = has_word("mode timeout verify", *name);
    // The name of an unknown option may be part of a password that was not escaped.
    if (!is_common && !has_word(named(url.scheme).options, *name))
      return invalid(fmt::format("has an unknown option; {}: URLs have mode, timeout, verify{}{}",
                                 named(url.scheme).name, named(url.scheme).options.empty() ? "" : " and ",
                                 named(url.scheme).options));
    if (!seen.insert(*name).second) return invalid(fmt::format("has {}= twice", *name));
    // The URL applies to processes with any working folder.
    if (has_word("ca password_file token_file unix_socket", *name) && !value->starts_with('/'))
      return invalid(fmt::format("has a {}= that is not an absolute path", *name));
    if (is_common)
      KILN_TRY(set_common_option(url, *name, *value));
    else
      url.options.emplace(*name, *value);
  }
  return {};
}

Result<void> set_authority(StoreUrl& url, std::string_view text) {
  if (const std::size_t at = text.rfind('@'); at != std::string_view::npos) {
    const std::string_view credentials = text.substr(0, at);
    text.remove_prefix(at + 1);
    const std::size_t colon = std::min(credentials.find(':'), credentials.size());
    auto user = decode_percent(credentials.substr(0, colon));
    auto password = decode_percent(credentials.substr(std::min(colon + 1, credentials.size())));
    if (!user || !password || std::ranges::any_of(*user + *password, is_control))
      return invalid("has an invalid user or password; write special characters as %XX");
    url.user = std::move(*user);
    url.password = std::move(*password);
  }
  std::size_t colon = text.find(':');
  if (text.starts_with('[')) {
    const std::size_t close = text.find(']');
    const std::string_view inside = text.substr(1, std::min(close, text.size()) - 1);
    const auto allowed = [](char c) { return hex_digit(c) >= 0 || c == ':' || c == '.'; };
    if (close == std::string_view::npos || inside.empty() || !std::ranges::all_of(inside, allowed))
      return invalid("has an invalid IPv6 address");
    colon = close + 1 == text.size() ? std::string_view::npos : close + 1;
    if (colon != std::string_view::npos && text[colon] != ':') return invalid("has an invalid IPv6 address");
  }
  url.host = base::to_lower(text.substr(0, colon));
  if (colon != std::string_view::npos) {
    const auto port = number<std::uint16_t>(text.substr(colon + 1));
    if (!port || *port == 0) return invalid("has an invalid port");
    url.port = *port;
  }
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
  };
  if (!url.host.starts_with('[') && !std::ranges::all_of(url.host, allowed))
    return invalid("has an invalid host; write special characters of the password as %XX");
  return {};
}

/// By the rules of S3: servers may put the name of the bucket before that of the host.
Result<void> set_bucket(StoreUrl& url, std::string_view text) {
  if (text.find('@') != std::string_view::npos)
    return invalid("names a user; S3 takes credentials from the variables and files of AWS only");
  if (text.find(':') != std::string_view::npos)
    return invalid("has a ':' in its bucket; write the server as endpoint=https://host:port");
  const auto is_alphanumeric = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  const auto allowed = [&](char c) { return is_alphanumeric(c) || c == '-' || c == '.'; };
  const bool is_address = text.find_first_not_of("0123456789.") == std::string_view::npos;
  if (text.size() < 3 || text.size() > 63 || !std::ranges::all_of(text, allowed) || is_address ||
      !is_alphanumeric(text.front()) || !is_alphanumeric(text.back()) || text.find("..") != std::string_view::npos)
    return invalid(
        "needs the name of a bucket, as in s3://bucket/prefix: 3 to 63 lower-case letters, digits, '-' and '.'");
  url.host = std::string(text);
  return {};
}

Result<void> set_prefix(StoreUrl& url, std::string path) {
  while (path.ends_with('/')) path.pop_back();
  // HTTP clients and servers remove segments that are empty, "." or "..".
  const std::string segments = path + "/";
  for (const char* removed : {"//", "/./", "/../"})
    if (segments.find(removed) != std::string::npos)
      return invalid("has a path with an empty part, '.' or '..', which S3 servers treat differently");
  url.path = std::move(path);
  return {};
}

Result<void> set_path(StoreUrl& url, std::string_view text) {
  if (url.scheme == Scheme::http || url.scheme == Scheme::https) {
    const auto allowed = [](char c) {
      return c > ' ' && c < 0x7f && c != '"' && c != '<' && c != '>' && c != '\\';
    };
    // The host may be the beginning of a password.
    if (text.find('@') != std::string_view::npos)
      return invalid("has an '@' in its path; write it as %40, and a '/' in a password as %2F");
    if (!decode_percent(text) || !std::ranges::all_of(text, allowed)) return invalid("has an invalid path");
    while (text.ends_with('/')) text.remove_suffix(1);
    url.path = std::string(text);
    return {};
  }
  auto path = decode_percent(text);
  if (!path) return invalid("has an invalid % escape in its path");
  if (std::ranges::any_of(*path, is_control)) return invalid("has control characters in its path");
  if (url.scheme == Scheme::s3) return set_prefix(url, *std::move(path));
  if (url.scheme == Scheme::redis || url.scheme == Scheme::rediss) {
    if (path->starts_with('/')) path->erase(0, 1);
    if (!path->empty() && !number<std::uint32_t>(*path))
      return invalid("has a path that is not the number of a Redis database");
  } else if (!path->starts_with('/') || *path == "/") {
    return invalid("needs an absolute path, as in file:///mnt/kiln");
  }
  url.path = std::move(*path);
  return {};
}

}  // namespace

std::optional<std::string> decode_percent(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    if (text.size() - i < 3) return std::nullopt;
    const int high = hex_digit(text[i + 1]);
    const int low = hex_digit(text[i + 2]);
    if (high < 0 || low < 0 || high + low == 0) return std::nullopt;
    decoded += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return decoded;
}

std::string StoreUrl::display() const {
  std::string text = fmt::format("{}://{}", named(scheme).name, host);
  if (port != 0) text += fmt::format(":{}", port);
  const bool is_redis = scheme == Scheme::redis || scheme == Scheme::rediss;
  return text + (is_redis && !path.empty() ? "/" : "") + path;
}

std::string StoreUrl::option(const std::string& name) const {
  const auto found = options.find(name);
  return found != options.end() ? found->second : std::string();
}

Result<StoreUrl> parse_store_url(std::string_view text) {
  const std::size_t colon = text.find("://");
  const auto* scheme = std::ranges::find(schemes, base::to_lower(text.substr(0, colon)), &SchemeName::name);
  if (colon == std::string_view::npos || scheme == schemes.end())
    return invalid("does not begin with file://, http://, https://, redis://, rediss://, redis+unix:// or s3://");
  StoreUrl url;
  url.scheme = scheme->scheme;
  text.remove_prefix(colon + 3);
  if (text.find('#') != std::string_view::npos) return invalid("contains a '#'; write it as %23");
  const std::size_t question = std::min(text.find('?'), text.size());
  const std::string_view options = text.substr(std::min(question + 1, text.size()));
  text = text.substr(0, question);
  const std::size_t slash = std::min(text.find('/'), text.size());
  KILN_TRY(url.scheme == Scheme::s3 ? set_bucket(url, text.substr(0, slash))
                                    : set_authority(url, text.substr(0, slash)));
  KILN_TRY(set_path(url, text.substr(slash)));
  KILN_TRY(set_options(url, options));

  const bool has_host = url.scheme != Scheme::file && url.scheme != Scheme::redis_unix;
  if (has_host && url.host.empty()) return invalid("names no host");
  if (!has_host && (url.port != 0 || !(url.host.empty() || url.host == "localhost")))
    return invalid("names a host; write three slashes, as in file:///mnt/kiln");
  if (!has_host) url.host.clear();
  if (url.scheme == Scheme::file && !(url.user.empty() && url.password.empty()))
    return invalid("has a user or a password, which a folder does not take");
  const std::string layout = url.option("layout");
  if (!layout.empty() && layout != "bazel") return invalid("has a layout= that is not bazel");
  const std::string style = url.option("style");
  if (!style.empty() && style != "path" && style != "virtual")
    return invalid("has a style= that is not path or virtual");
  if (const std::string db = url.option("db"); !db.empty() && !number<std::uint32_t>(db))
    return invalid("has a db= that is not a number");
  return url;
}

}  // namespace kiln::store
