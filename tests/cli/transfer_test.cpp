#include <cstdlib>
#include <random>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "fakes/fault_proxy.hpp"
#include "fakes/servers.hpp"
#include "store/catalogue.hpp"
#include "transfer_fixture.hpp"

// Transfers of many programs that are interrupted or killed, or whose server fails. KILN_PUSH_PROGRAMS sets the
// number of programs.
namespace kiln::cli {
namespace {

constexpr int interruptions = 10;
constexpr int jobs = 4;

int programs_to_transfer() {
  const char* wanted = std::getenv("KILN_PUSH_PROGRAMS");
  return wanted != nullptr ? std::atoi(wanted) : 200;
}

/// The transfers of entries that a server has completed, by path.
using Counts = std::map<std::string, int>;

/// A real server behind a proxy that delays its answers.
class SlowServer {
 public:
  virtual ~SlowServer() = default;
  virtual std::string url(const std::string& options = "verify=off") const {
    return fmt::format("{}{}/{}?{}", scheme(), proxy_->port(), path(), options);
  }
  fakes::FaultProxy& proxy() { return *proxy_; }
  virtual fakes::Server& server() = 0;
  virtual std::size_t stored() = 0;
  virtual Counts uploads() = 0;
  virtual Counts downloads() = 0;

 protected:
  void set_proxy(std::uint16_t port) {
    proxy_ = std::make_unique<fakes::FaultProxy>(port);
    proxy_->set(fakes::NetworkFault::delay_answers(3ms));
  }
  std::uint16_t port() const { return proxy_->port(); }
  virtual std::string scheme() const { return {}; }
  virtual std::string path() const { return {}; }
  static bool is_entry(const std::string& path) { return !path.ends_with(".json"); }

 private:
  std::unique_ptr<fakes::FaultProxy> proxy_;
};

class SlowNginx final : public SlowServer {
 public:
  SlowNginx() { set_proxy(nginx_.port()); }
  fakes::Server& server() override { return nginx_; }
  std::size_t stored() override {
    std::size_t count = 0;
    std::error_code ignored;
    for (const auto& item : fs::recursive_directory_iterator(nginx_.objects(), ignored))
      count += item.path().filename().string().size() == 64 && item.is_regular_file(ignored) ? 1U : 0U;
    return count;
  }
  Counts uploads() override { return count("PUT", {"201", "204"}); }
  Counts downloads() override { return count("GET", {"200"}); }

 private:
  std::string scheme() const override { return "http://127.0.0.1:"; }
  std::string path() const override { return "cache"; }
  Counts count(const std::string& method, const std::set<std::string>& statuses) const {
    Counts counts;
    std::istringstream log(nginx_.log());
    for (std::string line; std::getline(log, line);) {
      std::istringstream words(line);
      std::string found, path, status;
      if (words >> found >> path >> status; found == method && statuses.contains(status) && is_entry(path))
        ++counts[path];
    }
    return counts;
  }

  fakes::NginxServer nginx_{{.lists = true, .logs_requests = true}};
};

class SlowS3 final : public SlowServer {
 public:
  SlowS3() { set_proxy(s3_.port()); }
  std::string url(const std::string& options) const override {
    return fmt::format("s3://{}/cache?endpoint=http://127.0.0.1:{}&region=eu-central-1&{}", fakes::S3Server::bucket,
                       port(), options);
  }
  fakes::Server& server() override { return s3_; }
  std::size_t stored() override {
    std::size_t count = 0;
    std::error_code ignored;
    for (const auto& item : fs::directory_iterator(s3_.folder() / "objects", ignored))
      count += is_entry(item.path()) && !item.path().filename().string().starts_with('.') ? 1U : 0U;
    return count;
  }
  Counts uploads() override { return count("PUT"); }
  Counts downloads() override { return count("GET"); }

 private:
  Counts count(const std::string& method) const {
    Counts counts;
    std::istringstream log(s3_.requests());
    for (std::string found, path, status; log >> found >> path >> status;)
      if (found == method && status == "200" && path.find('?') == std::string::npos && is_entry(path))
        ++counts[path];
    return counts;
  }

  fakes::S3Server s3_;
};

class SlowRedis final : public SlowServer {
 public:
  SlowRedis() { set_proxy(redis_.port()); }
  fakes::Server& server() override { return redis_; }
  std::size_t stored() override { return std::stoul(ask("DBSIZE").substr(1)); }
  Counts uploads() override { return count("SET"); }
  Counts downloads() override { return count("GET"); }

 private:
  std::string scheme() const override { return "redis://127.0.0.1:"; }
  std::string path() const override { return "0"; }
  /// The answer as the server sends it.
  std::string ask(const std::string& command) const {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(redis_.port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const base::FileHandle socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const std::string request = command + "\r\nQUIT\r\n";
    if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size()))
      throw std::runtime_error("cannot ask Redis");
    std::string answer;
    std::vector<char> bytes(1 << 16);
    for (ssize_t got = 0; (got = recv(socket.get(), bytes.data(), bytes.size(), 0)) > 0;)
      answer.append(bytes.data(), static_cast<std::size_t>(got));
    return answer;
  }
  /// From the log of "slow" commands, which has all of them.
  Counts count(const std::string& command) const {
    Counts counts;
    const std::string log = ask("SLOWLOG GET -1");
    const std::string begin = "\r\n" + command + "\r\n$";
    for (std::size_t at = log.find(begin); at != std::string::npos; at = log.find(begin, at + 1)) {
      const std::size_t key = log.find('\n', at + begin.size()) + 1;
      const std::string path = log.substr(key, log.find('\r', key) - key);
      // The log has itself, too.
      if (path.starts_with("kiln/") && is_entry(path)) ++counts[path];
    }
    return counts;
  }

  fakes::RedisServer redis_{{.arguments = {"--slowlog-log-slower-than", "0", "--slowlog-max-len", "1000000"}}};
};

struct ServerKind {
  const char* name;
  const char* program;
  std::unique_ptr<SlowServer> (*make)();
  friend void PrintTo(const ServerKind& kind, std::ostream* out) { *out << kind.name; }
};

class Interrupted : public Transfers, public testing::WithParamInterface<ServerKind> {
 protected:
  void SetUp() override {
    const std::string name = GetParam().name;
    if (!fakes::is_installed(GetParam().program)) GTEST_SKIP() << GetParam().program << " is not installed";
    if (name == "Nginx" && !fakes::is_dav_ext_installed())
      GTEST_SKIP() << "nginx's module dav_ext is not installed";
    server_ = GetParam().make();
    store_programs(fire_gpu, 1, programs_);
  }

  Words words(const std::string& command) const {
    return words_of(command, command == "push" ? cache() : restored(), server_->url(),
                    {"--jobs", std::to_string(jobs)});
  }
  std::size_t progress(const std::string& command) const {
    return command == "push" ? server_->stored() : count_files(restored(), ".bin");
  }

  /// Begins the command ten times, and sends a signal at a random moment. Returns how often it came before the end.
  int interrupt(const std::string& command, int signal) {
    int interrupted = 0;
    for (int i = 0; i < interruptions; ++i) {
      // At least one transfer, so that the command runs when the signal comes.
      std::uniform_int_distribution<int> part(1, programs_ / (interruptions + 2));
      const std::size_t until = progress(command) + static_cast<std::size_t>(part(random_));
      RunningCommand running(home_.path(), words(command), {});
      while (progress(command) < until && !running.has_ended()) std::this_thread::yield();
      running.send(signal);
      const auto outcome = running.wait();
      if (outcome.status == (signal == SIGKILL ? 128 + SIGKILL : 130)) ++interrupted;
      EXPECT_TRUE(outcome.status != 130 || contains(outcome.error, "done; run the same command to go on"))
          << outcome.error;
    }
    return interrupted;
  }

  void expect_complete(const std::string& command) const {
    const auto outcome = command_.run(words(command));
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    const auto again =
        command_.run(words_of(command, command == "push" ? cache() : restored(), server_->url(), {"--json"}));
    EXPECT_EQ(again.json()["present"], programs_);
    EXPECT_EQ(again.json()["bytes"], 0);
  }

  /// Checks that each program was transferred, and that at most `more` were transferred again.
  void expect_transfers(const Counts& counts, int more) const {
    EXPECT_EQ(counts.size(), static_cast<std::size_t>(programs_));
    int all = 0;
    for (const auto& [path, count] : counts) all += count;
    EXPECT_LE(all, programs_ + more);
    RecordProperty("transferred_again", all - programs_);
  }

  const int programs_ = programs_to_transfer();
  std::mt19937 random_{std::random_device{}()};
  std::unique_ptr<SlowServer> server_;
};

TEST_P(Interrupted, TransfersNothingTwice) {
  EXPECT_EQ(interrupt("push", SIGINT), interruptions);
  expect_complete("push");
  expect_transfers(server_->uploads(), 0);
  EXPECT_EQ(interrupt("pull", SIGINT), interruptions);
  expect_complete("pull");
  expect_transfers(server_->downloads(), 0);
  EXPECT_EQ(entries_in(restored()), entries_in(cache()));
}

TEST_P(Interrupted, ByAKillTransfersOnlyWhatWasInFlightAgain) {
  EXPECT_EQ(interrupt("push", SIGKILL), interruptions);
  expect_complete("push");
  expect_transfers(server_->uploads(), interruptions * jobs);
  EXPECT_EQ(interrupt("pull", SIGKILL), interruptions);
  expect_complete("pull");
  expect_transfers(server_->downloads(), interruptions * jobs);
  EXPECT_EQ(entries_in(restored()), entries_in(cache()));
}

TEST_P(Interrupted, WritesTheCatalogueOfWhatIsThere) {
  RunningCommand running(home_.path(), words("push"), {});
  while (server_->stored() < 20 && !running.has_ended()) std::this_thread::yield();
  running.send(SIGTERM);
  EXPECT_EQ(running.wait().status, 130);
  const auto objects = store::open_shared_store(store::parse_store_url(server_->url()).value()).value().objects;
  const auto bytes = objects->get(store::catalogue_path(fire_gpu.digest().hex()), {}).value();
  ASSERT_TRUE(bytes);
  const auto catalogue = store::parse_catalogue(fakes::text_of(*bytes));
  ASSERT_TRUE(catalogue);
  EXPECT_EQ(catalogue->size(), objects->list_all("3/" + fire_gpu.digest().hex(), {})->size() - 2);
  EXPECT_EQ(catalogue->at(key_of(programs_).digest).compile_time, programs_ * 1ms)
      << "the most expensive came first";
}

TEST_P(Interrupted, ByAServerThatVanishesStopsWithAMessage) {
  RunningCommand running(home_.path(), words("push"), {});
  while (server_->stored() < 20 && !running.has_ended()) std::this_thread::yield();
  server_->proxy().set(fakes::NetworkFault::reset_at_accept());
  const auto outcome = running.wait();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_FALSE(outcome.error.empty());
  server_->proxy().set(fakes::NetworkFault::none());
  expect_complete("push");
}

TEST_P(Interrupted, DoesNotWaitForAServerThatNeverAnswers) {
  server_->proxy().set(fakes::NetworkFault::half_open());
  for (const char* command : {"push", "pull"}) {
    const auto start = std::chrono::steady_clock::now();
    const std::size_t before = server_->proxy().connections();
    RunningCommand running(home_.path(),
                           words_of(command, std::string(command) == "push" ? cache() : restored(),
                                    server_->url("verify=off&timeout=100s"), {}),
                           {});
    while (server_->proxy().connections() == before && !running.has_ended()) std::this_thread::yield();
    running.send(SIGINT);
    const auto outcome = running.wait();
    EXPECT_EQ(outcome.status, 130);
    EXPECT_EQ(outcome.error, "kiln: interrupted before the first transfer; run the same command to go on\n");
    EXPECT_LT(std::chrono::steady_clock::now() - start, 60s);
  }
}

TEST_P(Interrupted, BySeveralFailuresOfTheServerGoesOn) {
  if (std::string(GetParam().name) == "S3") GTEST_SKIP() << "it takes longer to start than calls are repeated";
  RunningCommand running(home_.path(), words("push"), {});
  while (server_->stored() < 20 && !running.has_ended()) std::this_thread::yield();
  server_->server().kill();
  server_->server().start();
  const auto outcome = running.wait();
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_TRUE(contains(outcome.out, fmt::format("pushed {0} of {0} programs", programs_))) << outcome.out;
}

INSTANTIATE_TEST_SUITE_P(
    Servers, Interrupted,
    testing::Values(ServerKind{"Nginx", "nginx", [] { return std::unique_ptr<SlowServer>(new SlowNginx); }},
                    ServerKind{"Redis", "redis-server", [] { return std::unique_ptr<SlowServer>(new SlowRedis); }},
                    ServerKind{"S3", "python3-botocore", [] { return std::unique_ptr<SlowServer>(new SlowS3); }}),
    [](const auto& kind) { return std::string(kind.param.name); });

TEST_F(Transfers, OfManyProgramsOverAFolderAreCompleteAndIdentical) {
  store_programs(fire_gpu, 1, programs_to_transfer());
  EXPECT_EQ(push(backup_url(), {"--json"}).json()["pushed"], programs_to_transfer());
  EXPECT_EQ(pull(backup_url(), {"--json"}).json()["pulled"], programs_to_transfer());
  EXPECT_EQ(entries_in(restored()), entries_in(cache()));
  EXPECT_EQ(push(backup_url(), {"--json"}).json()["bytes"], 0);
}

}  // namespace
}  // namespace kiln::cli
