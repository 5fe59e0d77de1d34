#include "store/remote/http_store.hpp"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "base/file.hpp"
#include "base/mutex.hpp"
#include "base/process.hpp"
#include "base/sha256.hpp"
#include "fakes/child.hpp"
#include "fakes/fault_proxy.hpp"
#include "fakes/files.hpp"
#include "fakes/servers.hpp"
#include "fakes/system_certificates.hpp"
#include "fakes/temporary_folder.hpp"
#include "store/remote_library.hpp"

namespace kiln::store {
namespace {

using namespace std::chrono_literals;
using fakes::bytes_of;
using fakes::NetworkFault;
using fakes::NginxServer;
using fakes::text_of;
using HttpClock = std::chrono::steady_clock;

constexpr const char* http_secret = "open-sesame-4711";
const std::string http_path = "3/0123abcd/ef/ef456789";

CallLimit within(std::chrono::milliseconds time) { return {.deadline = HttpClock::now() + time}; }
/// Longer than any call that does not wait for its deadline.
CallLimit ample() { return within(60s); }

std::unique_ptr<ObjectStore> http_store(const std::string& url) {
  return make_http_store(parse_store_url(url).value()).value();
}

std::string http_url(std::uint16_t port, const std::string& rest) {
  return fmt::format("http://127.0.0.1:{}{}", port, rest);
}

/// The name of the error's code. Fails the test if the message contains the secret, or does not name the server.
template <class T>
std::string code_of(const Result<T>& result) {
  if (result.ok()) return "no error";
  const std::string& message = result.error().message();
  EXPECT_EQ(message.find(http_secret), std::string::npos) << message;
  EXPECT_NE(message.find("://"), std::string::npos) << message;
  return std::string(to_string(result.error().code()));
}

/// Whether a condition becomes true.
bool is_soon(const std::function<bool()>& condition) {
  const auto end = HttpClock::now() + 20s;
  while (!condition())
    if (HttpClock::now() > end) return false;
  return true;
}

/// How many bytes the process has allocated.
std::size_t allocated_bytes() {
  const auto info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

bool has_text(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// A server that sends the bytes that the test crafts. It serves one connection at a time.
class CraftedServer {
 public:
  enum class Then { close, serve_next, repeat_for_ever, keep_silent };
  struct Answer {
    std::string text;
    Then then = Then::close;
    std::string repeated = {};
  };
  using Craft = std::function<Answer(const std::string& request)>;

  explicit CraftedServer(Craft craft) : craft_(std::move(craft)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (bind(listener_.get(), generic, size) != 0 || listen(listener_.get(), 16) != 0 ||
        getsockname(listener_.get(), generic, &size) != 0)
      std::abort();
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  explicit CraftedServer(std::string text, Then then = Then::close, std::string repeated = {})
      : CraftedServer(
            [answer = Answer{std::move(text), then, std::move(repeated)}](const std::string&) { return answer; }) {}
  ~CraftedServer() {
    {
      const base::MutexLock lock(mutex_);
      ends_ = true;
      shutdown(listener_.get(), SHUT_RDWR);
      if (client_ >= 0) shutdown(client_, SHUT_RDWR);
    }
    thread_.join();
  }
  CraftedServer(const CraftedServer&) = delete;
  CraftedServer& operator=(const CraftedServer&) = delete;

  std::uint16_t port() const { return port_; }
  std::string url(const std::string& options = {}) const { return http_url(port_, "/cache" + options); }
  std::vector<std::string> requests() {
    const base::MutexLock lock(mutex_);
    return requests_;
  }

 private:
  /// A request with its body; empty if the client closed the connection.
  static std::string read_request(int client) {
    std::string request;
    std::size_t missing = 1;
    for (char buffer[4096]; missing > 0;) {
      const ssize_t got = recv(client, buffer, sizeof buffer, 0);
      if (got <= 0) return {};
      request.append(buffer, static_cast<std::size_t>(got));
      const std::size_t end = request.find("\r\n\r\n");
      if (end == std::string::npos) continue;
      const std::size_t field = request.find("Content-Length: ");
      const std::size_t body = field < end ? std::stoul(request.substr(field + 16)) : 0;
      missing = end + 4 + body - std::min(request.size(), end + 4 + body);
    }
    return request;
  }

  static bool send_all(int client, std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = send(client, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }

  /// Whether another request may follow.
  bool serve_request(int client) {
    const std::string request = read_request(client);
    if (request.empty()) return false;
    {
      const base::MutexLock lock(mutex_);
      requests_.push_back(request);
    }
    const Answer answer = craft_(request);
    bool open = send_all(client, answer.text);
    while (open && answer.then == Then::repeat_for_ever) open = send_all(client, answer.repeated);
    while (open && answer.then == Then::keep_silent) open = !read_request(client).empty();
    return open && answer.then == Then::serve_next;
  }

  void serve() {
    for (;;) {
      const base::FileHandle client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!set_client(client.get())) return;
      while (serve_request(client.get())) {
      }
      if (!set_client(-1)) return;
    }
  }

  /// False if the server ends.
  bool set_client(int client) {
    const base::MutexLock lock(mutex_);
    client_ = client;
    return !ends_;
  }

  const Craft craft_;
  const base::FileHandle listener_{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::uint16_t port_ = 0;
  base::Mutex mutex_;
  bool ends_ KILN_GUARDED_BY(mutex_) = false;
  int client_ KILN_GUARDED_BY(mutex_) = -1;
  std::vector<std::string> requests_ KILN_GUARDED_BY(mutex_);
  std::thread thread_;
};

std::string http_answer(int status, const std::string& headers = {}, const std::string& body = {}) {
  return fmt::format("HTTP/1.1 {} Status\r\nContent-Length: {}\r\nConnection: close\r\n{}\r\n{}", status,
                     body.size(), headers, body);
}

std::string redirect_to(const std::string& where, int status = 302) {
  return http_answer(status, "Location: " + where + "\r\n");
}

class HttpStoreOfNginx : public testing::Test {
 protected:
  void SetUp() override {
    if (!fakes::is_installed("nginx")) GTEST_SKIP() << "nginx is not installed";
  }

  static void expect_all_operations(ObjectStore& store) {
    EXPECT_EQ(store.get(http_path, ample()).value(), std::nullopt);
    EXPECT_FALSE(store.has(http_path, ample()).value());
    const std::string all = std::string("\0\r\n\xff", 4) + std::string(3 << 20, 'x');
    for (const std::string& text : {std::string("first"), std::string(), all}) {
      store.put(http_path, bytes_of(text), ample()).value();
      EXPECT_TRUE(store.has(http_path, ample()).value());
      const auto got = store.get(http_path, ample()).value();
      ASSERT_TRUE(got);
      EXPECT_TRUE(text_of(*got) == text) << text.size();
    }
    store.remove(http_path, ample()).value();
    EXPECT_FALSE(store.has(http_path, ample()).value());
    store.remove(http_path, ample()).value();
    EXPECT_EQ(code_of(store.list("3", ample())), "unsupported");
  }
};

TEST_F(HttpStoreOfNginx, StoresFindsReplacesAndRemovesObjects) {
  const NginxServer server;
  expect_all_operations(*http_store(server.url()));
}

TEST_F(HttpStoreOfNginx, WorksOverIpv6) {
  const NginxServer server({.address = fakes::Address::ipv6});
  expect_all_operations(*http_store(server.url()));
}

TEST_F(HttpStoreOfNginx, WorksOverAUnixSocket) {
  const NginxServer server({.address = fakes::Address::unix_socket, .user = "u", .password = http_secret});
  expect_all_operations(*http_store(server.url()));
}

TEST_F(HttpStoreOfNginx, WorksOverTlsWithTheCertificateOfTheUrl) {
  const NginxServer server({.tls = true, .user = "u", .password = http_secret});
  expect_all_operations(*http_store(server.url()));
}

TEST_F(HttpStoreOfNginx, RefusesACertificateThatIsNotTrusted) {
  const NginxServer server({.tls = true});
  const NginxServer other({.tls = true});
  const std::string url = fmt::format("https://127.0.0.1:{}/cache", server.port());
  for (const auto& store : {http_store(url), http_store(url + "?ca=" + other.certificate().string())}) {
    const auto got = store->get(http_path, ample());
    ASSERT_EQ(code_of(got), "io");
    EXPECT_TRUE(has_text(got.error().message(), "certificate")) << got.error().message();
  }
}

TEST_F(HttpStoreOfNginx, TrustsOnlyTheCertificatesOfItsUrl) {
  const NginxServer server({.tls = true});
  const NginxServer other({.tls = true});
  const std::string url = fmt::format("https://127.0.0.1:{}/cache", server.port());
  const std::string codes = fakes::in_child_that_trusts(server.certificate(), [&] {
    return code_of(http_store(url)->get(http_path, ample())) + ", " +
           code_of(http_store(url + "?ca=" + other.certificate().string())->get(http_path, ample()));
  });
  if (codes == "not permitted") GTEST_SKIP() << "this process may not mount";
  EXPECT_EQ(codes, "no error, io");
}

TEST_F(HttpStoreOfNginx, SurvivesTheLossOfATlsServer) {
  NginxServer server({.tls = true});
  const auto store = http_store(server.url());
  store->put(http_path, bytes_of("text"), ample()).value();
  server.kill();
  EXPECT_EQ(code_of(store->put(http_path, bytes_of("text"), ample())), "io");
  server.start();
  EXPECT_EQ(text_of(store->get(http_path, ample()).value().value()), "text");
}

TEST_F(HttpStoreOfNginx, KeepsObjectsUnderThePathOfTheUrl) {
  const NginxServer server;
  http_store(server.url())->put(http_path, bytes_of("text"), ample()).value();
  EXPECT_EQ(fakes::read_file(server.objects() / http_path), "text");
}

TEST_F(HttpStoreOfNginx, KeepsObjectsByTheDigestOfTheirPathInTheLayoutOfBazel) {
  const NginxServer server;
  const auto store = http_store(server.url("layout=bazel"));
  expect_all_operations(*store);
  store->put(http_path, bytes_of("text"), ample()).value();
  EXPECT_EQ(fakes::read_file(server.objects() / "ac" / base::sha256(http_path).hex()), "text");
}

TEST_F(HttpStoreOfNginx, FailsWithoutTheRightPasswordAndMayWorkLater) {
  const NginxServer server({.user = "kiln", .password = "right"});
  for (const std::string& user : {std::string(), std::string("kiln@"), fmt::format("kiln:{}@", http_secret)}) {
    const auto store = http_store(fmt::format("http://{}127.0.0.1:{}/cache", user, server.port()));
    EXPECT_EQ(code_of(store->get(http_path, ample())), "io");
    EXPECT_EQ(code_of(store->has(http_path, ample())), "io");
    EXPECT_EQ(code_of(store->put(http_path, bytes_of(std::string(4 << 20, 'x')), ample())), "io");
    EXPECT_EQ(code_of(store->remove(http_path, ample())), "io");
  }
}

TEST_F(HttpStoreOfNginx, ReadsThePasswordFileAgainAfterItChanged) {
  const NginxServer server({.user = "kiln", .password = http_secret});
  const fakes::TemporaryFolder folder;
  const auto file = folder.path() / "password";
  fakes::write_file(file, "another one");
  const auto store =
      http_store(fmt::format("http://kiln@127.0.0.1:{}/cache?password_file={}", server.port(), file.string()));
  const auto becomes = [&store](const std::string& code) {
    return is_soon([&] { return code_of(store->get(http_path, ample())) == code; });
  };
  EXPECT_EQ(code_of(store->get(http_path, ample())), "io");
  fakes::write_file(file, std::string(" ") + http_secret + "\r\n");
  EXPECT_TRUE(becomes("no error"));
  std::filesystem::remove(file);
  EXPECT_TRUE(becomes("io"));
}

TEST_F(HttpStoreOfNginx, MayReadWhereItMayNotWrite) {
  const NginxServer server({.read_only = true});
  fakes::write_file(server.objects() / http_path, "text");
  const auto store = http_store(server.url());
  EXPECT_EQ(code_of(store->put(http_path, bytes_of("new"), ample())), "denied");
  EXPECT_EQ(code_of(store->remove(http_path, ample())), "denied");
  EXPECT_EQ(text_of(store->get(http_path, ample()).value().value()), "text");
  const auto plain = http_store(http_url(server.port(), "/plain"));
  EXPECT_EQ(code_of(plain->put(http_path, bytes_of("new"), ample())), "denied") << "nginx answers 405";
}

TEST_F(HttpStoreOfNginx, SaysThatAnObjectIsTooLongForTheServer) {
  const NginxServer server({.max_body = "1k"});
  const auto put = http_store(server.url())->put(http_path, bytes_of(std::string(8 << 20, 'x')), ample());
  ASSERT_EQ(code_of(put), "unsupported");
  EXPECT_TRUE(has_text(put.error().message(), "413")) << put.error().message();
}

TEST_F(HttpStoreOfNginx, SendsNoObjectAboveTheLimit) {
  NginxServer server;
  const auto store = http_store(server.url());
  server.stop();
  const std::vector<std::byte> bytes(max_object_bytes + 1);
  const auto put = store->put(http_path, bytes, ample());
  ASSERT_EQ(code_of(put), "unsupported");
  EXPECT_TRUE(has_text(put.error().message(), "limit of an object")) << put.error().message();
}

TEST_F(HttpStoreOfNginx, UsesOneConnectionForManyCalls) {
  const NginxServer server;
  fakes::FaultProxy proxy(server.port());
  const auto store = http_store(http_url(proxy.port(), "/cache"));
  for (int i = 0; i < 20; ++i) {
    const std::string path = http_path + std::to_string(i);
    EXPECT_EQ(store->get(path, ample()).value(), std::nullopt);
    store->put(path, bytes_of("text"), ample()).value();
    EXPECT_TRUE(store->has(path, ample()).value());
    EXPECT_EQ(text_of(store->get(path, ample()).value().value()), "text");
  }
  EXPECT_EQ(proxy.connections(), 1U);
}

TEST_F(HttpStoreOfNginx, ServesManyThreads) {
  const NginxServer server;
  const auto store = http_store(server.url());
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 16; ++thread)
    threads.emplace_back([&store, &right, thread] {
      for (int i = 0; i < 10; ++i) {
        const std::string name = fmt::format("3/{}/{}", thread, i);
        const bool sent = store->put(name, bytes_of(name), ample()).ok();
        const auto got = store->get(name, ample());
        if (sent && got.ok() && *got && text_of(**got) == name) ++right;
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right, 160);
}

TEST_F(HttpStoreOfNginx, WorksAgainAfterTheServerRestarted) {
  NginxServer server;
  const auto store = http_store(server.url());
  store->put(http_path, bytes_of("text"), ample()).value();
  server.stop();
  EXPECT_EQ(code_of(store->get(http_path, ample())), "io");
  EXPECT_EQ(code_of(store->put(http_path, bytes_of("text"), ample())), "io");
  server.start();
  EXPECT_EQ(text_of(store->get(http_path, ample()).value().value()), "text");
  server.stop();
  server.start();
  store->put(http_path, bytes_of("on a connection that the server closed"), ample()).value();
}

TEST_F(HttpStoreOfNginx, ReturnsAtTheDeadlineIfTheServerIsStopped) {
  NginxServer server;
  const auto store = http_store(server.url());
  for (int round = 0; round < 2; ++round) {
    server.pause();
    const auto limit = within(50ms);
    EXPECT_EQ(code_of(store->get(http_path, limit)), "timed_out");
    EXPECT_GE(HttpClock::now(), limit.deadline - 1ms);
    EXPECT_EQ(code_of(store->put(http_path, bytes_of("text"), within(50ms))), "timed_out");
    EXPECT_EQ(code_of(store->has(http_path, within(-1ms))), "timed_out");
    server.resume();
    EXPECT_EQ(store->get("3/absent", ample()).value(), std::nullopt) << "with a connection that is kept";
  }
}

TEST_F(HttpStoreOfNginx, ReturnsWhenTheCallIsCancelled) {
  NginxServer server;
  const auto store = http_store(server.url());
  server.pause();
  const base::FileHandle before(eventfd(1, EFD_CLOEXEC));
  EXPECT_EQ(code_of(store->get(http_path, {.cancelled = before.get()})), "cancelled");
  const base::FileHandle during(eventfd(0, EFD_CLOEXEC));
  std::thread canceller([&during] { eventfd_write(during.get(), 1); });
  EXPECT_EQ(code_of(store->put(http_path, bytes_of("text"), {.cancelled = during.get()})), "cancelled");
  canceller.join();
  eventfd_t value = 0;
  EXPECT_EQ(eventfd_read(during.get(), &value), 0) << "only the caller reads from the descriptor";
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const base::FileHandle reader(ends[0]);
  close(ends[1]);
  EXPECT_EQ(code_of(store->get(http_path, {.cancelled = reader.get()})), "cancelled") << "it is at its end";
  server.resume();
  EXPECT_EQ(store->get("3/absent", ample()).value(), std::nullopt);
}

TEST_F(HttpStoreOfNginx, ReportsEachFaultOfTheNetworkAndRecovers) {
  const NginxServer server;
  const std::string text(100'000, 'x');
  fakes::write_file(server.objects() / http_path, text);
  fakes::FaultProxy proxy(server.port());
  const auto store = http_store(http_url(proxy.port(), "/cache"));
  struct Case {
    NetworkFault fault;
    std::string code;
    std::chrono::milliseconds limit;
  };
  const std::vector<Case> cases = {
      {NetworkFault::reset_at_accept(), "io", 60s},
      {NetworkFault::reset_after(10), "io", 60s},
      {NetworkFault::reset_after(5000), "io", 60s},
      {NetworkFault::truncate_after(0), "io", 60s},
      {NetworkFault::truncate_after(10), "io", 60s},
      {NetworkFault::truncate_after(5000), "io", 60s},
      {NetworkFault::garbage(), "io", 60s},
      {NetworkFault::refuse(), "io", 60s},
      {NetworkFault::endless("HTTP/1.1 200 OK\r\n\r\n"), "io", 60s},
      {NetworkFault::endless("HTTP/1.1 200 OK\r\nX: "), "io", 60s},
      {NetworkFault::half_open(), "timed_out", 50ms},
      {NetworkFault::drip(), "timed_out", 50ms},
      {NetworkFault::delay_answers(20s), "timed_out", 50ms},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    EXPECT_TRUE(text_of(store->get(http_path, ample()).value().value()) == text) << "before case " << i;
    proxy.set(cases[i].fault);
    EXPECT_EQ(code_of(store->get(http_path, within(cases[i].limit))), cases[i].code) << "case " << i;
    EXPECT_EQ(code_of(store->get(http_path, within(cases[i].limit))), cases[i].code) << "case " << i << " again";
    proxy.set(NetworkFault::none());
  }
  EXPECT_TRUE(text_of(store->get(http_path, ample()).value().value()) == text);
  proxy.set(NetworkFault::delay_answers(30ms));
  EXPECT_TRUE(text_of(store->get(http_path, ample()).value().value()) == text) << "only late";
}

TEST_F(HttpStoreOfNginx, DoesNotFollowARedirectFromHttpsToHttp) {
  CraftedServer other(http_answer(200, {}, "stolen"));
  const NginxServer server(
      {.tls = true, .directives = fmt::format("location /cache/away/ {{ return 302 {}; }}", other.url())});
  EXPECT_EQ(code_of(http_store(server.url())->get("away/x", ample())), "io");
  EXPECT_TRUE(other.requests().empty());
}

TEST_F(HttpStoreOfNginx, IsUnusableInAChildProcessAndKeepsItsConnectionWhenThatEnds) {
  const NginxServer server({.tls = true});
  fakes::FaultProxy proxy(server.port());
  const std::string url =
      fmt::format("https://127.0.0.1:{}/cache?ca={}", proxy.port(), server.certificate().string());
  auto store = http_store(url);
  store->put(http_path, bytes_of("text"), ample()).value();
  const std::string code = fakes::in_child([&store, &url] {
    const std::string result = code_of(store->get(http_path, ample()));
    store.reset();
    return result + ", " + text_of(http_store(url)->get(http_path, ample()).value().value());
  });
  EXPECT_EQ(code, "unsupported, text");
  EXPECT_EQ(text_of(store->get(http_path, ample()).value().value()), "text");
  EXPECT_EQ(proxy.connections(), 2U) << "one of each process";
}

TEST(HttpStore, SendsOneSimpleRequestPerCall) {
  CraftedServer server(http_answer(200, {}, "body"));
  const auto store = http_store(server.url());
  store->get("3/a", ample()).value();
  store->put("3/b", bytes_of(std::string(5 << 20, 'x')), ample()).value();
  store->has("3/c", ample()).value();
  store->remove("3/d", ample()).value();
  const auto requests = server.requests();
  ASSERT_EQ(requests.size(), 4U);
  EXPECT_TRUE(requests[0].starts_with("GET /cache/3/a HTTP/1.1\r\n")) << requests[0];
  EXPECT_TRUE(requests[1].starts_with("PUT /cache/3/b HTTP/1.1\r\n"));
  EXPECT_TRUE(requests[2].starts_with("HEAD /cache/3/c HTTP/1.1\r\n")) << requests[2];
  EXPECT_TRUE(requests[3].starts_with("DELETE /cache/3/d HTTP/1.1\r\n")) << requests[3];
  for (const std::string& request : requests) {
    EXPECT_TRUE(has_text(request, "User-Agent: kiln/"));
    EXPECT_FALSE(has_text(request, "Expect")) << "some servers do not answer it";
    EXPECT_FALSE(has_text(request, "Accept-Encoding")) << "what was stored comes back";
    EXPECT_FALSE(has_text(request, "Authorization"));
  }
}

TEST(HttpStore, SendsAnObjectAgainIfTheServerClosedTheConnectionOfAnEarlierCall) {
  std::atomic<int> calls{0};
  CraftedServer server([&calls](const std::string&) {
    const std::string created = "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n";
    return ++calls == 2 ? CraftedServer::Answer{} : CraftedServer::Answer{created, CraftedServer::Then::serve_next};
  });
  const auto store = http_store(server.url());
  store->put("3/a", bytes_of("first"), ample()).value();
  store->put("3/b", bytes_of("second"), ample()).value();
  const auto requests = server.requests();
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_TRUE(requests[2].ends_with("\r\n\r\nsecond")) << requests[2];
}

TEST(HttpStore, TurnsEachStatusIntoAResult) {
  std::atomic<int> status{0};
  CraftedServer server([&status](const std::string&) { return CraftedServer::Answer{http_answer(status)}; });
  const auto store = http_store(server.url());
  struct Case {
    int status;
    std::string get, put, has, remove;
  };
  const std::string none = "no error";
  for (const Case& expected : {
           Case{200, none, none, none, none},
           Case{201, "io", none, "io", "io"},
           Case{204, "io", none, none, none},
           Case{206, "io", "io", "io", "io"},
           Case{301, "io", "io", "io", "io"},
           Case{304, "io", "io", "io", "io"},
           Case{400, "io", "io", "io", "io"},
           Case{401, "io", "io", "io", "io"},
           Case{403, "denied", "denied", "denied", "denied"},
           Case{404, none, "io", none, none},
           Case{405, "io", "denied", "io", "denied"},
           Case{407, "io", "io", "io", "io"},
           Case{410, none, "io", none, none},
           Case{413, "io", "unsupported", "io", "io"},
           Case{429, "io", "io", "io", "io"},
           Case{500, "io", "io", "io", "io"},
           Case{503, "io", "io", "io", "io"},
           Case{507, "io", "io", "io", "io"},
           Case{999, "io", "io", "io", "io"},
       }) {
    status = expected.status;
    const auto get = store->get(http_path, ample());
    EXPECT_EQ(code_of(get), expected.get) << status;
    EXPECT_EQ(code_of(store->put(http_path, bytes_of("text"), ample())), expected.put) << status;
    EXPECT_EQ(code_of(store->has(http_path, ample())), expected.has) << status;
    EXPECT_EQ(code_of(store->remove(http_path, ample())), expected.remove) << status;
    if (get.ok()) {
      EXPECT_EQ(get.value().has_value(), status == 200) << status;
    } else {
      EXPECT_TRUE(has_text(get.error().message(), std::to_string(status))) << get.error().message();
    }
  }
}

TEST(HttpStore, AsksAnOverloadedServerAgainWhenItSaysIfTimeIsLeft) {
  std::atomic<int> calls = 0;
  CraftedServer server([&calls](const std::string&) {
    return CraftedServer::Answer{calls++ % 2 == 0 ? http_answer(503, "Retry-After: 1\r\n")
                                                  : http_answer(200, {}, "x")};
  });
  const auto store = http_store(server.url());
  const auto start = HttpClock::now();
  EXPECT_EQ(text_of(store->get(http_path, ample()).value().value()), "x");
  EXPECT_GE(HttpClock::now() - start, 1s);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(code_of(store->get(http_path, within(900ms))), "io");
  EXPECT_EQ(calls, 3);
}

TEST(HttpStore, RefusesTenGigabytesBeforeReadingThem) {
  for (const char* bytes : {"10737418240", "99999999999999999999999999"}) {
    CraftedServer server(fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", bytes),
                         CraftedServer::Then::keep_silent);
    const auto got = http_store(server.url())->get(http_path, ample());
    ASSERT_EQ(code_of(got), "unsupported");
    EXPECT_TRUE(has_text(got.error().message(), "limit of an object")) << got.error().message();
  }
}

TEST(HttpStore, StopsReadingAnEndlessAnswer) {
  using Then = CraftedServer::Then;
  const std::string ok = "HTTP/1.1 200 OK\r\n";
  const std::string chunk = "10000\r\n" + std::string(65536, 'x') + "\r\n";
  struct Case {
    std::string head, repeated;
  };
  for (const Case& endless :
       {Case{ok + "\r\n", std::string(65536, 'x')}, Case{ok + "Transfer-Encoding: chunked\r\n\r\n", chunk},
        Case{ok, "X-Header: value\r\n"}, Case{ok + "X-Header: ", std::string(1000, 'x')},
        Case{"", "HTTP/1.1 100 Continue\r\n\r\n"}, Case{"", std::string(1000, 'x')},
        Case{"HTTP/1.1 500 Failed\r\n\r\n", std::string(65536, 'x')}}) {
    CraftedServer server(endless.head, Then::repeat_for_ever, endless.repeated);
    EXPECT_EQ(code_of(http_store(server.url())->get(http_path, ample())), "io") << endless.head;
  }
  CraftedServer server("HTTP/1.1 404 Absent\r\n\r\n", Then::repeat_for_ever, std::string(65536, 'x'));
  EXPECT_EQ(http_store(server.url())->get(http_path, ample()).value(), std::nullopt);
}

TEST(HttpStore, RefusesAnswersThatAreIncompleteOrNoHttp) {
  for (const std::string& text : {
           std::string(),
           std::string("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort"),
           std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n"),
           std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n"),
           std::string("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"),
           std::string("HTTP/1.1 2000000 OK\r\n\r\nbody"),
           std::string("HTTP/9.9 200 OK\r\n\r\nbody"),
           std::string("HTTP/1.1 \r\n\r\n"),
           std::string("body without headers"),
           std::string("\0\1\2\3\xff\r\n\r\n", 9),
           std::string("HTTP/1.1 302 Found\r\nLocation:\r\nContent-Length: 0\r\n\r\n"),
       }) {
    CraftedServer server(text);
    EXPECT_EQ(code_of(http_store(server.url())->get(http_path, ample())), "io") << text;
  }
}

TEST(HttpStore, ReturnsAtTheDeadlineFromAnswersWithoutEnd) {
  for (const char* text : {"", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\n",
                           "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nsho", "HTTP/1.1 100 Continue\r\n\r\n"}) {
    CraftedServer server(text, CraftedServer::Then::keep_silent);
    const auto store = http_store(server.url());
    EXPECT_EQ(code_of(store->get(http_path, within(30ms))), "timed_out") << text;
    EXPECT_EQ(code_of(store->put(http_path, bytes_of("text"), within(30ms))), "timed_out") << text;
  }
}

TEST(HttpStore, LeavesCompressedBodiesAsTheyAre) {
  CraftedServer server(http_answer(200, "Content-Encoding: gzip\r\n", "not unpacked"));
  EXPECT_EQ(text_of(http_store(server.url())->get(http_path, ample()).value().value()), "not unpacked");
}

TEST(HttpStore, RefusesBodiesThatLibcurlWouldDecompress) {
  // "body", as gzip writes it.
  const std::string packed("\x1f\x8b\x08\0\0\0\0\0\0\x03\x4b\xca\x4f\xa9\x04\0\xb2\x0b\xa8\xdb\x04\0\0\0", 24);
  const std::string chunk = fmt::format("{:x}\r\n{}\r\n0\r\n\r\n", packed.size(), packed);
  for (const char* header :
       {"Transfer-Encoding: gzip, chunked", "transfer-encoding:gzip,chunked", "TRANSFER-ENCODING : gzip, chunked",
        "Transfer-Encoding: deflate, chunked", "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip", "Transfer-Encoding:\r\n gzip, chunked",
        "Transfer-Encoding: identity, gzip, chunked", "Transfer-Encoding: unknown"}) {
    CraftedServer server(fmt::format("HTTP/1.1 200 OK\r\n{}\r\n\r\n{}", header, chunk));
    EXPECT_EQ(code_of(http_store(server.url())->get(http_path, ample())), "io") << header;
  }
  for (const char* header : {"Transfer-Encoding: chunked", "transfer-encoding:\tChunked "}) {
    CraftedServer server(fmt::format("HTTP/1.1 200 OK\r\n{}\r\n\r\n{}", header, chunk));
    EXPECT_EQ(text_of(http_store(server.url())->get(http_path, ample()).value().value()), packed) << header;
  }
}

TEST(HttpStore, KeepsNoBodyOfAnAnswerThatFailed) {
  CraftedServer server("HTTP/1.1 200 OK\r\n\r\n", CraftedServer::Then::repeat_for_ever, std::string(65536, 'x'));
  const auto store = http_store(server.url());
  const std::size_t before = allocated_bytes();
  EXPECT_EQ(code_of(store->get(http_path, ample())), "io");
  EXPECT_LT(allocated_bytes(), before + (std::size_t{1} << 20));
}

TEST(HttpStore, WritesToNoOtherServerThanItsOwn) {
  CraftedServer other(http_answer(200));
  CraftedServer server(redirect_to(other.url(), 307));
  const auto store = http_store(server.url());
  EXPECT_EQ(code_of(store->put(http_path, bytes_of("text"), ample())), "io");
  EXPECT_EQ(code_of(store->remove(http_path, ample())), "io");
  EXPECT_TRUE(other.requests().empty());
}

TEST(HttpStore, FollowsRedirectsOnTheSameServerWithItsCredentials) {
  CraftedServer server([](const std::string& request) {
    const bool moved = has_text(request, " /moved/");
    return CraftedServer::Answer{moved ? http_answer(200, {}, "body") : redirect_to("/moved/x", 307)};
  });
  const auto store = http_store(fmt::format("http://user:{}@127.0.0.1:{}/cache", http_secret, server.port()));
  EXPECT_EQ(text_of(store->get(http_path, ample()).value().value()), "body");
  store->put(http_path, bytes_of("text"), ample()).value();
  const auto requests = server.requests();
  ASSERT_EQ(requests.size(), 4U);
  for (const std::string& request : requests) EXPECT_TRUE(has_text(request, "Authorization: Basic ")) << request;
  EXPECT_TRUE(requests[3].starts_with("PUT /moved/x ") && requests[3].ends_with("\r\n\r\ntext")) << requests[3];
}

TEST(HttpStore, SendsNoCredentialsToAServerThatItIsRedirectedTo) {
  std::atomic<int> home{0};
  CraftedServer other([&home](const std::string& request) {
    return CraftedServer::Answer{has_text(request, "/back")
                                     ? redirect_to(fmt::format("http://127.0.0.1:{}/returned", home.load()))
                                     : http_answer(200, {}, "body")};
  });
  CraftedServer server([&other](const std::string& request) {
    if (has_text(request, "/returned")) return CraftedServer::Answer{http_answer(200, {}, "body")};
    const std::string user_and_password = has_text(request, "/named") ? "someone:else@" : "";
    return CraftedServer::Answer{redirect_to(fmt::format("http://{}127.0.0.1:{}{}", user_and_password, other.port(),
                                                         request.substr(4, request.find(' ', 4) - 4)))};
  });
  home = server.port();
  const fakes::TemporaryFolder folder;
  fakes::write_file(folder.path() / "token", http_secret);
  const std::string token = "?token_file=" + (folder.path() / "token").string();
  for (const std::string& url :
       {fmt::format("http://user:{}@127.0.0.1:{}/cache", http_secret, server.port()), server.url(token)}) {
    const auto store = http_store(url);
    for (const char* path : {"plain", "named", "back"})
      EXPECT_EQ(text_of(store->get(path, ample()).value().value()), "body") << path;
  }
  EXPECT_EQ(other.requests().size(), 6U);
  for (const std::string& request : other.requests()) EXPECT_FALSE(has_text(request, "Authorization")) << request;
  for (const std::string& request : server.requests())
    EXPECT_NE(has_text(request, "Authorization"), has_text(request, "/returned")) << request;
}

TEST(HttpStore, FollowsNoRedirectToOtherThingsThanHttpServers) {
  const fakes::TemporaryFolder folder;
  fakes::write_file(folder.path() / "file", "text");
  const std::string file = (folder.path() / "file").string();
  for (const std::string& where :
       {"file://" + file, "FILE://localhost" + file, std::string("ftp://127.0.0.1/x"),
        std::string("gopher://127.0.0.1/x"), std::string("dict://127.0.0.1/x"), std::string("http://"),
        std::string("http:///x"), std::string("http://[::1/x"), std::string("\x01")}) {
    CraftedServer server(redirect_to(where));
    EXPECT_EQ(code_of(http_store(server.url())->get(http_path, ample())), "io") << where;
  }
}

TEST(HttpStore, GivesUpAfterFiveRedirects) {
  CraftedServer server([](const std::string& request) {
    return CraftedServer::Answer{redirect_to(request.substr(4, request.find(' ', 4) - 4) + "x")};
  });
  EXPECT_EQ(code_of(http_store(server.url())->get(http_path, ample())), "io");
  EXPECT_EQ(server.requests().size(), 6U);
}

TEST(HttpStore, DoesNotWriteWhereARedirectWouldChangeTheMethod) {
  for (const int status : {301, 302, 303}) {
    CraftedServer server(redirect_to("/elsewhere", status));
    const auto store = http_store(server.url());
    EXPECT_EQ(code_of(store->put(http_path, bytes_of("text"), ample())), "io") << status;
    EXPECT_EQ(code_of(store->remove(http_path, ample())), "io") << status;
    EXPECT_EQ(server.requests().size(), 2U);
  }
}

TEST(HttpStore, ReadsTheTokenFileAgainAfterItChanged) {
  CraftedServer server(http_answer(404));
  const fakes::TemporaryFolder folder;
  const auto file = folder.path() / "token";
  fakes::write_file(file, "first-token\n");
  const auto store = http_store(server.url("?token_file=" + file.string()));
  store->get(http_path, ample()).value();
  fakes::write_file(folder.path() / "new", "\tsecond-token \n");
  std::filesystem::rename(folder.path() / "new", file);
  store->get(http_path, ample()).value();
  EXPECT_TRUE(has_text(server.requests().front(), "Authorization: Bearer first-token\r\n"));
  EXPECT_TRUE(is_soon([&] {
    store->get(http_path, ample()).value();
    return has_text(server.requests().back(), "Authorization: Bearer second-token\r\n");
  }));
}

TEST(HttpStore, RefusesOptionsThatCannotBeUsed) {
  const fakes::TemporaryFolder folder;
  const auto file = [&folder](const std::string& name, const std::string& text) {
    fakes::write_file(folder.path() / name, text);
    return (folder.path() / name).string();
  };
  const std::string token = file("token", http_secret);
  const std::string fifo = (folder.path() / "fifo").string();
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& url :
       {"http://host/?token_file=" + (folder.path() / "absent").string(),
        "http://host/?password_file=" + folder.path().string(), "http://host/?password_file=" + fifo,
        "http://host/?token_file=" + file("empty", " \n"),
        "http://host/?token_file=" + file("lines", std::string(http_secret) + "\r\nX-Header: value"),
        "http://host/?token_file=" + file("long", std::string(100'000, 'x')),
        "http://user:" + std::string(http_secret) + "@host/?token_file=" + token,
        "http://host/?token_file=" + token + "&password_file=" + token,
        "http://user:" + std::string(http_secret) + "@host/?password_file=" + token,
        "https://host/?ca=" + (folder.path() / "absent").string()})
    EXPECT_EQ(code_of(make_http_store(parse_store_url(url).value())), "invalid_request") << url;
}

TEST(HttpStore, UsesTheProxyOfTheEnvironment) {
  CraftedServer proxy(http_answer(200, {}, "through the proxy"));
  CraftedServer server(http_answer(200, {}, "directly"));
  const auto in_environment = [&](const std::string& url) {
    return fakes::in_child([&] {
      setenv("http_proxy", fmt::format("http://user:{}@127.0.0.1:{}", http_secret, proxy.port()).c_str(), 1);
      setenv("no_proxy", "127.0.0.1", 1);
      return text_of(http_store(url)->get(http_path, ample()).value().value());
    });
  };
  EXPECT_EQ(in_environment("http://cache.invalid/prefix"), "through the proxy");
  EXPECT_EQ(in_environment(server.url()), "directly");
  const auto requests = proxy.requests();
  ASSERT_EQ(requests.size(), 1U);
  EXPECT_TRUE(requests[0].starts_with("GET http://cache.invalid/prefix/" + http_path + " ")) << requests[0];
}

TEST(RemoteLibrary, IsUsableInAChildThatIsForkedDuringItsFirstUse) {
  constexpr std::size_t most_children = 30;
  for (int round = 0; round < 50; ++round) {
    // Each round has a process of its own, and therefore a first use.
    const std::string told = fakes::in_child([]() -> std::string {
      // As caches do, which have mutexes for forks.
      static_cast<void>(base::fork_generation());
      const auto use = [] {
        const auto store = open_remote_store(parse_store_url("https://127.0.0.1:1/x").value());
        return store.ok() ? code_of((*store)->get(http_path, ample())) : store.error().message();
      };
      std::atomic<bool> is_used{false};
      std::thread first([&] {
        use();
        is_used = true;
      });
      std::vector<std::unique_ptr<fakes::Child>> children;
      while (!is_used && children.size() < most_children)
        children.push_back(std::make_unique<fakes::Child>([&use](const fakes::Child::Report& report) {
          alarm(60);
          report(use());
        }));
      first.join();
      for (const auto& child : children)
        if (const std::string result = child->report(); result != "io") return result;
      return "done";
    });
    ASSERT_EQ(told, "done") << "round " << round;
  }
}

TEST(HttpStore, NamesTheServerAndNoSecretIfItCannotBeReached) {
  const std::string url = fmt::format("http://user:{}@127.0.0.1:{}/cache", http_secret, fakes::free_port());
  const auto got = http_store(url)->get(http_path, ample());
  ASSERT_EQ(code_of(got), "io");
  EXPECT_TRUE(has_text(got.error().message(), "http://127.0.0.1:")) << got.error().message();
  EXPECT_EQ(code_of(http_store("http://cache.invalid/x")->get(http_path, ample())), "io");
}

}  // namespace
}  // namespace kiln::store
