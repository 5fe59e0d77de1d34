#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <curl/curl.h>

#include <kiln/result.hpp>

#include "store/object_store.hpp"

namespace kiln::store {

/// `list` is a PROPFIND of a folder and what lies directly in it.
enum class HttpMethod { get, put, head, remove, list };
/// As in "GET".
const char* name_of(HttpMethod method);

/// The Content-Type that PUT sends.
inline constexpr const char* put_content_type = "application/octet-stream";

/// Fails with unsupported if an object is too large to be uploaded to `display`, the name of a store.
Result<void> check_upload(const std::string& display, const std::string& path, std::size_t bytes);

/// What only the server of the store gets.
struct HttpAccess {
  std::string user = {};
  std::string password = {};
  std::string token = {};
  std::string unix_socket = {};
  /// More lines of the header, as in "range: bytes=0-0".
  std::vector<std::string> headers = {};
};

/// A URL without credentials and fragment.
struct HttpAddress {
  std::string url;
  std::string scheme;
  /// Scheme, host and port.
  std::string origin;

  /// Nothing if it is not a URL of http or https.
  static std::optional<HttpAddress> parse(const std::string& text);
};

/// Names what the caller owns until the answer is there.
struct HttpRequest {
  HttpMethod method = HttpMethod::get;
  const HttpAddress& address;
  std::span<const std::byte> body = {};
  /// Null for other servers than that of the store.
  const HttpAccess* access = nullptr;
  /// A file of certificates; empty: those of the system.
  const std::string& ca;
  /// Of HttpAnswer::body.
  std::uint64_t max_answer_bytes = max_object_bytes;
};

struct HttpAnswer {
  long status = 0;
  /// Of a GET with status 200, and of a PROPFIND with status 207 only.
  std::vector<std::byte> body = {};
  /// Absolute; empty if the answer is no redirect.
  std::string redirect = {};
  /// Of an answer with another status than that of `body`: the first 64 KiB.
  std::string other_body = {};
  /// Why `other_body` is incomplete, unless it is too long.
  std::optional<Error> cut = {};
  /// Of an answer with a status of 300 or above, by names in lower case.
  std::map<std::string, std::string> headers = {};
  /// What the server asks for with Retry-After, at most an hour; 0: nothing.
  std::chrono::seconds retry_after{0};
};

/// A connection that serves one request at a time, and stays open between requests.
class HttpConnection {
 public:
  /// Null if there is no memory.
  static std::unique_ptr<HttpConnection> create();

  /// Sends one request, without following redirects. The messages of errors are reasons without a subject.
  Result<HttpAnswer> exchange(const HttpRequest& request, const CallLimit& limit);

 private:
  enum class Trouble { none, headers_too_long, body_too_long, body_not_wanted, encoded, no_memory };
  struct FreeEasy {
    void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
  };
  struct FreeMulti {
    void operator()(CURLM* handle) const { curl_multi_cleanup(handle); }
  };
  struct FreeList {
    void operator()(curl_slist* list) const { curl_slist_free_all(list); }
  };

  HttpConnection() = default;
  Result<HttpAnswer> exchange_once(const HttpRequest& request, const CallLimit& limit);
  CURLcode set_options(const HttpRequest& request, const CallLimit& limit);
  /// Runs the request to its end. Fails with cancelled or timed_out.
  Result<CURLcode> run(const CallLimit& limit);
  /// Adds a line to headers_. False if there is no memory.
  bool add_header(const std::string& line);
  void read_headers(HttpAnswer& answer) const;
  Error failure(CURLcode code, bool may_quote) const;
  bool wants_body() const;
  std::size_t stop(Trouble why) noexcept;

  static std::size_t on_body(char* data, std::size_t one, std::size_t count, void* self) noexcept;
  static std::size_t on_header(char* data, std::size_t one, std::size_t count, void* self) noexcept;
  static std::size_t on_send(char* to, std::size_t size, std::size_t count, void* self) noexcept;
  /// libcurl sends the body again if the server closed an idle connection.
  static int on_seek(void* self, curl_off_t offset, int origin) noexcept;

  // The multi handle owns the connections of the easy handle, so it is destroyed after it.
  std::unique_ptr<CURLM, FreeMulti> multi_{curl_multi_init()};
  std::unique_ptr<curl_slist, FreeList> headers_;
  std::unique_ptr<CURL, FreeEasy> easy_{curl_easy_init()};

  HttpMethod method_ = HttpMethod::get;
  std::uint64_t max_answer_bytes_ = max_object_bytes;
  std::span<const std::byte> body_ = {};
  std::span<const std::byte> unsent_ = {};
  std::vector<std::byte> received_ = {};
  std::size_t header_bytes_ = 0;
  std::string other_ = {};
  Trouble trouble_ = Trouble::none;
  std::array<char, CURL_ERROR_SIZE> message_ = {};
};

}  // namespace kiln::store
