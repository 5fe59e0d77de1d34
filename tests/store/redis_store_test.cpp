#include "store/remote/redis_store.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fakes/child.hpp"
#include "fakes/files.hpp"
#include "fakes/servers.hpp"
#include "fakes/system_certificates.hpp"
#include "fakes/temporary_folder.hpp"
#include "store/remote/resp.hpp"

namespace kiln::store {
namespace {

using namespace std::chrono_literals;
using fakes::bytes_of;
using fakes::text_of;

CallLimit ending_in(std::chrono::milliseconds time) { return {std::chrono::steady_clock::now() + time}; }
CallLimit soon() { return ending_in(20s); }

std::unique_ptr<ObjectStore> redis_at(const std::string& url) {
  return make_redis_store(parse_store_url(url).value()).value();
}

/// The object as text; "nothing", or the error's code.
std::string fetch(ObjectStore& store, const std::string& path, const CallLimit& limit = soon()) {
  const auto object = store.get(path, limit);
  if (!object) return std::string(to_string(object.error().code()));
  return *object ? text_of(**object) : "nothing";
}

std::string long_text(std::size_t size) {
  std::string text;
  text.resize(size, 'x');
  return text;
}

/// "ok", or the error's code.
std::string keep(ObjectStore& store, const std::string& path, const std::string& text,
                 const CallLimit& limit = soon()) {
  const auto kept = store.put(path, bytes_of(text), limit);
  return kept ? "ok" : std::string(to_string(kept.error().code()));
}

sockaddr_in on_loopback(std::uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

class Socket {
 public:
  explicit Socket(int type = SOCK_STREAM) : Socket(::socket(AF_INET, type | SOCK_CLOEXEC, 0), {}) {}
  Socket(int descriptor, std::nullptr_t /*adopts*/) : descriptor_(descriptor) {
    if (descriptor_ < 0) std::abort();
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() { close(descriptor_); }

  int get() const noexcept { return descriptor_; }
  int connect_to(std::uint16_t port) const {
    const sockaddr_in address = on_loopback(port);
    return connect(descriptor_, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }
  /// Listens on a free port and returns it.
  std::uint16_t listen_with(int backlog) const {
    sockaddr_in address = on_loopback(0);
    socklen_t size = sizeof address;
    if (bind(descriptor_, reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
        listen(descriptor_, backlog) != 0 ||
        getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
      std::abort();
    return ntohs(address.sin_port);
  }
  /// Whether all of it was sent.
  bool send(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t sent = ::send(descriptor_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  /// What arrived; empty at the end.
  std::string receive() const {
    std::array<char, 4096> bytes{};
    const ssize_t got = recv(descriptor_, bytes.data(), bytes.size(), 0);
    return {bytes.data(), got > 0 ? static_cast<std::size_t>(got) : 0};
  }

 private:
  int descriptor_;
};

/// The answer of a real server to a command of its administrator.
std::string administer(std::uint16_t port, std::initializer_list<std::string_view> words) {
  const Socket socket;
  if (socket.connect_to(port) != 0 || !socket.send(encode_resp_command(words))) return "no connection";
  return socket.receive();
}

/// A server on loopback that answers what a test tells it to, one connection at a time.
class ScriptedServer {
 public:
  using Answer = std::function<void(const Socket& client, int connection)>;

  explicit ScriptedServer(Answer answer) : answer_(std::move(answer)), port_(listener_.listen_with(16)) {
    thread_ = std::thread([this] { serve(); });
  }
  /// Sends `text` after each command.
  explicit ScriptedServer(const std::string& text)
      : ScriptedServer([text](const Socket& client, int /*connection*/) {
          while (!client.receive().empty() && client.send(text)) continue;
        }) {}
  ~ScriptedServer() {
    ended_ = true;
    shutdown(listener_.get(), SHUT_RDWR);
    {
      const std::lock_guard lock(mutex_);
      if (client_ != nullptr) shutdown(client_->get(), SHUT_RDWR);
    }
    thread_.join();
  }
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  std::string url(const std::string& credentials = {}) const {
    return "redis://" + credentials + "127.0.0.1:" + std::to_string(port_);
  }
  int connections() const { return connections_; }

 private:
  void serve() {
    while (!ended_) {
      const int accepted = accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
      if (accepted < 0) return;
      const Socket client(accepted, nullptr);
      set_client(&client);
      if (!ended_) answer_(client, connections_++);
      set_client(nullptr);
    }
  }
  void set_client(const Socket* client) {
    const std::lock_guard lock(mutex_);
    client_ = client;
  }

  const Answer answer_;
  const Socket listener_;
  const std::uint16_t port_;
  std::atomic<bool> ended_ = false;
  std::atomic<int> connections_ = 0;
  std::mutex mutex_;
  const Socket* client_ = nullptr;
  std::thread thread_;
};

/// Answers the greeting of a connection, and then each command with `text`.
ScriptedServer::Answer greets_and_says(const std::string& text) {
  return [text](const Socket& client, int /*connection*/) {
    if (client.receive().empty() || !client.send("+PONG\r\n")) return;
    while (!client.receive().empty() && client.send(text)) continue;
  };
}

/// Answers the greeting, sends `text` after the first command, and closes the connection.
ScriptedServer::Answer greets_says_and_closes(const std::string& text) {
  return [text](const Socket& client, int /*connection*/) {
    if (client.receive().empty() || !client.send("+PONG\r\n") || client.receive().empty()) return;
    client.send(text);
  };
}

class RedisStore : public testing::Test {
 protected:
  void SetUp() override {
    if (!fakes::is_installed("redis-server")) GTEST_SKIP() << "redis-server is not installed";
  }
};

TEST_F(RedisStore, ReturnsWhatWasPut) {
  const fakes::RedisServer server;
  const auto store = redis_at(server.url());
  const std::string binary("\r\n\0$-1\r\n\xff", 9);
  EXPECT_EQ(keep(*store, "3/ab/cd", binary), "ok");
  EXPECT_EQ(fetch(*store, "3/ab/cd"), binary);
  EXPECT_EQ(fetch(*store, "3/ab/ce"), "nothing");
  EXPECT_EQ(keep(*store, "3/ab/cd", "new"), "ok");
  EXPECT_EQ(fetch(*redis_at(server.url()), "3/ab/cd"), "new");
}

TEST_F(RedisStore, KnowsWhichObjectsExistAndRemovesThem) {
  const fakes::RedisServer server;
  const auto store = redis_at(server.url());
  EXPECT_FALSE(store->has("3/ab", soon()).value());
  EXPECT_EQ(keep(*store, "3/ab", "x"), "ok");
  EXPECT_TRUE(store->has("3/ab", soon()).value());
  EXPECT_TRUE(store->remove("3/ab", soon()).ok());
  EXPECT_TRUE(store->remove("3/ab", soon()).ok()) << "an absent object is no error";
  EXPECT_FALSE(store->has("3/ab", soon()).value());
}

TEST_F(RedisStore, KeepsEmptyAndLargeObjects) {
  const fakes::RedisServer server;
  const auto store = redis_at(server.url());
  std::string large = long_text(20'000'000);
  for (std::size_t i = 0; i < large.size(); i += 997) large[i] = static_cast<char>(i);
  EXPECT_EQ(keep(*store, "empty", ""), "ok");
  EXPECT_EQ(keep(*store, "large", large), "ok");
  EXPECT_EQ(fetch(*store, "empty"), "");
  EXPECT_TRUE(fetch(*store, "large") == large);
}

TEST_F(RedisStore, RefusesAnObjectThatIsTooLong) {
  const auto store = redis_at("redis://127.0.0.1:1");
  const std::byte first{};
  const auto put = store->put("x", std::span(&first, max_object_bytes + 1), soon());
  ASSERT_FALSE(put.ok());
  EXPECT_EQ(put.error().code(), ErrorCode::unsupported);
  EXPECT_NE(put.error().message().find(std::to_string(max_object_bytes)), std::string::npos);
}

TEST_F(RedisStore, SaysThatAnObjectIsTooLongForTheServer) {
  const fakes::RedisServer server({.arguments = {"--proto-max-bulk-len", "1mb"}});
  const auto store = redis_at(server.url());
  for (int i = 0; i < 20; ++i) EXPECT_EQ(keep(*store, "a", long_text(8'000'000)), "unsupported") << i;
  EXPECT_EQ(keep(*store, "a", long_text(1'000'000)), "ok");
}

TEST_F(RedisStore, FailsAtOnceIfTheCertificatesCannotBeRead) {
  const auto store = make_redis_store(parse_store_url("rediss://127.0.0.1:1?ca=/nonexistent/ca.pem").value());
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.error().code(), ErrorCode::invalid_request);
  EXPECT_NE(store.error().message().find("/nonexistent/ca.pem"), std::string::npos) << store.error().message();
}

TEST_F(RedisStore, KeepsObjectsUnderThePrefixAndInTheDatabaseOfItsUrl) {
  const fakes::RedisServer server;
  const std::string address = "redis://127.0.0.1:" + std::to_string(server.port());
  EXPECT_EQ(keep(*redis_at(address), "a", "default"), "ok");
  EXPECT_EQ(keep(*redis_at(address + "?prefix=team"), "a", "prefix"), "ok");
  EXPECT_EQ(keep(*redis_at(address + "/3"), "a", "database"), "ok");
  EXPECT_EQ(fetch(*redis_at(address + "/0?prefix=kiln"), "a"), "default");
  EXPECT_EQ(fetch(*redis_at(address + "?prefix=team"), "a"), "prefix");
  EXPECT_EQ(fetch(*redis_at(address + "/3"), "a"), "database");
  EXPECT_EQ(administer(server.port(), {"GET", "kiln/a"}), "$7\r\ndefault\r\n");
  EXPECT_EQ(fetch(*redis_at(address + "/99"), "a"), "io") << "there are 16 databases";
}

TEST_F(RedisStore, NeedsThePassword) {
  const fakes::RedisServer server({.password = "correct-horse"});
  const auto store = redis_at(server.url());
  EXPECT_EQ(keep(*store, "a", "x"), "ok");
  EXPECT_EQ(fetch(*store, "a"), "x");

  const std::string port = std::to_string(server.port());
  for (const std::string credentials : {"", ":battery-staple@", "stranger:correct-horse@", "stranger@"}) {
    const auto other = redis_at(fmt::format("redis://{}127.0.0.1:{}", credentials, port));
    const auto get = other->get("a", soon());
    ASSERT_FALSE(get.ok()) << credentials;
    EXPECT_EQ(get.error().code(), ErrorCode::io) << get.error().message();
    EXPECT_NE(get.error().message().find("refuses access"), std::string::npos) << get.error().message();
    for (const char* secret : {"battery-staple", "correct-horse", "stranger"})
      EXPECT_EQ(get.error().message().find(secret), std::string::npos) << get.error().message();
    EXPECT_NE(get.error().message().find("127.0.0.1:" + port), std::string::npos) << get.error().message();
    EXPECT_EQ(keep(*other, "a", long_text(5'000'000)), "io") << "the server reads no long commands";
  }
}

TEST_F(RedisStore, RefusesToGoOnIfTheServerHasNoPassword) {
  const fakes::RedisServer server;
  EXPECT_EQ(fetch(*redis_at("redis://:secret@127.0.0.1:" + std::to_string(server.port())), "a"), "io");
}

TEST_F(RedisStore, ReadsThePasswordFileAgainForNewConnections) {
  const fakes::TemporaryFolder folder;
  const fakes::RedisServer server({.password = "first"});
  const auto file = folder.path() / "password";
  fakes::write_file(file, "first\n");
  const std::string url = "redis://127.0.0.1:" + std::to_string(server.port()) + "?password_file=" + file.string();
  const auto store = redis_at(url);
  EXPECT_EQ(keep(*store, "a", "x"), "ok");

  const auto administrator = Socket();
  ASSERT_EQ(administrator.connect_to(server.port()), 0);
  for (const auto& command :
       {encode_resp_command({"AUTH", "first"}), encode_resp_command({"CONFIG", "SET", "requirepass", "second"}),
        encode_resp_command({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"})}) {
    ASSERT_TRUE(administrator.send(command));
    administrator.receive();
  }
  EXPECT_EQ(fetch(*store, "a"), "io");
  fakes::write_file(file, "second");
  const CallLimit end = soon();
  while (fetch(*store, "a") != "x") ASSERT_LT(std::chrono::steady_clock::now(), end.deadline);
}

TEST_F(RedisStore, FailsAtOnceIfThePasswordFileCannotBeUsed) {
  const fakes::TemporaryFolder folder;
  fakes::write_file(folder.path() / "empty", "\n");
  fakes::write_file(folder.path() / "long", std::string(100'000, 'x'));
  ASSERT_EQ(mkfifo((folder.path() / "fifo").c_str(), 0600), 0);
  for (const char* name : {"missing", "empty", "long", "fifo", "."}) {
    const auto url =
        parse_store_url("redis://127.0.0.1:1?password_file=" + (folder.path() / name).string()).value();
    const auto store = make_redis_store(url);
    ASSERT_FALSE(store.ok()) << name;
    EXPECT_EQ(store.error().code(), ErrorCode::invalid_request) << name;
  }
  fakes::write_file(folder.path() / "fine", "x");
  const std::string both = "redis://:secret@127.0.0.1:1?password_file=" + (folder.path() / "fine").string();
  EXPECT_EQ(make_redis_store(parse_store_url(both).value()).error().code(), ErrorCode::invalid_request);
}

TEST_F(RedisStore, IsDeniedToPutByAUserWhoMayOnlyRead) {
  const fakes::RedisServer server;
  const std::string port = std::to_string(server.port());
  EXPECT_EQ(keep(*redis_at(server.url()), "a", "x"), "ok");
  EXPECT_EQ(
      administer(server.port(), {"ACL", "SETUSER", "reader", "on", ">look-only", "~kiln/*", "+get", "+exists"}),
      "+OK\r\n");
  const auto reader = redis_at("redis://reader:look-only@127.0.0.1:" + port);
  EXPECT_EQ(fetch(*reader, "a"), "x");
  const auto put = reader->put("a", bytes_of("y"), soon());
  ASSERT_FALSE(put.ok());
  EXPECT_EQ(put.error().code(), ErrorCode::denied) << put.error().message();
  EXPECT_EQ(fetch(*reader, "a"), "x") << "the connection is still in order";
  EXPECT_EQ(administer(server.port(), {"ACL", "SETUSER", "default", "-ping", "-select"}), "+OK\r\n");
  EXPECT_EQ(fetch(*redis_at(server.url()), "a"), "x") << "a user needs no right to greet";
}

TEST_F(RedisStore, IsReachedOverAUnixSocketIpv6AndTls) {
  using fakes::Address;
  for (const auto& options : {fakes::RedisServer::Options{.address = Address::unix_socket, .password = "secret"},
                              fakes::RedisServer::Options{.address = Address::ipv6, .password = "secret"},
                              fakes::RedisServer::Options{.tls = true, .password = "secret"}}) {
    const fakes::RedisServer server(options);
    const auto store = redis_at(server.url(options.address == Address::unix_socket ? "db=2" : ""));
    const std::string large(3'000'000, 'x');
    EXPECT_EQ(keep(*store, "a", "x"), "ok") << server.url();
    EXPECT_EQ(fetch(*store, "a"), "x") << server.url();
    EXPECT_EQ(keep(*store, "large", large), "ok");
    EXPECT_TRUE(fetch(*store, "large") == large);
  }
  const std::string long_path(200, 'x');
  EXPECT_EQ(make_redis_store(parse_store_url("redis+unix:///" + long_path).value()).error().code(),
            ErrorCode::invalid_request);
}

TEST_F(RedisStore, IsReachedByAName) {
  const fakes::RedisServer server;
  EXPECT_EQ(fetch(*redis_at("redis://localhost:" + std::to_string(server.port())), "a"), "nothing");
}

TEST_F(RedisStore, TrustsNoUnknownCertificate) {
  const fakes::RedisServer server({.tls = true});
  const auto store = redis_at("rediss://127.0.0.1:" + std::to_string(server.port()));
  const auto get = store->get("a", soon());
  ASSERT_FALSE(get.ok());
  EXPECT_EQ(get.error().code(), ErrorCode::io);
  EXPECT_NE(get.error().message().find("certificate"), std::string::npos) << get.error().message();
}

TEST_F(RedisStore, TrustsOnlyTheCertificatesOfItsUrl) {
  const fakes::RedisServer server({.tls = true});
  const fakes::RedisServer other({.tls = true});
  const std::string url = "rediss://127.0.0.1:" + std::to_string(server.port());
  const std::string fetched = fakes::in_child_that_trusts(server.certificate(), [&] {
    return fetch(*redis_at(url), "a") + ", " + fetch(*redis_at(url + "?ca=" + other.certificate().string()), "a");
  });
  if (fetched == "not permitted") GTEST_SKIP() << "this process may not mount";
  EXPECT_EQ(fetched, "nothing, io");
}

TEST_F(RedisStore, SpeaksNoPlainTextToAServerWithTls) {
  const fakes::RedisServer server({.tls = true});
  EXPECT_EQ(fetch(*redis_at("redis://127.0.0.1:" + std::to_string(server.port())), "a"), "io");
}

TEST_F(RedisStore, ReconnectsAfterTheServerWasRestarted) {
  fakes::RedisServer server({.password = "secret"});
  const auto store = redis_at(server.url());
  EXPECT_EQ(keep(*store, "a", "x"), "ok");
  server.stop();
  EXPECT_EQ(fetch(*store, "a"), "io");
  server.start();
  EXPECT_EQ(fetch(*store, "a"), "nothing");
  EXPECT_EQ(keep(*store, "a", "y"), "ok");
  server.kill();
  server.start();
  EXPECT_EQ(keep(*store, "a", long_text(2'000'000)), "ok") << "the first call after the restart works";
}

TEST_F(RedisStore, ReconnectsAfterTheServerClosedTheConnection) {
  const fakes::RedisServer server;
  const auto store = redis_at(server.url());
  EXPECT_EQ(keep(*store, "a", "x"), "ok");
  EXPECT_EQ(administer(server.port(), {"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"}), ":1\r\n");
  EXPECT_EQ(fetch(*store, "a"), "x");
}

TEST_F(RedisStore, EndsAtTheDeadlineIfTheServerIsStoppedAndTakesNoLateAnswer) {
  fakes::RedisServer server;
  const auto store = redis_at(server.url());
  EXPECT_EQ(keep(*store, "a", "x"), "ok");
  EXPECT_EQ(keep(*store, "b", "y"), "ok");
  server.pause();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(fetch(*store, "a", ending_in(100ms)), "timed_out");
  EXPECT_EQ(fetch(*store, "a", ending_in(100ms)), "timed_out") << "a new connection";
  EXPECT_EQ(keep(*store, "a", long_text(50'000'000), ending_in(100ms)), "timed_out") << "it reads nothing";
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  server.resume();
  EXPECT_EQ(fetch(*store, "b"), "y");
}

TEST_F(RedisStore, DoesNothingAfterTheDeadline) {
  const fakes::RedisServer server;
  const auto store = redis_at(server.url());
  EXPECT_EQ(keep(*store, "a", "x"), "ok");
  EXPECT_EQ(keep(*store, "a", "y", ending_in(-1s)), "timed_out");
  EXPECT_EQ(fetch(*store, "a"), "x");
}

TEST_F(RedisStore, SaysWhyAFullServerRefusesAnObject) {
  const fakes::RedisServer server({.arguments = {"--maxmemory", "2mb", "--maxmemory-policy", "noeviction"}});
  const auto store = redis_at(server.url());
  EXPECT_EQ(keep(*store, "small", "x"), "ok");
  Result<void> put;
  for (int i = 0; i < 50 && put; ++i)
    put = store->put(fakes::numbered("large", i), std::vector<std::byte>(200'000), soon());
  ASSERT_FALSE(put.ok());
  EXPECT_EQ(put.error().code(), ErrorCode::io);
  EXPECT_NE(put.error().message().find("OOM"), std::string::npos) << put.error().message();
  EXPECT_EQ(fetch(*store, "small"), "x");
}

TEST_F(RedisStore, ServesManyThreadsAtOnce) {
  const fakes::RedisServer server;
  const auto store = redis_at(server.url());
  constexpr int threads = 16;
  constexpr int rounds = 40;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> all;
  all.reserve(threads);
  for (int thread = 0; thread < threads; ++thread)
    all.emplace_back([&, thread] {
      for (int round = 0; round < rounds; ++round) {
        const std::string path = fakes::numbered("object", thread);
        const std::string text =
            fakes::numbered(path, round) + std::string(static_cast<std::size_t>(round) * 500, 'x');
        // Some calls end early, so that their connections cannot be used again.
        if (round % 5 == 0) static_cast<void>(store->get(path, ending_in(0ms)));
        if (keep(*store, path, text) != "ok" || fetch(*store, path) != text) ++wrong;
      }
    });
  for (auto& thread : all) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(RedisStore, MayBeDestroyedInAForkedChild) {
  const std::uint16_t plain_port = fakes::free_port();
  const fakes::RedisServer server({.tls = true, .arguments = {"--port", std::to_string(plain_port)}});
  auto store = redis_at(server.url());
  EXPECT_EQ(keep(*store, "a", "x"), "ok");
  // Counts its own connection, too.
  const auto connections = [plain_port] {
    const std::string all = administer(plain_port, {"INFO", "stats"});
    const std::string name = "total_connections_received:";
    return std::stoi(all.substr(all.find(name) + name.size()));
  };
  const int before = connections();
  const std::string destroyed = fakes::in_child([&] {
    store.reset();
    return std::string("destroyed");
  });
  EXPECT_EQ(destroyed, "destroyed");
  EXPECT_EQ(fetch(*store, "a"), "x");
  EXPECT_EQ(connections(), before + 1) << "the store still uses its connection";
}

TEST(RedisStoreTrouble, NamesTheServerThatCannotBeReached) {
  const std::string address = "127.0.0.1:" + std::to_string(fakes::free_port());
  const auto get = redis_at("redis://user:secret@" + address + "/1")->get("a", soon());
  ASSERT_FALSE(get.ok());
  EXPECT_EQ(get.error().code(), ErrorCode::io);
  EXPECT_NE(get.error().message().find("redis://" + address), std::string::npos) << get.error().message();
  EXPECT_EQ(get.error().message().find("secret"), std::string::npos) << get.error().message();
  EXPECT_EQ(fetch(*redis_at("redis+unix:///nonexistent/socket"), "a"), "io");
}

TEST_F(RedisStore, IgnoresTheProxiesOfTheEnvironment) {
  const fakes::RedisServer server;
  const std::string fetched = fakes::in_child([&] {
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    setenv("all_proxy", "http://127.0.0.1:1", 1);
    return fetch(*redis_at(server.url()), "a");
  });
  EXPECT_EQ(fetched, "nothing");
}

TEST(RedisStoreTrouble, EndsAtTheDeadlineIfConnectionsAreDropped) {
  const Socket full;
  const std::uint16_t port = full.listen_with(0);
  // Linux drops connections beyond the backlog, as a firewall does.
  std::vector<std::unique_ptr<Socket>> waiting;
  for (int i = 0; i < 3; ++i) {
    waiting.push_back(std::make_unique<Socket>(SOCK_STREAM | SOCK_NONBLOCK));
    waiting.back()->connect_to(port);
  }
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(fetch(*redis_at("redis://127.0.0.1:" + std::to_string(port)), "a", ending_in(100ms)), "timed_out");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
}

TEST(RedisStoreTrouble, EndsAtTheDeadlineIfTheServerNeverAnswers) {
  const ScriptedServer silent([](const Socket& client, int /*connection*/) {
    while (!client.receive().empty()) continue;
  });
  EXPECT_EQ(fetch(*redis_at(silent.url()), "a", ending_in(100ms)), "timed_out");
  const ScriptedServer half(greets_and_says("$5\r\nab"));
  EXPECT_EQ(fetch(*redis_at(half.url()), "a", ending_in(100ms)), "timed_out");
  const ScriptedServer silent_tls([](const Socket& client, int /*connection*/) {
    while (!client.receive().empty()) continue;
  });
  EXPECT_EQ(fetch(*redis_at("rediss" + silent_tls.url().substr(5)), "a", ending_in(100ms)), "timed_out");
}

TEST(RedisStoreTrouble, EndsWhenTheCallIsCancelled) {
  const Socket event(eventfd(0, EFD_CLOEXEC), nullptr);
  const auto cancel = [&event] { EXPECT_EQ(eventfd_write(event.get(), 1), 0); };
  const auto keep_silent = [](const Socket& client) {
    while (!client.receive().empty()) continue;
  };
  const auto fetch_from = [&event](const std::string& url) {
    std::string got = fetch(*redis_at(url), "a", CallLimit{.cancelled = event.get()});
    eventfd_t value = 0;
    EXPECT_EQ(eventfd_read(event.get(), &value), 0);
    return got;
  };
  // In the greeting, or in the handshake of TLS.
  const ScriptedServer early([&](const Socket& client, int /*connection*/) {
    if (!client.receive().empty()) cancel();
    keep_silent(client);
  });
  EXPECT_EQ(fetch_from(early.url()), "cancelled");
  EXPECT_EQ(fetch_from("rediss" + early.url().substr(5)), "cancelled");
  const ScriptedServer late([&](const Socket& client, int /*connection*/) {
    client.receive();
    client.send("+PONG\r\n");
    if (!client.receive().empty() && client.send("$100\r\nx")) cancel();
    keep_silent(client);
  });
  EXPECT_EQ(fetch_from(late.url()), "cancelled");
  const ScriptedServer silent([&](const Socket& client, int /*connection*/) { keep_silent(client); });
  cancel();
  EXPECT_EQ(fetch_from(silent.url()), "cancelled") << "before the call";
}

TEST(RedisStoreTrouble, RefusesAnswersThatAreNotRedis) {
  for (const std::string text :
       {"HTTP/1.1 400 Bad Request\r\n\r\n", "\x15\x03\x01", "$9999999999999999999\r\nx", "$-7\r\n", "$3\r\nabcde",
        "*1\r\n$1\r\na\r\n", "+bare\nline", ":7\r\n", "+text\r\n", "$x\r\n", "\n"}) {
    const ScriptedServer server(greets_and_says(text));
    const auto store = redis_at(server.url());
    EXPECT_EQ(fetch(*store, "a"), "io") << text;
    EXPECT_EQ(fetch(*store, "a"), "io") << text;
    EXPECT_EQ(server.connections(), 2) << "a connection in disorder is not used again: " << text;
  }
}

TEST(RedisStoreTrouble, RefusesAnObjectAboveTheLimitBeforeReadingIt) {
  for (const std::string text : {"$268435457\r\nx", "$999999999999\r\nx"}) {
    const ScriptedServer server(greets_and_says(text));
    const auto store = redis_at(server.url());
    EXPECT_EQ(fetch(*store, "a"), "unsupported") << text;
    EXPECT_EQ(fetch(*store, "a"), "unsupported") << text;
    EXPECT_EQ(server.connections(), 2) << text;
  }
}

TEST(RedisStoreTrouble, RefusesAnEndlessLine) {
  const ScriptedServer server([](const Socket& client, int /*connection*/) {
    client.receive();
    client.send("+");
    while (client.send(std::string(1000, 'x'))) continue;
  });
  EXPECT_EQ(fetch(*redis_at(server.url()), "a"), "io");
}

TEST(RedisStoreTrouble, RefusesAnAnswerThatIsCutOff) {
  for (const std::string text : {"", "$", "$5\r\n", "$5\r\nabc", "$5\r\nabcde", "$5\r\nabcde\r"}) {
    const ScriptedServer server(greets_says_and_closes(text));
    const auto get = redis_at(server.url())->get("a", soon());
    ASSERT_FALSE(get.ok()) << text;
    EXPECT_EQ(get.error().code(), ErrorCode::io) << text;
  }
}

TEST(RedisStoreTrouble, RepeatsACommandOnceIfAKeptConnectionIsClosed) {
  const ScriptedServer server([](const Socket& client, int connection) {
    client.receive();
    client.send("+PONG\r\n");
    client.receive();
    client.send("$5\r\nfirst\r\n");
    if (connection > 0) return;
    // The second command is taken and not answered.
    client.receive();
  });
  const auto store = redis_at(server.url());
  EXPECT_EQ(fetch(*store, "a"), "first");
  EXPECT_EQ(fetch(*store, "a"), "first");
  EXPECT_EQ(server.connections(), 2);
}

TEST(RedisStoreTrouble, SurvivesAServerThatClosesInTheMiddleOfALongCommand) {
  const ScriptedServer server([](const Socket& client, int /*connection*/) {
    client.receive();
    client.send("+PONG\r\n");
    client.receive();
  });
  EXPECT_EQ(keep(*redis_at(server.url()), "a", long_text(30'000'000)), "io");
}

TEST(RedisStoreTrouble, DropsAConnectionWithBytesThatNobodyAskedFor) {
  const ScriptedServer server(greets_and_says("$4\r\nmine\r\n$6\r\nothers\r\n"));
  const auto store = redis_at(server.url());
  EXPECT_EQ(fetch(*store, "a"), "mine");
  EXPECT_EQ(fetch(*store, "a"), "mine");
  EXPECT_EQ(server.connections(), 2);
}

TEST(RedisStoreTrouble, HidesSecretsAndControlCharactersInWhatTheServerSays) {
  const ScriptedServer server("-ERR no hunter-2 of wilhelmina, \x1b[31m" + std::string(5000, 'y') + "\r\n");
  const auto get = redis_at(server.url("wilhelmina:hunter-2@"))->get("a", soon());
  ASSERT_FALSE(get.ok());
  const std::string& message = get.error().message();
  EXPECT_EQ(get.error().code(), ErrorCode::io);
  EXPECT_NE(message.find("ERR no *** of ***, ?[31my"), std::string::npos) << message;
  EXPECT_LT(message.size(), 300U);
}

TEST(RedisStoreTrouble, TellsErrorsThatLastFromOthers) {
  for (const auto& [text, code] :
       {std::pair("NOPERM no permissions", ErrorCode::denied),
        std::pair("ERR Protocol error: invalid bulk length", ErrorCode::unsupported),
        std::pair("WRONGPASS invalid", ErrorCode::io), std::pair("NOAUTH Authentication required.", ErrorCode::io),
        std::pair("READONLY You can't write against a replica.", ErrorCode::io),
        std::pair("DENIED Redis is running in protected mode", ErrorCode::io),
        std::pair("LOADING Redis is loading the dataset", ErrorCode::io),
        std::pair("OOM command not allowed", ErrorCode::io), std::pair("NOAUTHORITY", ErrorCode::io),
        std::pair("", ErrorCode::io)}) {
    const ScriptedServer server(greets_and_says("-" + std::string(text) + "\r\n"));
    const auto put = redis_at(server.url())->put("a", {}, soon());
    ASSERT_FALSE(put.ok()) << text;
    EXPECT_EQ(put.error().code(), code) << put.error().message();
  }
}

Result<std::size_t> parsed(RespParser& parser, std::string_view text) {
  return parser.consume(std::as_bytes(std::span(text)));
}

TEST(RespParser, ReadsAnAnswerByteByByte) {
  RespParser parser;
  const std::string text = "$7\r\na\r\nb\r\nc\r\n";
  for (const char& byte : text) {
    EXPECT_FALSE(parser.is_complete());
    EXPECT_EQ(parsed(parser, {&byte, 1}).value(), 1U);
  }
  ASSERT_TRUE(parser.is_complete());
  EXPECT_EQ(text_of(std::move(parser).take().bulk), "a\r\nb\r\nc");
}

TEST(RespParser, LeavesWhatFollowsTheAnswer) {
  RespParser parser;
  EXPECT_EQ(parsed(parser, ":12\r\n:13\r\n").value(), 5U);
  ASSERT_TRUE(parser.is_complete());
  EXPECT_EQ(std::move(parser).take().integer, 12);
}

TEST(RespParser, TakesLinesAndValuesUpToTheirLimits) {
  const auto is_taken = [](const std::string& text) {
    RespParser parser(10);
    return parsed(parser, text).ok();
  };
  EXPECT_TRUE(is_taken("$10\r\n0123456789\r\n"));
  EXPECT_FALSE(is_taken("$11\r\n"));
  EXPECT_TRUE(is_taken("+" + std::string(RespParser::max_line_bytes - 3, 'x') + "\r\n"));
  EXPECT_FALSE(is_taken("+" + std::string(RespParser::max_line_bytes - 2, 'x') + "\r\n"));
  EXPECT_FALSE(is_taken(":9223372036854775808\r\n"));
}

}  // namespace
}  // namespace kiln::store
