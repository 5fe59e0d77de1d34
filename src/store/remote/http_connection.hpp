#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
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
enum class HttpMethod { get, put, head, remove, list, post, patch };
/// As in "GET".
const char* name_of(HttpMethod method);

/// How many redirects in a row are followed.
inline constexpr int max_redirects = 5;
/// Whether the request is repeated at the address that the answer names. A PUT or DELETE only if that address gets
/// the same method.
bool is_redirect(HttpMethod method, long status);

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
  std::string url = {};
  std::string scheme = {};
  /// Scheme, host and port.
  std::string origin = {};

  /// Nothing if it is not a URL of http or https.
  static std::optional<HttpAddress> parse(const std::string& text);
  /// What a URL means in an answer of this address, where it may be relative.
  std::optional<HttpAddress> resolve(const std::string& text) const;
};

/// A body that is not in memory.
struct HttpSource {
  std::uint64_t size = 0;
  /// Reads bytes at an offset; at least one.
  std::function<Result<std::size_t>(std::uint64_t offset, std::span<std::byte> to)> read = {};
};

/// Takes a body as it arrives. An error of its functions ends the request.
class HttpSink {
 public:
  HttpSink() = default;
  HttpSink(const HttpSink&) = delete;
  HttpSink& operator=(const HttpSink&) = delete;
  virtual ~HttpSink() = default;

  /// Called before the first byte. `range` is Content-Range, or empty.
  virtual Result<void> begin(long status, std::string_view range) = 0;
  virtual Result<void> write(std::span<const std::byte> bytes) = 0;
};

/// Names what the caller owns until the answer is there.
struct HttpRequest {
  HttpMethod method = HttpMethod::get;
  const HttpAddress& address;
  std::span<const std::byte> body = {};
  /// The body, if it is not null.
  const HttpSource* source = nullptr;
  const char* content_type = put_content_type;
  /// Null for other servers than that of the store.
  const HttpAccess* access = nullptr;
  /// More lines of the header, for all servers.
  std::span<const std::string> headers = {};
  /// A file of certificates; empty: those of the system.
  const std::string& ca;
  /// Of HttpAnswer::body.
  std::uint64_t max_answer_bytes = max_object_bytes;
  /// What `max_answer_bytes` limits if it is not that of an object.
  const char* limited = "a list";
  /// Unless it is null, takes the body of a GET with status 200 or 206, of any length.
  HttpSink* sink = nullptr;
  /// Whether the answer has its headers with each status.
  bool keeps_headers = false;
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
  /// Of an answer with a status of 300 or above, by names in lower case. Values of one name are joined with commas.
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
  enum class Trouble { none, headers_too_long, body_too_long, body_not_wanted, encoded, no_memory, own };
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
  std::uint64_t body_bytes() const { return source_ != nullptr ? source_->size : body_.size(); }
  /// Adds a line to headers_. False if there is no memory.
  bool add_header(const std::string& line);
  void read_headers(HttpAnswer& answer) const;
  Error failure(CURLcode code, bool may_quote) const;
  bool wants_body() const;
  Result<void> pass_on(std::span<const std::byte> bytes);
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

  using Clock = std::chrono::steady_clock;

  HttpMethod method_ = HttpMethod::get;
  std::uint64_t max_answer_bytes_ = max_object_bytes;
  const char* limited_ = nullptr;
  const HttpSource* source_ = nullptr;
  HttpSink* sink_ = nullptr;
  bool sink_has_begun_ = false;
  std::uint64_t sent_ = 0;
  /// When bytes were transferred last.
  Clock::time_point progress_ = {};
  /// Of the source or the sink.
  std::optional<Error> own_error_ = {};
  std::span<const std::byte> body_ = {};
  std::vector<std::byte> received_ = {};
  std::size_t header_bytes_ = 0;
  std::string other_ = {};
  Trouble trouble_ = Trouble::none;
  std::array<char, CURL_ERROR_SIZE> message_ = {};
};

}  // namespace kiln::store
