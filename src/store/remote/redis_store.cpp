#include "store/remote/redis_store.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sys/un.h>

#include "base/mutex.hpp"
#include "base/try.hpp"
#include "store/remote/curl.hpp"
#include "store/remote/redis_connection.hpp"
#include "store/remote/resp.hpp"
#include "store/remote/secret_file.hpp"

namespace kiln::store {
namespace {

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
    if (paths.size() > max_listed_names)
      return redis_error(server_, ErrorCode::io, fmt::format("lists more than {} keys", max_listed_names));
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
