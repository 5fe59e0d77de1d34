#include "store/remote/redis_connection.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "base/try.hpp"
#include "store/remote/curl.hpp"

namespace kiln::store {
namespace {

Error redis_timed_out(const RedisAddress& server) {
  return redis_error(server, ErrorCode::timed_out, "did not answer within the time limit");
}

Error redis_cancelled(const RedisAddress& server) {
  return redis_error(server, ErrorCode::cancelled, "was not waited for: the call was cancelled");
}

/// For poll(): 0 at the deadline, -1 without one.
int poll_time(const CallLimit& limit) {
  if (limit.deadline == std::chrono::steady_clock::time_point::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(limit.deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<std::chrono::milliseconds::rep>(left.count(), 0, INT_MAX));
}

void replace_each(std::string& text, std::string_view what, std::string_view with) {
  if (what.empty()) return;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size()))
    text.replace(at, what.size(), with);
}

/// What the server wrote, fit for a log: a server may repeat the password that it refuses, or send anything else.
std::string printable_answer(std::string text, const RedisCredentials& credentials) {
  constexpr std::size_t longest = 200;
  replace_each(text, credentials.password, "***");
  replace_each(text, credentials.user, "***");
  if (text.size() > longest) text.resize(longest);
  return printable_text(std::move(text));
}

bool is_redis_denial(std::string_view text) {
  const std::string_view code = text.substr(0, text.find(' '));
  return code == "NOAUTH" || code == "WRONGPASS" || code == "NOPERM" || code == "READONLY" || code == "DENIED" ||
         // What older servers, and servers without a password, answer to AUTH.
         text.starts_with("ERR invalid password") || text.starts_with("ERR AUTH ") ||
         text.starts_with("ERR Client sent AUTH");
}

Error refused_command(const RedisAddress& server, const RespAnswer& answer, const RedisCredentials& credentials) {
  const std::string text = printable_answer(answer.text, credentials);
  if (is_redis_denial(answer.text))
    // A wrong password may be corrected, and a replica become the master, at any time.
    return redis_error(server, answer.text.starts_with("NOPERM") ? ErrorCode::denied : ErrorCode::io,
                       fmt::format("refuses access: {}; check the user, the password and the user's rights", text));
  if (answer.text.starts_with("ERR Protocol error: invalid bulk length"))
    return redis_error(server, ErrorCode::unsupported,
                       fmt::format("takes no object of this size: {}; raise proto-max-bulk-len", text));
  return redis_error(server, ErrorCode::io, fmt::format("answered with an error: {}", text));
}

}  // namespace

Error redis_error(const RedisAddress& server, ErrorCode code, std::string_view why) {
  return Error(code, fmt::format("the store {} {}", server.name, why));
}

Result<std::unique_ptr<RedisConnection>> RedisConnection::open(const RedisAddress& server, const CallLimit& limit) {
  auto connection = std::make_unique<RedisConnection>(server);
  KILN_TRY(connection->connect(limit));
  KILN_TRY(connection->greet(limit));
  return connection;
}

RedisConnection::RedisConnection(const RedisAddress& server) : server_(server), owner_(getpid()) {}

RedisConnection::~RedisConnection() {
  if (getpid() == owner_) {
    if (multi_ && easy_) curl_multi_remove_handle(multi_.get(), easy_.get());
    return;
  }
  // In a forked child: libcurl would end the encrypted stream, which the parent still uses.
  if (socket_ >= 0) ::close(socket_);
  static_cast<void>(easy_.release());
  static_cast<void>(multi_.release());
}

bool RedisConnection::set_options(const CallLimit& limit) {
  const auto set = [this](CURLoption option, auto value) {
    return curl_easy_setopt(easy_.get(), option, value) == CURLE_OK;
  };
  // libcurl divides this time between the addresses of a name.
  const int left = poll_time(limit);
  bool all = set(CURLOPT_URL, server_.curl_url.c_str()) && set(CURLOPT_PROTOCOLS_STR, "http,https") &&
             set(CURLOPT_CONNECT_ONLY, 1L) && set(CURLOPT_NOSIGNAL, 1L) &&
             set(CURLOPT_ERRORBUFFER, curl_error_.data()) && set(CURLOPT_TCP_NODELAY, 1L) &&
             set(CURLOPT_TCP_KEEPALIVE, 1L) && set(CURLOPT_SSL_ENABLE_ALPN, 0L) &&
             set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2)) &&
             // The proxies of the environment are for HTTP.
             set(CURLOPT_PROXY, "") && (left <= 0 || set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(left))) &&
             // Do not wait for getaddrinfo(), which has no deadline, when the handle is freed.
             set(CURLOPT_QUICK_EXIT, 1L);
  if (!server_.unix_socket.empty()) all = all && set(CURLOPT_UNIX_SOCKET_PATH, server_.unix_socket.c_str());
  if (!server_.certificates.empty())
    all = all && set(CURLOPT_CAINFO, server_.certificates.c_str()) &&
          // Trust no others: by default libcurl adds those of the system.
          set(CURLOPT_CAPATH, static_cast<const char*>(nullptr));
  return all;
}

Result<void> RedisConnection::connect(const CallLimit& limit) {
  easy_.reset(curl_easy_init());
  multi_.reset(curl_multi_init());
  // A handle of its own for each connection: a multi handle is for one thread at a time.
  if (!easy_ || !multi_ || !set_options(limit) || curl_multi_add_handle(multi_.get(), easy_.get()) != CURLM_OK)
    return redis_error(server_, ErrorCode::io, "cannot be used: libcurl cannot be set up");
  KILN_TRY(wait_until_connected(limit));

  int left = 0;
  const CURLMsg* message = curl_multi_info_read(multi_.get(), &left);
  const CURLcode result = message != nullptr ? message->data.result : CURLE_FAILED_INIT;
  if (result == CURLE_OPERATION_TIMEDOUT) return redis_timed_out(server_);
  if (result != CURLE_OK)
    return redis_error(
        server_, ErrorCode::io,
        fmt::format("cannot be reached: {}",
                    printable_text(curl_error_[0] != '\0' ? curl_error_.data() : curl_easy_strerror(result))));
  curl_socket_t socket = CURL_SOCKET_BAD;
  if (curl_easy_getinfo(easy_.get(), CURLINFO_ACTIVESOCKET, &socket) != CURLE_OK || socket == CURL_SOCKET_BAD)
    return redis_error(server_, ErrorCode::io, "closed the connection");
  socket_ = socket;
  return {};
}

Result<void> RedisConnection::wait_until_connected(const CallLimit& limit) {
  constexpr int longest_wait = 1000;
  for (int running = 1;;) {
    if (curl_multi_perform(multi_.get(), &running) != CURLM_OK)
      return redis_error(server_, ErrorCode::io, "cannot be reached: libcurl failed");
    if (running == 0) return {};
    const int left = poll_time(limit);
    if (left == 0) return redis_timed_out(server_);
    curl_waitfd cancelled = {limit.cancelled, CURL_WAIT_POLLIN, 0};
    curl_multi_poll(multi_.get(), &cancelled, limit.cancelled >= 0 ? 1 : 0,
                    left < 0 ? longest_wait : std::min(left, longest_wait), nullptr);
    if (cancelled.revents != 0) return redis_cancelled(server_);
  }
}

Result<void> RedisConnection::greet(const CallLimit& limit) {
  using Kind = RespAnswer::Kind;
  credentials_ = {server_.user, server_.password};
  if (server_.password_file != nullptr) {
    auto password = server_.password_file->read();
    if (!password) return redis_error(server_, ErrorCode::io, password.error().message());
    credentials_.password = *std::move(password);
  }
  const bool with_password = !credentials_.user.empty() || !credentials_.password.empty();
  if (with_password)
    KILN_TRY(call(credentials_.user.empty()
                      ? encode_resp_command({"AUTH", credentials_.password})
                      : encode_resp_command({"AUTH", credentials_.user, credentials_.password}),
                  {Kind::text}, limit));
  if (!server_.database.empty())
    KILN_TRY(call(encode_resp_command({"SELECT", server_.database}), {Kind::text}, limit));
  else if (!with_password) {
    // A server that wants a password closes the connection in the middle of a long command, and its answer may be
    // lost then.
    KILN_TRY(send(encode_resp_command({"PING"}), limit));
    const auto answer = KILN_TRY(receive(limit));
    // The other commands may be allowed in spite of these.
    const bool is_minor = answer.text.starts_with("NOPERM ") || answer.text.starts_with("MISCONF ");
    if (answer.kind == Kind::error && !is_minor) return refused_command(server_, answer, credentials_);
  }
  return {};
}

bool RedisConnection::is_stale() const {
  pollfd item = {socket_, POLLIN, 0};
  return ::poll(&item, 1, 0) != 0;
}

Result<void> RedisConnection::wait_for(short events, const CallLimit& limit) const {
  // poll() ignores a descriptor of -1.
  std::array<pollfd, 2> items = {pollfd{socket_, events, 0}, pollfd{limit.cancelled, POLLIN, 0}};
  for (;;) {
    const int left = poll_time(limit);
    if (left == 0) return redis_timed_out(server_);
    if (::poll(items.data(), items.size(), left) < 0 && errno != EINTR)
      return redis_error(server_, ErrorCode::io, fmt::format("cannot be waited for: {}", std::strerror(errno)));
    if (items[1].revents != 0) return redis_cancelled(server_);
    if (items[0].revents != 0) return {};
  }
}

Result<void> RedisConnection::call(std::string_view commands, std::span<const ExpectedAnswer> expected,
                                   const Receive& receive, const CallLimit& limit) {
  reusable_ = false;
  unread_ = {};
  KILN_TRY(send(commands, limit));
  for (const auto& [kind, or_null] : expected) {
    auto answer = KILN_TRY(this->receive(limit));
    if (answer.kind == RespAnswer::Kind::error) {
      receive(refused_command(server_, answer, credentials_));
    } else if (answer.kind == kind || (or_null && answer.kind == RespAnswer::Kind::null)) {
      receive(std::move(answer));
    } else {
      return redis_error(server_, ErrorCode::io, "sent an answer of an unexpected type");
    }
  }
  reusable_ = unread_.empty();
  return {};
}

Result<RespAnswer> RedisConnection::call(std::string_view command, const ExpectedAnswer& expected,
                                         const CallLimit& limit) {
  Result<RespAnswer> answer = RespAnswer();
  KILN_TRY(call(
      command, {&expected, 1}, [&](Result<RespAnswer> received) { answer = std::move(received); }, limit));
  return answer;
}

Result<void> RedisConnection::send(std::string_view bytes, const CallLimit& limit) {
  while (!bytes.empty()) {
    if (poll_time(limit) == 0) return redis_timed_out(server_);
    std::size_t sent = 0;
    const CURLcode result = curl_easy_send(easy_.get(), bytes.data(), bytes.size(), &sent);
    if (result == CURLE_AGAIN) {
      KILN_TRY(wait_for(POLLOUT, limit.of_part()));
      continue;
    }
    // The server closed the connection; it may have sent the reason before.
    if (result != CURLE_OK) return {};
    bytes.remove_prefix(sent);
  }
  return {};
}

Result<RespAnswer> RedisConnection::receive(const CallLimit& limit) {
  RespParser parser;
  for (;;) {
    const auto used = parser.consume(unread_);
    if (!used) return redis_error(server_, used.error().code(), "sent " + used.error().message());
    unread_ = unread_.subspan(*used);
    if (parser.is_complete()) return std::move(parser).take();
    if (poll_time(limit) == 0) return redis_timed_out(server_);
    std::size_t got = 0;
    const CURLcode result = curl_easy_recv(easy_.get(), buffer_.data(), buffer_.size(), &got);
    if (result == CURLE_AGAIN) {
      KILN_TRY(wait_for(POLLIN, limit.of_part()));
      continue;
    }
    if (result != CURLE_OK || got == 0) {
      closed_ = true;
      return redis_error(server_, ErrorCode::io, "closed the connection before its answer was complete");
    }
    unread_ = std::span(buffer_).first(got);
  }
}

}  // namespace kiln::store
