#include "store/remote/http_store.hpp"

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <exception>
#include <string_view>
#include <utility>

#include <curl/curl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "base/mutex.hpp"
#include "base/sha256.hpp"
#include "base/try.hpp"
#include "store/remote/curl.hpp"
#include "store/remote/secret_file.hpp"

namespace kiln::store {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int max_redirects = 5;
constexpr std::size_t max_header_bytes = 64 << 10;
/// Of an answer whose body is not wanted. After more than this, the connection is closed.
constexpr std::size_t max_skipped_bytes = 64 << 10;
constexpr std::size_t max_idle_connections = 8;

enum class Method { get, put, head, remove };

const char* name_of(Method method) {
  switch (method) {
    case Method::get: return "GET";
    case Method::put: return "PUT";
    case Method::head: return "HEAD";
    case Method::remove: break;
  }
  return "DELETE";
}

/// What only the server of the store gets.
struct HttpAccess {
  std::string user = {};
  std::string password = {};
  std::string token = {};
  std::string unix_socket = {};
};

/// A URL without credentials and fragment.
struct HttpAddress {
  std::string url;
  std::string scheme;
  /// Scheme, host and port.
  std::string origin;

  /// Nothing if it is not a URL of http or https.
  static std::optional<HttpAddress> parse(const std::string& text) {
    const std::unique_ptr<CURLU, void (*)(CURLU*)> url(curl_url(), curl_url_cleanup);
    if (url == nullptr || curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK) return std::nullopt;
    for (const CURLUPart secret : {CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_OPTIONS, CURLUPART_FRAGMENT})
      if (curl_url_set(url.get(), secret, nullptr, 0) != CURLUE_OK) return std::nullopt;
    const auto part = [&url](CURLUPart which, unsigned flags) {
      char* value = nullptr;
      if (curl_url_get(url.get(), which, &value, flags) != CURLUE_OK) return std::string();
      const std::unique_ptr<char, void (*)(void*)> owner(value, curl_free);
      return std::string(value);
    };
    HttpAddress address{part(CURLUPART_URL, 0), part(CURLUPART_SCHEME, 0), {}};
    const std::string host = part(CURLUPART_HOST, 0);
    if (host.empty() || address.url.empty() || (address.scheme != "http" && address.scheme != "https"))
      return std::nullopt;
    address.origin = fmt::format("{}://{}:{}", address.scheme, host, part(CURLUPART_PORT, CURLU_DEFAULT_PORT));
    return address;
  }
};

struct HttpAnswer {
  long status = 0;
  /// Of a GET with status 200 only.
  std::vector<std::byte> body = {};
  /// Absolute; empty if the answer is no redirect.
  std::string redirect = {};
};

/// A connection that serves one request at a time, and stays open between requests.
class HttpConnection {
 public:
  /// Null if there is no memory.
  static std::unique_ptr<HttpConnection> create() {
    auto connection = std::unique_ptr<HttpConnection>(new HttpConnection);
    for (const char* header : {"Content-Type: application/octet-stream", "Expect:"}) {
      curl_slist* longer = curl_slist_append(connection->put_headers_.get(), header);
      if (longer == nullptr) return nullptr;
      static_cast<void>(connection->put_headers_.release());
      connection->put_headers_.reset(longer);
    }
    if (connection->easy_ == nullptr || connection->multi_ == nullptr) return nullptr;
    return connection;
  }

  /// Sends one request, without following redirects. `access` is null for other servers than that of the store.
  /// The messages of errors are reasons without a subject.
  Result<HttpAnswer> exchange(Method method, const HttpAddress& address, std::span<const std::byte> body,
                              const HttpAccess* access, const std::string& ca, const CallLimit& limit) {
    method_ = method;
    unsent_ = body_ = body;
    header_bytes_ = skipped_bytes_ = 0;
    trouble_ = Trouble::none;
    message_[0] = '\0';
    auto answer = exchange_once(address, access, ca, limit);
    // A connection that is kept keeps no memory of bodies, whatever happened.
    std::vector<std::byte>().swap(received_);
    return answer;
  }

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

  Result<HttpAnswer> exchange_once(const HttpAddress& address, const HttpAccess* access, const std::string& ca,
                                   const CallLimit& limit) {
    if (set_options(address, access, ca, limit) != CURLE_OK ||
        curl_multi_add_handle(multi_.get(), easy_.get()) != CURLM_OK)
      return Error(ErrorCode::io, "libcurl cannot begin the request");
    const auto ended = run(limit);
    // Closes the connection if the answer is incomplete.
    curl_multi_remove_handle(multi_.get(), easy_.get());
    const CURLcode code = KILN_TRY(ended);

    HttpAnswer answer;
    curl_easy_getinfo(easy_.get(), CURLINFO_RESPONSE_CODE, &answer.status);
    // A server that refuses a PUT may close the connection before it has read all of it.
    const bool is_refusal = answer.status >= 400 || trouble_ == Trouble::body_not_wanted;
    if (code != CURLE_OK && !is_refusal) return failure(code, access != nullptr);
    const char* redirect = nullptr;
    curl_easy_getinfo(easy_.get(), CURLINFO_REDIRECT_URL, &redirect);
    if (redirect != nullptr) answer.redirect = redirect;
    answer.body = std::move(received_);
    return answer;
  }

  CURLcode set_options(const HttpAddress& address, const HttpAccess* access, const std::string& ca,
                       const CallLimit& limit) {
    CURLcode failed = CURLE_OK;
    // The macro of the same name checks types of constant options only.
    const auto set = [this, &failed](CURLoption option, auto value) {
      if (failed == CURLE_OK) failed = (curl_easy_setopt)(easy_.get(), option, value);
    };
    curl_easy_reset(easy_.get());
    set(CURLOPT_URL, address.url.c_str());
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_HTTP_VERSION, long{CURL_HTTP_VERSION_1_1});
    set(CURLOPT_USERAGENT, "kiln/" KILN_VERSION);
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_TCP_KEEPALIVE, 1L);
    // Otherwise the end of a call waits for the end of its name lookup.
    set(CURLOPT_QUICK_EXIT, 1L);
    set(CURLOPT_ERRORBUFFER, message_.data());
    set(CURLOPT_WRITEFUNCTION, &HttpConnection::on_body);
    set(CURLOPT_WRITEDATA, static_cast<void*>(this));
    set(CURLOPT_HEADERFUNCTION, &HttpConnection::on_header);
    set(CURLOPT_HEADERDATA, static_cast<void*>(this));
    if (address.scheme == "https") {
      set(CURLOPT_SSLVERSION, long{CURL_SSLVERSION_TLSv1_2});
      if (!ca.empty()) {
        set(CURLOPT_CAINFO, ca.c_str());
        // Trust no others: by default libcurl adds those of the system.
        set(CURLOPT_CAPATH, static_cast<const char*>(nullptr));
      }
    }
    if (limit.deadline != Clock::time_point::max()) {
      // libcurl divides this time among the addresses of the host.
      set(CURLOPT_TIMEOUT_MS, long{milliseconds_left(limit)});
      set(CURLOPT_CONNECTTIMEOUT_MS, long{milliseconds_left(limit)});
    }
    if (access != nullptr) {
      if (!access->unix_socket.empty()) {
        set(CURLOPT_UNIX_SOCKET_PATH, access->unix_socket.c_str());
        set(CURLOPT_PROXY, "");
      }
      if (!access->token.empty()) {
        set(CURLOPT_HTTPAUTH, static_cast<long>(CURLAUTH_BEARER));
        set(CURLOPT_XOAUTH2_BEARER, access->token.c_str());
      } else if (!access->user.empty() || !access->password.empty()) {
        set(CURLOPT_HTTPAUTH, static_cast<long>(CURLAUTH_BASIC));
        set(CURLOPT_USERNAME, access->user.c_str());
        set(CURLOPT_PASSWORD, access->password.c_str());
      }
    }
    switch (method_) {
      case Method::get: set(CURLOPT_MAXFILESIZE_LARGE, static_cast<curl_off_t>(max_object_bytes)); break;
      case Method::head: set(CURLOPT_NOBODY, 1L); break;
      case Method::remove: set(CURLOPT_CUSTOMREQUEST, "DELETE"); break;
      case Method::put:
        set(CURLOPT_UPLOAD, 1L);
        set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(body_.size()));
        set(CURLOPT_HTTPHEADER, put_headers_.get());
        set(CURLOPT_READFUNCTION, &HttpConnection::on_send);
        set(CURLOPT_READDATA, static_cast<void*>(this));
        set(CURLOPT_SEEKFUNCTION, &HttpConnection::on_seek);
        set(CURLOPT_SEEKDATA, static_cast<void*>(this));
        break;
    }
    return failed;
  }

  /// Rounded up; at most an hour.
  static int milliseconds_left(const CallLimit& limit) {
    const auto left = limit.deadline - Clock::now();
    constexpr std::chrono::milliseconds most = std::chrono::hours(1);
    if (left >= most) return int{most.count()};
    return std::max(1, static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count()));
  }

  /// Runs the request to its end. Fails with cancelled or timed_out.
  Result<CURLcode> run(const CallLimit& limit) {
    for (;;) {
      int running = 0;
      if (curl_multi_perform(multi_.get(), &running) != CURLM_OK)
        return Error(ErrorCode::io, "libcurl cannot run the request");
      if (running == 0) break;
      pollfd cancelled = {limit.cancelled, POLLIN, 0};
      if (limit.cancelled >= 0 && poll(&cancelled, 1, 0) > 0)
        return Error(ErrorCode::cancelled, "the request was cancelled");
      if (Clock::now() >= limit.deadline) return Error(ErrorCode::timed_out, "the server did not answer in time");
      curl_waitfd also = {limit.cancelled, CURL_WAIT_POLLIN, 0};
      curl_multi_poll(multi_.get(), &also, limit.cancelled >= 0 ? 1 : 0, milliseconds_left(limit), nullptr);
    }
    int left = 0;
    const CURLMsg* message = curl_multi_info_read(multi_.get(), &left);
    return message != nullptr ? message->data.result : CURLE_FAILED_INIT;
  }

  Error failure(CURLcode code, bool may_quote) const {
    if (code == CURLE_OPERATION_TIMEDOUT) return Error(ErrorCode::timed_out, "the server did not answer in time");
    if (trouble_ == Trouble::no_memory) return Error(ErrorCode::io, "there is no memory left");
    // libcurl's word for a header line that is longer than its limit.
    if (code == CURLE_OUT_OF_MEMORY)
      return Error(ErrorCode::io, "there is no memory left, or a header is too long");
    if (code == CURLE_FILESIZE_EXCEEDED || trouble_ == Trouble::body_too_long) {
      // A body of unknown length may have no end: that server failed.
      const bool is_announced = code == CURLE_FILESIZE_EXCEEDED && received_.empty();
      return Error(
          is_announced ? ErrorCode::unsupported : ErrorCode::io,
          fmt::format("the server sends more than {} MiB, the limit of an object", max_object_bytes >> 20));
    }
    if (trouble_ == Trouble::encoded)
      return Error(ErrorCode::io, "the server sends a body with a Transfer-Encoding other than chunked");
    if (trouble_ == Trouble::headers_too_long)
      return Error(ErrorCode::io,
                   fmt::format("the server sends more than {} KiB of headers", max_header_bytes >> 10));
    long proxy_status = 0;
    curl_easy_getinfo(easy_.get(), CURLINFO_HTTP_CONNECTCODE, &proxy_status);
    if (proxy_status == 407) return Error(ErrorCode::io, "the proxy requires a user and a password");
    // The text of another server could repeat what this one sent.
    return Error(ErrorCode::io,
                 printable_text(may_quote && message_[0] != '\0' ? message_.data() : curl_easy_strerror(code)));
  }

  bool wants_body() const {
    long status = 0;
    curl_easy_getinfo(easy_.get(), CURLINFO_RESPONSE_CODE, &status);
    return method_ == Method::get && status == 200;
  }

  std::size_t stop(Trouble why) noexcept {
    trouble_ = why;
    return CURL_WRITEFUNC_ERROR;
  }

  static std::size_t on_body(char* data, std::size_t /*one*/, std::size_t count, void* self) noexcept {
    auto& connection = *static_cast<HttpConnection*>(self);
    if (!connection.wants_body()) {
      connection.skipped_bytes_ += count;
      return connection.skipped_bytes_ <= max_skipped_bytes ? count : connection.stop(Trouble::body_not_wanted);
    }
    auto& received = connection.received_;
    if (count > max_object_bytes - received.size()) return connection.stop(Trouble::body_too_long);
    try {
      const auto* bytes = reinterpret_cast<const std::byte*>(data);
      received.insert(received.end(), bytes, bytes + count);
    } catch (const std::exception&) {
      return connection.stop(Trouble::no_memory);
    }
    return count;
  }

  static std::size_t on_header(char* data, std::size_t /*one*/, std::size_t count, void* self) noexcept {
    auto& connection = *static_cast<HttpConnection*>(self);
    connection.header_bytes_ += count;
    if (connection.header_bytes_ > max_header_bytes) return connection.stop(Trouble::headers_too_long);
    // libcurl would decompress the body, whose signature is not verified yet.
    return is_encoded({data, count}) ? connection.stop(Trouble::encoded) : count;
  }

  /// Whether a header line is a Transfer-Encoding other than chunked.
  static bool is_encoded(std::string_view line) noexcept {
    const auto is_same = [](std::string_view text, std::string_view lower_case) {
      return std::ranges::equal(text, lower_case, {},
                                [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    };
    constexpr std::string_view name = "transfer-encoding";
    if (!is_same(line.substr(0, name.size()), name)) return false;
    std::string_view value = line.substr(name.size());
    constexpr std::string_view spaces = ": \t\r\n";
    value.remove_prefix(std::min(value.find_first_not_of(spaces), value.size()));
    value = value.substr(0, value.find_last_not_of(spaces) + 1);
    return !is_same(value, "chunked");
  }

  static std::size_t on_send(char* to, std::size_t size, std::size_t count, void* self) noexcept {
    auto& unsent = static_cast<HttpConnection*>(self)->unsent_;
    const std::size_t bytes = std::min(size * count, unsent.size());
    if (bytes > 0) std::memcpy(to, unsent.data(), bytes);
    unsent = unsent.subspan(bytes);
    return bytes;
  }

  /// libcurl sends the body again if the server closed an idle connection.
  static int on_seek(void* self, curl_off_t offset, int origin) noexcept {
    auto& connection = *static_cast<HttpConnection*>(self);
    if (origin != SEEK_SET || offset < 0 || static_cast<std::uint64_t>(offset) > connection.body_.size())
      return CURL_SEEKFUNC_FAIL;
    connection.unsent_ = connection.body_.subspan(static_cast<std::size_t>(offset));
    return CURL_SEEKFUNC_OK;
  }

  // The multi handle owns the connections of the easy handle, so it is destroyed after it.
  std::unique_ptr<CURLM, FreeMulti> multi_{curl_multi_init()};
  std::unique_ptr<curl_slist, FreeList> put_headers_;
  std::unique_ptr<CURL, FreeEasy> easy_{curl_easy_init()};

  Method method_ = Method::get;
  std::span<const std::byte> body_ = {};
  std::span<const std::byte> unsent_ = {};
  std::vector<std::byte> received_ = {};
  std::size_t header_bytes_ = 0;
  std::size_t skipped_bytes_ = 0;
  Trouble trouble_ = Trouble::none;
  std::array<char, CURL_ERROR_SIZE> message_ = {};
};

/// Whether the request is repeated at the address that the answer names. A PUT or DELETE only if that address gets
/// the same method.
bool is_redirect(Method method, long status) {
  if (status == 307 || status == 308) return true;
  return (method == Method::get || method == Method::head) && (status == 301 || status == 302 || status == 303);
}

/// The error for an answer that is neither success nor absence. The message is a reason without a subject.
Error refusal(Method method, long status, bool redirected) {
  const bool writes = method == Method::put || method == Method::remove;
  const auto reason = [status](std::string_view why) { return fmt::format("{} (status {})", why, status); };
  switch (status) {
    case 401:
      return Error(
          ErrorCode::io,
          reason(redirected ? "the server redirects to another one, which requires credentials; use its URL"
                            : "the server requires other credentials; check the user and password, or the "
                              "token file"));
    case 403:
      return Error(ErrorCode::denied, reason(writes ? "the server permits no writing with these credentials"
                                                    : "the server permits no reading with these credentials"));
    case 407: return Error(ErrorCode::io, reason("the proxy requires a user and a password"));
    case 405:
      if (writes) return Error(ErrorCode::denied, reason("the server permits no writing"));
      break;
    case 413:
      return Error(method == Method::put ? ErrorCode::unsupported : ErrorCode::io,
                   reason("the server permits no object of this size; raise its limit"));
    case 429:
    case 503: return Error(ErrorCode::io, reason("the server is overloaded"));
    case 507: return Error(ErrorCode::io, reason("the server is full"));
    default: break;
  }
  if (status >= 300 && status < 400)
    return Error(ErrorCode::io, reason("the server redirects in a way that this request does not follow"));
  return Error(ErrorCode::io, reason("the server failed, or is no store"));
}

class HttpStore final : public ObjectStore {
 public:
  /// `secret` is null if the options name no file.
  HttpStore(const StoreUrl& url, HttpAddress address, std::unique_ptr<SecretFile> secret)
      : display_(url.display()),
        address_(std::move(address)),
        is_bazel_(url.option("layout") == "bazel"),
        ca_(url.option("ca")),
        access_{url.user, url.password, {}, url.option("unix_socket")},
        secret_(std::move(secret)),
        is_token_(!url.option("token_file").empty()) {}

  ~HttpStore() override {
    if (getpid() == process_) return;
    // Closing the connections of a parent would end its TLS sessions.
    const base::MutexLock lock(mutex_);
    for (auto& connection : idle_) static_cast<void>(connection.release());
  }

  Result<std::optional<std::vector<std::byte>>> get(const std::string& path, const CallLimit& limit) override {
    HttpAnswer answer = KILN_TRY(call(Method::get, path, {}, limit, {200, 404, 410}));
    if (answer.status != 200) return std::optional<std::vector<std::byte>>();
    return std::optional(std::move(answer.body));
  }

  Result<void> put(const std::string& path, std::span<const std::byte> bytes, const CallLimit& limit) override {
    if (bytes.size() > max_object_bytes)
      return Error(ErrorCode::unsupported,
                   fmt::format("cannot PUT {}/{}: it is larger than {} MiB, the limit of an object", display_, path,
                               max_object_bytes >> 20));
    KILN_TRY(call(Method::put, path, bytes, limit, {200, 201, 204}));
    return {};
  }

  Result<bool> has(const std::string& path, const CallLimit& limit) override {
    const HttpAnswer answer = KILN_TRY(call(Method::head, path, {}, limit, {200, 204, 404, 410}));
    return answer.status < 400;
  }

  Result<void> remove(const std::string& path, const CallLimit& limit) override {
    KILN_TRY(call(Method::remove, path, {}, limit, {200, 202, 204, 404, 410}));
    return {};
  }

  Result<std::vector<std::string>> list(const std::string& /*folder*/, const CallLimit& /*limit*/) override {
    return Error(ErrorCode::unsupported, fmt::format("{} cannot be listed: HTTP has no request for it", display_));
  }

 private:
  /// The credentials as they are now.
  Result<HttpAccess> access() {
    HttpAccess now = access_;
    if (secret_) (is_token_ ? now.token : now.password) = KILN_TRY(secret_->read());
    return now;
  }

  /// An answer with one of the statuses `expected`; other answers become errors.
  Result<HttpAnswer> call(Method method, const std::string& path, std::span<const std::byte> body,
                          const CallLimit& limit, std::initializer_list<long> expected) {
    auto connection = take_connection();
    auto answer = connection != nullptr ? follow(*connection, method, path, body, limit, expected)
                                        : Error(ErrorCode::io, "there is no memory left");
    keep(std::move(connection));
    if (answer.ok()) return answer;
    return Error(answer.error().code(),
                 fmt::format("cannot {} {}/{}: {}", name_of(method), display_, path, answer.error().message()));
  }

  Result<HttpAnswer> follow(HttpConnection& connection, Method method, const std::string& path,
                            std::span<const std::byte> body, const CallLimit& limit,
                            std::initializer_list<long> expected) {
    if (getpid() != process_)
      return Error(ErrorCode::unsupported,
                   "the store belongs to the process that forked this one; open another one");
    const HttpAccess access = KILN_TRY(this->access());
    HttpAddress address = address_;
    address.url += is_bazel_ ? "/ac/" + base::sha256(path).hex() : "/" + path;
    bool at_store = true;
    for (int redirects = 0;; ++redirects) {
      HttpAnswer answer =
          KILN_TRY(connection.exchange(method, address, body, at_store ? &access : nullptr, ca_, limit));
      if (std::ranges::find(expected, answer.status) != expected.end()) return answer;
      if (!is_redirect(method, answer.status) || answer.redirect.empty())
        return refusal(method, answer.status, !at_store);
      if (redirects == max_redirects) return Error(ErrorCode::io, "the server redirects more than five times");
      auto next = HttpAddress::parse(answer.redirect);
      if (!next) return Error(ErrorCode::io, "the server redirects to what is no address of an HTTP server");
      if (address.scheme == "https" && next->scheme == "http")
        return Error(ErrorCode::io, "the server redirects from https to http, which is refused");
      if ((method == Method::put || method == Method::remove) && next->origin != address_.origin)
        return Error(ErrorCode::io, "the server redirects to another one, where Kiln does not write; use its URL");
      // Another server could send the request back to an address of its choice; it gets no credentials then.
      at_store = at_store && next->origin == address_.origin;
      address = *std::move(next);
    }
  }

  /// Null if there is no memory.
  std::unique_ptr<HttpConnection> take_connection() {
    {
      const base::MutexLock lock(mutex_);
      if (!idle_.empty()) {
        auto connection = std::move(idle_.back());
        idle_.pop_back();
        return connection;
      }
    }
    return HttpConnection::create();
  }

  void keep(std::unique_ptr<HttpConnection> connection) {
    if (connection == nullptr) return;
    const base::MutexLock lock(mutex_);
    if (idle_.size() < max_idle_connections) idle_.push_back(std::move(connection));
  }

  const pid_t process_ = getpid();
  const std::string display_;
  const HttpAddress address_;
  const bool is_bazel_;
  const std::string ca_;
  /// As in the URL.
  const HttpAccess access_;
  const std::unique_ptr<SecretFile> secret_;
  const bool is_token_;

  base::Mutex mutex_;
  std::vector<std::unique_ptr<HttpConnection>> idle_ KILN_GUARDED_BY(mutex_);
};

}  // namespace

Result<std::unique_ptr<ObjectStore>> make_http_store(const StoreUrl& url) {
  KILN_TRY(start_curl());
  const auto invalid = [&url](std::string_view why) {
    return Error(ErrorCode::invalid_request, fmt::format("the store {} {}", url.display(), why));
  };
  if (!url.option("token_file").empty() &&
      !(url.user.empty() && url.password.empty() && url.option("password_file").empty()))
    return invalid("has a token_file beside a user or a password; remove one of them");
  if (!url.password.empty() && !url.option("password_file").empty())
    return invalid("has a password beside a password_file; remove one of them");
  if (const std::string ca = url.option("ca"); !ca.empty())
    if (const auto usable = check_certificates(ca); !usable) return invalid(usable.error().message());
  auto address = HttpAddress::parse(url.display());
  if (!address) return invalid("has an address that libcurl does not accept");
  // curl_url_get() adds a slash to a URL without a path.
  while (address->url.ends_with('/')) address->url.pop_back();
  std::unique_ptr<SecretFile> secret;
  for (const char* option : {"password_file", "token_file"})
    if (const std::string path = url.option(option); !path.empty()) {
      auto opened = SecretFile::open(path);
      if (!opened) return invalid(opened.error().message());
      secret = *std::move(opened);
    }
  return std::unique_ptr<ObjectStore>(std::make_unique<HttpStore>(url, *std::move(address), std::move(secret)));
}

}  // namespace kiln::store
