#include "store/remote/redis_store.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <curl/curl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/mutex.hpp"
#include "base/try.hpp"
#include "store/remote/curl.hpp"
#include "store/remote/resp.hpp"
#include "store/remote/secret_file.hpp"

namespace kiln::store {
namespace {

/// What a connection needs to know of the store's URL.
struct RedisAddress {
  /// For messages.
  std::string name;
  std::string curl_url;
  /// Empty: a TCP connection.
  std::string unix_socket;
  /// Empty: the system's.
  std::string certificates;
  std::string user;
  std::string password;
  /// Null: none.
  std::unique_ptr<SecretFile> password_file;
  std::string database;
};

struct RedisCredentials {
  std::string user;
  std::string password;
};

Error redis_error(const RedisAddress& server, ErrorCode code, std::string_view why) {
  return Error(code, fmt::format("the store {} {}", server.name, why));
}

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

/// A pattern of SCAN that matches only this text.
std::string literal_pattern(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    if (std::string_view("*?[]^\\").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

std::string text_of_bulk(const RespAnswer& answer) {
  return {reinterpret_cast<const char*>(answer.bulk.data()), answer.bulk.size()};
}

struct FreeRedisEasy {
  void operator()(CURL* handle) const noexcept { curl_easy_cleanup(handle); }
};
struct FreeRedisMulti {
  void operator()(CURLM* handle) const noexcept { curl_multi_cleanup(handle); }
};

/// The type of answer that a command has.
struct ExpectedAnswer {
  RespAnswer::Kind kind;
  /// Null is an answer too.
  bool or_null = false;
};

/// A connection made by libcurl, which resolves names, tries all addresses and handles TLS. The Redis protocol is
/// ours. For one thread at a time.
class RedisConnection {
 public:
  static Result<std::unique_ptr<RedisConnection>> open(const RedisAddress& server, const CallLimit& limit) {
    auto connection = std::make_unique<RedisConnection>(server);
    KILN_TRY(connection->connect(limit));
    KILN_TRY(connection->greet(limit));
    return connection;
  }

  explicit RedisConnection(const RedisAddress& server) : server_(server) {}
  ~RedisConnection();
  RedisConnection(const RedisConnection&) = delete;
  RedisConnection& operator=(const RedisConnection&) = delete;

  /// Sends commands and passes on their answers in the same order, one for each element of `expected`. An answer
  /// may be an error of the server. Fails if the connection cannot be used further; then answers are missing.
  using Receive = std::function<void(Result<RespAnswer>)>;
  Result<void> call(std::string_view commands, std::span<const ExpectedAnswer> expected, const Receive& receive,
                    const CallLimit& limit);
  /// The same for one command.
  Result<RespAnswer> call(std::string_view command, const ExpectedAnswer& expected, const CallLimit& limit);
  /// Whether the last call received valid answers, and nothing after them.
  bool is_reusable() const noexcept { return reusable_; }
  /// Whether the last call failed because the server had closed the connection.
  bool was_closed() const noexcept { return closed_; }
  /// Whether the server closed the connection, or sent bytes that nobody asked for.
  bool is_stale() const;

 private:
  Result<void> connect(const CallLimit& limit);
  Result<void> greet(const CallLimit& limit);
  bool set_options(const CallLimit& limit);
  Result<void> wait_until_connected(const CallLimit& limit);
  Result<void> wait_for(short events, const CallLimit& limit) const;
  Result<void> send(std::string_view bytes, const CallLimit& limit);
  /// An error of the server is an answer, too.
  Result<RespAnswer> receive(const CallLimit& limit);

  const RedisAddress& server_;
  const pid_t owner_ = getpid();
  RedisCredentials credentials_;
  std::unique_ptr<CURLM, FreeRedisMulti> multi_;
  std::unique_ptr<CURL, FreeRedisEasy> easy_;
  std::array<char, CURL_ERROR_SIZE> curl_error_ = {};
  int socket_ = -1;
  bool reusable_ = false;
  bool closed_ = false;
  std::array<std::byte, std::size_t{64} << 10> buffer_ = {};
  /// The part of the buffer that was received and not read.
  std::span<const std::byte> unread_ = {};
};

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

class RedisStore final : public ObjectStore {
 public:
  RedisStore(RedisAddress server, std::string prefix) : server_(std::move(server)), prefix_(std::move(prefix)) {}

  Result<std::optional<std::vector<std::byte>>> get(const std::string& path, const CallLimit& limit) override {
    return object_in(KILN_TRY(call({"GET", key_of(path)}, {RespAnswer::Kind::bulk, true}, limit)));
  }

  void get_many(std::span<const std::string> paths, const CallLimit& limit, const Receive& receive) override;

  Result<void> put(const std::string& path, std::span<const std::byte> bytes, const CallLimit& limit) override {
    if (bytes.size() > max_object_bytes)
      return redis_error(
          server_, ErrorCode::unsupported,
          fmt::format("takes objects of at most {} bytes, and this one has {}", max_object_bytes, bytes.size()));
    const std::string_view value(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    KILN_TRY(call({"SET", key_of(path), value}, {RespAnswer::Kind::text}, limit));
    return {};
  }

  Result<bool> has(const std::string& path, const CallLimit& limit) override {
    return KILN_TRY(call({"EXISTS", key_of(path)}, {RespAnswer::Kind::integer}, limit)).integer > 0;
  }

  Result<void> remove(const std::string& path, const CallLimit& limit) override {
    KILN_TRY(call({"DEL", key_of(path)}, {RespAnswer::Kind::integer}, limit));
    return {};
  }

  Result<std::vector<std::string>> list(const std::string& folder, const CallLimit& limit) override;
  Result<std::vector<std::string>> list_all(const std::string& folder, const CallLimit& limit) override;

  bool has_leases() const noexcept override { return true; }
  Result<LeaseAnswer> take_lease(const Lease& lease, bool only_ask, const CallLimit& limit) override;
  Result<void> release_lease(const Lease& lease, const CallLimit& limit) override;

 private:
  using Idle = std::vector<std::unique_ptr<RedisConnection>>;

  std::string key_of(const std::string& path) const { return prefix_ + "/" + path; }
  std::string key_of(const Lease& lease) const { return prefix_ + "/lease/" + lease.path; }
  static std::optional<std::vector<std::byte>> object_in(RespAnswer answer) {
    if (answer.kind == RespAnswer::Kind::null) return std::nullopt;
    return std::move(answer.bulk);
  }
  /// RedisConnection::call() on an idle connection or a new one. Commands may be sent a second time, if the server
  /// had closed the idle connection.
  Result<void> call(const std::string& commands, std::span<const ExpectedAnswer> expected,
                    const RedisConnection::Receive& receive, const CallLimit& limit) KILN_EXCLUDES(mutex_);
  Result<RespAnswer> call(std::initializer_list<std::string_view> words, const ExpectedAnswer& expected,
                          const CallLimit& limit);
  /// Null if there is none.
  std::unique_ptr<RedisConnection> take_idle() KILN_EXCLUDES(mutex_);
  void put_back(std::unique_ptr<RedisConnection> connection) KILN_EXCLUDES(mutex_);
  void close_idle() KILN_EXCLUDES(mutex_);

  const RedisAddress server_;
  const std::string prefix_;
  base::Mutex mutex_;
  Idle idle_ KILN_GUARDED_BY(mutex_);
};

Result<void> RedisStore::call(const std::string& commands, std::span<const ExpectedAnswer> expected,
                              const RedisConnection::Receive& receive, const CallLimit& limit) {
  auto connection = take_idle();
  if (connection) {
    bool answered = false;
    const auto note = [&](Result<RespAnswer> answer) {
      answered = true;
      receive(std::move(answer));
    };
    auto called = connection->call(commands, expected, note, limit);
    const bool was_closed = connection->was_closed();
    // The other connections share the fate of this one if the server was restarted, or cannot be reached any
    // longer.
    if (was_closed || (!called && called.error().code() == ErrorCode::timed_out)) close_idle();
    put_back(std::move(connection));
    if (!was_closed || answered) return called;
  }
  connection = KILN_TRY(RedisConnection::open(server_, limit.of_part()));
  auto called = connection->call(commands, expected, receive, limit);
  put_back(std::move(connection));
  return called;
}

Result<RespAnswer> RedisStore::call(std::initializer_list<std::string_view> words, const ExpectedAnswer& expected,
                                    const CallLimit& limit) {
  Result<RespAnswer> answer = RespAnswer();
  KILN_TRY(call(
      encode_resp_command(words), {&expected, 1},
      [&](Result<RespAnswer> received) { answer = std::move(received); }, limit));
  return answer;
}

void RedisStore::get_many(std::span<const std::string> paths, const CallLimit& limit, const Receive& receive) {
  // The commands fit into the buffers of a connection, so the server takes all of them before it is read from.
  constexpr std::size_t most_commands = 256;
  for (std::size_t begin = 0; begin < paths.size(); begin += most_commands) {
    const auto part = paths.subspan(begin, std::min(most_commands, paths.size() - begin));
    std::string commands;
    for (const std::string& path : part) commands += encode_resp_command({"GET", key_of(path)});
    const std::vector<ExpectedAnswer> expected(part.size(), {RespAnswer::Kind::bulk, true});
    std::size_t place = begin;
    const auto pass_on = [&](Result<RespAnswer> answer) {
      if (answer)
        receive(place++, object_in(*std::move(answer)));
      else
        receive(place++, std::move(answer).error());
    };
    const auto called = call(commands, expected, pass_on, limit);
    if (called) continue;
    while (place < paths.size()) receive(place++, called.error());
    return;
  }
}

Result<LeaseAnswer> RedisStore::take_lease(const Lease& lease, bool only_ask, const CallLimit& limit) {
  using Kind = RespAnswer::Kind;
  const std::string key = key_of(lease);
  const std::string duration = std::to_string(lease.duration.count());
  // The holder is asked for, because the answer to a SET that is sent a second time would be that somebody has the
  // lease. The object is looked up last: a holder puts it before it gives the lease back.
  const std::string commands =
      (only_ask ? std::string() : encode_resp_command({"SET", key, lease.token, "NX", "PX", duration})) +
      encode_resp_command({"GET", key}) + encode_resp_command({"EXISTS", key_of(lease.path)});
  const std::array<ExpectedAnswer, 3> expected = {ExpectedAnswer{Kind::text, true},
                                                  ExpectedAnswer{Kind::bulk, true}, ExpectedAnswer{Kind::integer}};
  std::vector<Result<RespAnswer>> answers;
  KILN_TRY(call(
      commands, std::span(expected).subspan(only_ask ? 1 : 0),
      [&](Result<RespAnswer> answer) { answers.push_back(std::move(answer)); }, limit));
  LeaseAnswer answer{.has_object = answers.back() && answers.back()->integer > 0};
  answers.pop_back();
  for (auto& refused : answers) {
    if (refused) continue;
    // A server that gives no leases may still have the object.
    if (answer.has_object) return answer;
    return Error(ErrorCode::unsupported, refused.error().message());
  }
  const auto holder = object_in(*std::move(answers.back()));
  const bool is_ours = holder && std::ranges::equal(*holder, std::as_bytes(std::span(lease.token)));
  answer.is_taken = is_ours && !only_ask;
  answer.is_held = holder && !is_ours;
  return answer;
}

Result<void> RedisStore::release_lease(const Lease& lease, const CallLimit& limit) {
  constexpr std::string_view script =
      "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";
  KILN_TRY(call({"EVAL", script, "1", key_of(lease), lease.token}, {RespAnswer::Kind::integer}, limit));
  return {};
}

Result<std::vector<std::string>> RedisStore::list(const std::string& folder, const CallLimit& limit) {
  auto names = KILN_TRY(list_all(folder, limit));
  for (std::string& name : names) {
    name.erase(0, folder.size() + 1);
    name.resize(std::min(name.find('/'), name.size()));
  }
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

Result<std::vector<std::string>> RedisStore::list_all(const std::string& folder, const CallLimit& limit) {
  constexpr std::size_t most_keys = 2'000'000;
  const std::string begin = key_of(folder) + "/";
  const std::string pattern = literal_pattern(begin) + "*";
  std::vector<std::string> paths;
  std::string cursor = "0";
  do {
    auto answer =
        KILN_TRY(call({"SCAN", cursor, "MATCH", pattern, "COUNT", "10000"}, {RespAnswer::Kind::array}, limit));
    if (answer.items.size() != 2 || answer.items[0].kind != RespAnswer::Kind::bulk)
      return redis_error(server_, ErrorCode::io, "sent an answer of an unexpected type");
    cursor = text_of_bulk(answer.items[0]);
    for (const RespAnswer& item : answer.items[1].items)
      if (std::string key = text_of_bulk(item); key.starts_with(begin))
        paths.push_back(key.substr(prefix_.size() + 1));
    if (paths.size() > most_keys)
      return redis_error(server_, ErrorCode::unsupported, fmt::format("lists more than {} keys", most_keys));
  } while (cursor != "0");
  // SCAN may return a key more than once.
  std::ranges::sort(paths);
  paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
  return paths;
}

std::unique_ptr<RedisConnection> RedisStore::take_idle() {
  for (;;) {
    std::unique_ptr<RedisConnection> connection;
    {
      const base::MutexLock lock(mutex_);
      if (idle_.empty()) return nullptr;
      connection = std::move(idle_.back());
      idle_.pop_back();
    }
    if (!connection->is_stale()) return connection;
  }
}

void RedisStore::put_back(std::unique_ptr<RedisConnection> connection) {
  constexpr std::size_t most_idle = 16;
  if (!connection->is_reusable()) return;
  const base::MutexLock lock(mutex_);
  if (idle_.size() < most_idle) idle_.push_back(std::move(connection));
}

void RedisStore::close_idle() {
  Idle closed;
  const base::MutexLock lock(mutex_);
  closed.swap(idle_);
}

}  // namespace

Result<std::unique_ptr<ObjectStore>> make_redis_store(const StoreUrl& url) {
  KILN_TRY(start_curl());
  const bool on_unix_socket = url.scheme == StoreUrl::Scheme::redis_unix;
  constexpr int default_port = 6379;
  RedisAddress server = {
      .name = url.display(),
      .curl_url = fmt::format("{}://{}:{}/", url.scheme == StoreUrl::Scheme::rediss ? "https" : "http",
                              on_unix_socket ? "localhost" : url.host, url.port != 0 ? url.port : default_port),
      .unix_socket = on_unix_socket ? url.path : "",
      .certificates = url.option("ca"),
      .user = url.user,
      .password = url.password,
      .password_file = nullptr,
      .database = on_unix_socket ? url.option("db") : url.path,
  };
  if (server.database.find_first_not_of('0') == std::string::npos) server.database.clear();
  if (server.unix_socket.size() >= sizeof(sockaddr_un::sun_path))
    return redis_error(server, ErrorCode::invalid_request, "has a path that is too long for a Unix socket");
  if (!server.certificates.empty())
    if (const auto usable = check_certificates(server.certificates); !usable)
      return redis_error(server, ErrorCode::invalid_request, usable.error().message());
  if (const std::string file = url.option("password_file"); !file.empty()) {
    if (!server.password.empty())
      return redis_error(server, ErrorCode::invalid_request,
                         "has both a password and a password_file; use one of them");
    auto secret = SecretFile::open(file);
    if (!secret) return redis_error(server, ErrorCode::invalid_request, secret.error().message());
    server.password_file = *std::move(secret);
  }
  const std::string prefix = url.option("prefix");
  return std::unique_ptr<ObjectStore>(
      std::make_unique<RedisStore>(std::move(server), prefix.empty() ? "kiln" : prefix));
}

}  // namespace kiln::store
