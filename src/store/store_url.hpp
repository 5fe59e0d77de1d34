#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <kiln/result.hpp>
#include <kiln/store.hpp>

namespace kiln::store {

/// The address of a shared store, as in "redis://user:password@cache.example:6379/0?mode=ro&timeout=200ms". A
/// value. Contains secrets: use display() in messages.
struct StoreUrl {
  enum class Scheme { file, http, https, redis, rediss, redis_unix, s3 };

  Scheme scheme = Scheme::file;
  /// Decoded; empty if there are none.
  std::string user = {};
  std::string password = {};
  /// As written, in lower case: a name, an IPv4 address, or an IPv6 address in brackets. The bucket for S3. Empty
  /// for a folder or a Unix socket.
  std::string host = {};
  /// 0: the default of the scheme.
  std::uint16_t port = 0;
  /// Decoded for a folder, a Unix socket, Redis and S3; as written for HTTP. Without a slash at its end for HTTP
  /// and S3.
  std::string path = {};
  /// The options of the scheme, decoded: prefix, db, ca, layout, token_file, password_file and unix_socket; for S3
  /// ca, endpoint, profile, region and style.
  std::map<std::string, std::string> options = {};

  /// The options that all schemes have.
  StoreMode mode = StoreMode::read_write;
  std::chrono::milliseconds timeout = default_store_timeout;
  std::optional<Verification> verify = {};

  /// Whether it is a server: its code is in libkiln_remote.
  bool is_network() const noexcept { return scheme != Scheme::file; }
  /// The URL without user, password and options: for messages, statistics and JSON.
  std::string display() const;
  /// The option, or an empty text.
  std::string option(const std::string& name) const;

  friend bool operator==(const StoreUrl&, const StoreUrl&) = default;
};

/// The paths of files and sockets are absolute, and no option is there twice. Fails with invalid_request; the
/// message never contains a user, a password or the value of an option.
Result<StoreUrl> parse_store_url(std::string_view text);

/// Replaces %XX; nothing if one is incomplete, or stands for a NUL.
std::optional<std::string> decode_percent(std::string_view text);

}  // namespace kiln::store
