#include "store/remote/http_connection.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <utility>

#include <fmt/format.h>
#include <poll.h>

#include "base/text.hpp"
#include "base/try.hpp"
#include "store/remote/curl.hpp"

namespace kiln::store {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t max_header_bytes = 64 << 10;
/// Of an answer that has no object. After more than this, the connection is closed.
constexpr std::size_t max_other_bytes = 64 << 10;
constexpr curl_off_t max_retry_after_s = 3600;

/// Rounded up; at most an hour.
int milliseconds_until(Clock::time_point deadline) {
  const auto left = deadline - Clock::now();
  constexpr std::chrono::milliseconds most = std::chrono::hours(1);
  if (left >= most) return int{most.count()};
  return std::max(1, static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count()));
}

/// Whether a header line is a Transfer-Encoding other than chunked.
bool is_encoded(std::string_view line) noexcept {
  const auto is_same = [](std::string_view text, std::string_view lower_case) {
    return std::ranges::equal(text, lower_case, {}, [](char c) { return base::to_lower(c); });
  };
  constexpr std::string_view name = "transfer-encoding";
  if (!is_same(line.substr(0, name.size()), name)) return false;
  return !is_same(base::trimmed(line.substr(name.size()), ": \t\r\n"), "chunked");
}

}  // namespace

const char* name_of(HttpMethod method) {
  switch (method) {
    case HttpMethod::get: return "GET";
    case HttpMethod::put: return "PUT";
    case HttpMethod::head: return "HEAD";
    case HttpMethod::remove: return "DELETE";
    case HttpMethod::post: return "POST";
    case HttpMethod::patch: return "PATCH";
    case HttpMethod::list: break;
  }
  return "PROPFIND";
}

bool is_redirect(HttpMethod method, long status) {
  if (status == 307 || status == 308) return true;
  return (method == HttpMethod::get || method == HttpMethod::head) &&
         (status == 301 || status == 302 || status == 303);
}

Result<void> check_upload(const std::string& display, const std::string& path, std::size_t bytes) {
  if (bytes <= max_object_bytes) return {};
  return Error(ErrorCode::unsupported,
               fmt::format("cannot PUT {}/{}: it is larger than {} MiB, the limit of an object", display, path,
                           max_object_bytes >> 20));
}

std::optional<HttpAddress> HttpAddress::parse(const std::string& text) { return HttpAddress{}.resolve(text); }

std::optional<HttpAddress> HttpAddress::resolve(const std::string& text) const {
  const std::unique_ptr<CURLU, void (*)(CURLU*)> parsed(curl_url(), curl_url_cleanup);
  const auto set = [&parsed](CURLUPart which, const char* value) {
    return curl_url_set(parsed.get(), which, value, 0) == CURLUE_OK;
  };
  if (parsed == nullptr || (!url.empty() && !set(CURLUPART_URL, url.c_str())) || !set(CURLUPART_URL, text.c_str()))
    return std::nullopt;
  for (const CURLUPart secret : {CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_OPTIONS, CURLUPART_FRAGMENT})
    if (!set(secret, nullptr)) return std::nullopt;
  const auto part = [&parsed](CURLUPart which, unsigned flags) {
    char* value = nullptr;
    if (curl_url_get(parsed.get(), which, &value, flags) != CURLUE_OK) return std::string();
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

std::unique_ptr<HttpConnection> HttpConnection::create() {
  auto connection = std::unique_ptr<HttpConnection>(new HttpConnection);
  if (connection->easy_ == nullptr || connection->multi_ == nullptr) return nullptr;
  return connection;
}

Result<HttpAnswer> HttpConnection::exchange(const HttpRequest& request, const CallLimit& limit) {
  method_ = request.method;
  max_answer_bytes_ = request.max_answer_bytes;
  limited_ = request.limited;
  source_ = request.source;
  sink_ = request.sink;
  sink_has_begun_ = false;
  body_ = request.body;
  sent_ = 0;
  progress_ = Clock::now();
  own_error_.reset();
  header_bytes_ = 0;
  trouble_ = Trouble::none;
  message_[0] = '\0';
  auto answer = exchange_once(request, limit);
  // A connection that is kept keeps no memory of bodies, whatever happened.
  std::vector<std::byte>().swap(received_);
  std::string().swap(other_);
  return answer;
}

Result<HttpAnswer> HttpConnection::exchange_once(const HttpRequest& request, const CallLimit& limit) {
  if (set_options(request, limit) != CURLE_OK || curl_multi_add_handle(multi_.get(), easy_.get()) != CURLM_OK)
    return Error(ErrorCode::io, "libcurl cannot begin the request");
  const auto ended = run(limit);
  // Closes the connection if the answer is incomplete.
  curl_multi_remove_handle(multi_.get(), easy_.get());
  const CURLcode code = KILN_TRY(ended);
  if (own_error_) return *own_error_;

  HttpAnswer answer;
  curl_easy_getinfo(easy_.get(), CURLINFO_RESPONSE_CODE, &answer.status);
  // A server that refuses a PUT may close the connection before it has read all of it.
  const bool is_refusal = answer.status >= 400 || trouble_ == Trouble::body_not_wanted;
  if (code != CURLE_OK && !is_refusal) return failure(code, request.access != nullptr);
  if (code != CURLE_OK && trouble_ != Trouble::body_not_wanted)
    answer.cut = failure(code, request.access != nullptr);
  const char* redirect = nullptr;
  curl_easy_getinfo(easy_.get(), CURLINFO_REDIRECT_URL, &redirect);
  if (redirect != nullptr) answer.redirect = redirect;
  answer.body = std::move(received_);
  answer.other_body = std::move(other_);
  if (answer.status >= 300 || request.keeps_headers) read_headers(answer);
  return answer;
}

void HttpConnection::read_headers(HttpAnswer& answer) const {
  curl_header* header = nullptr;
  while ((header = curl_easy_nextheader(easy_.get(), CURLH_HEADER, -1, header)) != nullptr) {
    std::string& value = answer.headers[base::to_lower(header->name)];
    value += (value.empty() ? "" : ", ") + std::string(header->value);
  }
  curl_off_t seconds = 0;
  if (curl_easy_getinfo(easy_.get(), CURLINFO_RETRY_AFTER, &seconds) == CURLE_OK && seconds > 0)
    answer.retry_after = std::chrono::seconds(std::min(seconds, max_retry_after_s));
}

bool HttpConnection::add_header(const std::string& line) {
  curl_slist* longer = curl_slist_append(headers_.get(), line.c_str());
  if (longer == nullptr) return false;
  static_cast<void>(headers_.release());
  headers_.reset(longer);
  return true;
}

CURLcode HttpConnection::set_options(const HttpRequest& request, const CallLimit& limit) {
  const HttpAddress& address = request.address;
  const HttpAccess* access = request.access;
  CURLcode failed = CURLE_OK;
  // The macro of the same name checks types of constant options only.
  const auto set = [this, &failed](CURLoption option, auto value) {
    if (failed == CURLE_OK) failed = (curl_easy_setopt)(easy_.get(), option, value);
  };
  curl_easy_reset(easy_.get());
  headers_.reset();
  std::vector<std::string> headers;
  if (access != nullptr) headers = access->headers;
  headers.insert(headers.end(), request.headers.begin(), request.headers.end());
  const bool has_body = method_ == HttpMethod::put || method_ == HttpMethod::post || method_ == HttpMethod::patch;
  if (has_body) {
    headers.push_back(std::string("Content-Type: ") + request.content_type);
    headers.emplace_back("Expect:");
  }
  if (method_ == HttpMethod::list) headers.emplace_back("Depth: 1");
  if (!std::ranges::all_of(headers, [this](const std::string& line) { return add_header(line); }))
    return CURLE_OUT_OF_MEMORY;
  set(CURLOPT_HTTPHEADER, headers_.get());
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
    if (!request.ca.empty()) {
      set(CURLOPT_CAINFO, request.ca.c_str());
      // Trust no others: by default libcurl adds those of the system.
      set(CURLOPT_CAPATH, static_cast<const char*>(nullptr));
    }
  }
  if (limit.deadline != Clock::time_point::max()) {
    // libcurl divides this time among the addresses of the host.
    set(CURLOPT_TIMEOUT_MS, long{milliseconds_until(limit.deadline)});
    set(CURLOPT_CONNECTTIMEOUT_MS, long{milliseconds_until(limit.deadline)});
  } else if (limit.idle.count() > 0) {
    set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(limit.idle.count()));
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
    case HttpMethod::list: set(CURLOPT_CUSTOMREQUEST, "PROPFIND"); [[fallthrough]];
    case HttpMethod::get:
      if (sink_ == nullptr) set(CURLOPT_MAXFILESIZE_LARGE, static_cast<curl_off_t>(max_answer_bytes_));
      break;
    case HttpMethod::head: set(CURLOPT_NOBODY, 1L); break;
    case HttpMethod::remove: set(CURLOPT_CUSTOMREQUEST, "DELETE"); break;
    case HttpMethod::post:
    case HttpMethod::patch:
    case HttpMethod::put:
      set(CURLOPT_UPLOAD, 1L);
      if (method_ != HttpMethod::put) set(CURLOPT_CUSTOMREQUEST, name_of(method_));
      set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(body_bytes()));
      set(CURLOPT_READFUNCTION, &HttpConnection::on_send);
      set(CURLOPT_READDATA, static_cast<void*>(this));
      set(CURLOPT_SEEKFUNCTION, &HttpConnection::on_seek);
      set(CURLOPT_SEEKDATA, static_cast<void*>(this));
      break;
  }
  return failed;
}

Result<CURLcode> HttpConnection::run(const CallLimit& limit) {
  for (;;) {
    int running = 0;
    if (curl_multi_perform(multi_.get(), &running) != CURLM_OK)
      return Error(ErrorCode::io, "libcurl cannot run the request");
    if (running == 0) break;
    pollfd cancelled = {limit.cancelled, POLLIN, 0};
    if (limit.cancelled >= 0 && poll(&cancelled, 1, 0) > 0)
      return Error(ErrorCode::cancelled, "the request was cancelled");
    const bool is_sent = limit.deadline != Clock::time_point::max() && body_bytes() > 0 && sent_ == body_bytes();
    const auto deadline =
        is_sent || limit.idle.count() == 0 ? limit.deadline : std::min(limit.deadline, progress_ + limit.idle);
    if (Clock::now() >= deadline) return Error(ErrorCode::timed_out, "the server did not answer in time");
    curl_waitfd also = {limit.cancelled, CURL_WAIT_POLLIN, 0};
    curl_multi_poll(multi_.get(), &also, limit.cancelled >= 0 ? 1 : 0, milliseconds_until(deadline), nullptr);
  }
  int left = 0;
  const CURLMsg* message = curl_multi_info_read(multi_.get(), &left);
  return message != nullptr ? message->data.result : CURLE_FAILED_INIT;
}

Error HttpConnection::failure(CURLcode code, bool may_quote) const {
  if (code == CURLE_OPERATION_TIMEDOUT) return Error(ErrorCode::timed_out, "the server did not answer in time");
  if (trouble_ == Trouble::no_memory) return Error(ErrorCode::io, "there is no memory left");
  // libcurl's word for a header line that is longer than its limit.
  if (code == CURLE_OUT_OF_MEMORY) return Error(ErrorCode::io, "there is no memory left, or a header is too long");
  if (code == CURLE_FILESIZE_EXCEEDED || trouble_ == Trouble::body_too_long) {
    // A body of unknown length may have no end: that server failed.
    const bool is_announced = code == CURLE_FILESIZE_EXCEEDED && received_.empty();
    const bool is_object = max_answer_bytes_ == max_object_bytes;
    return Error(is_announced && is_object ? ErrorCode::unsupported : ErrorCode::io,
                 fmt::format("the server sends more than {} MiB, the limit of {}", max_answer_bytes_ >> 20,
                             is_object ? "an object" : limited_));
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

bool HttpConnection::wants_body() const {
  long status = 0;
  curl_easy_getinfo(easy_.get(), CURLINFO_RESPONSE_CODE, &status);
  if (method_ == HttpMethod::get && status == 206) return sink_ != nullptr;
  return (method_ == HttpMethod::get && status == 200) || (method_ == HttpMethod::list && status == 207);
}

std::size_t HttpConnection::stop(Trouble why) noexcept {
  trouble_ = why;
  return CURL_WRITEFUNC_ERROR;
}

Result<void> HttpConnection::pass_on(std::span<const std::byte> bytes) {
  if (!std::exchange(sink_has_begun_, true)) {
    long status = 0;
    curl_easy_getinfo(easy_.get(), CURLINFO_RESPONSE_CODE, &status);
    curl_header* range = nullptr;
    const bool has_range = curl_easy_header(easy_.get(), "Content-Range", 0, CURLH_HEADER, -1, &range) == CURLHE_OK;
    KILN_TRY(sink_->begin(status, has_range ? range->value : ""));
  }
  return sink_->write(bytes);
}

std::size_t HttpConnection::on_body(char* data, std::size_t /*one*/, std::size_t count, void* self) noexcept {
  auto& connection = *static_cast<HttpConnection*>(self);
  auto& received = connection.received_;
  const bool is_object = connection.wants_body();
  connection.progress_ = Clock::now();
  const bool has_sink = is_object && connection.sink_ != nullptr;
  if (is_object && !has_sink && count > connection.max_answer_bytes_ - received.size())
    return connection.stop(Trouble::body_too_long);
  if (!is_object && count > max_other_bytes - connection.other_.size())
    return connection.stop(Trouble::body_not_wanted);
  try {
    if (has_sink) {
      const auto passed = connection.pass_on(std::as_bytes(std::span(data, count)));
      if (passed) return count;
      connection.own_error_ = passed.error();
      return connection.stop(Trouble::own);
    }
    if (!is_object) {
      connection.other_.append(data, count);
      return count;
    }
    const auto* bytes = reinterpret_cast<const std::byte*>(data);
    received.insert(received.end(), bytes, bytes + count);
  } catch (const std::exception&) {
    return connection.stop(Trouble::no_memory);
  }
  return count;
}

std::size_t HttpConnection::on_header(char* data, std::size_t /*one*/, std::size_t count, void* self) noexcept {
  auto& connection = *static_cast<HttpConnection*>(self);
  connection.header_bytes_ += count;
  connection.progress_ = Clock::now();
  if (connection.header_bytes_ > max_header_bytes) return connection.stop(Trouble::headers_too_long);
  // libcurl would decompress the body, whose signature is not verified yet.
  return is_encoded({data, count}) ? connection.stop(Trouble::encoded) : count;
}

std::size_t HttpConnection::on_send(char* to, std::size_t size, std::size_t count, void* self) noexcept {
  auto& connection = *static_cast<HttpConnection*>(self);
  connection.progress_ = Clock::now();
  std::size_t bytes = size * count;
  try {
    if (connection.source_ != nullptr) {
      const HttpSource& source = *connection.source_;
      bytes = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, source.size - connection.sent_));
      if (bytes > 0) {
        const auto read = source.read(connection.sent_, std::as_writable_bytes(std::span(to, bytes)));
        if (!read) {
          connection.own_error_ = read.error();
          return CURL_READFUNC_ABORT;
        }
        bytes = *read;
      }
    } else {
      const auto unsent = connection.body_.subspan(static_cast<std::size_t>(connection.sent_));
      bytes = std::min(bytes, unsent.size());
      if (bytes > 0) std::memcpy(to, unsent.data(), bytes);
    }
  } catch (const std::exception&) {
    connection.trouble_ = Trouble::no_memory;
    return CURL_READFUNC_ABORT;
  }
  connection.sent_ += bytes;
  return bytes;
}

int HttpConnection::on_seek(void* self, curl_off_t offset, int origin) noexcept {
  auto& connection = *static_cast<HttpConnection*>(self);
  const bool is_inside = offset >= 0 && static_cast<std::uint64_t>(offset) <= connection.body_bytes();
  if (origin != SEEK_SET || !is_inside) return CURL_SEEKFUNC_FAIL;
  connection.sent_ = static_cast<std::uint64_t>(offset);
  return CURL_SEEKFUNC_OK;
}

}  // namespace kiln::store
