#include <gtest/gtest.h>

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include <kiln/cache.hpp>

#include "fakes/cache_fixture.hpp"
#include "fakes/child.hpp"
#include "fakes/fault_proxy.hpp"
#include "fakes/files.hpp"
#include "fakes/servers.hpp"
#include "store/config_folders.hpp"
#include "store/file_store.hpp"
#include "store/remote_library.hpp"
#include "store/sealed_entry.hpp"
#include "store/signatures.hpp"

// Caches of several machines that share real servers and folders, with signed entries.
namespace kiln {
namespace {

using fakes::request;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

/// A password that no log or message may contain.
constexpr const char* secret = "correct-horse-7391";
constexpr int shared_programs = 24;

/// The place that machines share.
class Place {
 public:
  virtual ~Place() = default;
  virtual std::string url(const std::string& options) const = 0;
  /// With "wrong-password-5520" in place of the password.
  virtual std::string wrong_url(const std::string& options) const {
    std::string url = this->url(options);
    return url.replace(url.find(secret), std::string(secret).size(), "wrong-password-5520");
  }
  /// Null for a folder.
  virtual fakes::Server* server() { return nullptr; }
  std::unique_ptr<store::ObjectStore> objects() const {
    const auto url = store::parse_store_url(this->url({})).value();
    return url.is_network() ? store::open_remote_store(url).value() : store::make_file_store(url.path).value();
  }
};

/// A folder that everybody can write to.
class OpenFolder final : public Place {
 public:
  OpenFolder() { std::filesystem::permissions(folder_.path(), std::filesystem::perms::all); }
  std::string url(const std::string& options) const override {
    return "file://" + folder_.path().string() + (options.empty() ? "" : "?" + options);
  }

 private:
  fakes::TemporaryFolder folder_;
};

template <class Kind>
class ServerPlace final : public Place {
 public:
  explicit ServerPlace(const typename Kind::Options& options) : server_(options) {}
  std::string url(const std::string& options) const override { return server_.url(options); }
  fakes::Server* server() override { return &server_; }

 private:
  Kind server_;
};

class S3Place final : public Place {
 public:
  std::string url(const std::string& options) const override { return server_.url(options); }
  std::string wrong_url(const std::string& options) const override {
    return server_.url(options + "&profile=wrong");
  }
  fakes::Server* server() override { return &server_; }

 private:
  fakes::S3Server server_{{.secret_key = secret}};
};

struct PlaceKind {
  const char* name;
  const char* program;
  std::function<std::unique_ptr<Place>()> make;
  friend void PrintTo(const PlaceKind& kind, std::ostream* out) { *out << kind.name; }
};

const PlaceKind place_kinds[] = {
    {"Folder", "", [] { return std::make_unique<OpenFolder>(); }},
    {"Nginx", "nginx",
     []() -> std::unique_ptr<Place> {
       return std::make_unique<ServerPlace<fakes::NginxServer>>(
           fakes::NginxServer::Options{.user = "kiln", .password = secret});
     }},
    {"Redis", "redis-server",
     []() -> std::unique_ptr<Place> {
       return std::make_unique<ServerPlace<fakes::RedisServer>>(fakes::RedisServer::Options{.password = secret});
     }},
    {"S3", "python3-botocore", [] { return std::make_unique<S3Place>(); }},
};

class SharingTest : public fakes::CacheTest {
 protected:
  void SetUp() override {
    ::setenv("XDG_CONFIG_HOME", config().c_str(), 1);
    ::unsetenv("KILN_SIGNING_KEY");
    std::filesystem::create_directories(config() / "kiln");
    own_key(make_key("ci"));
  }
  void TearDown() override {
    for (const char* variable : {"KILN_REMOTE", "KILN_SHARED"}) ::unsetenv(variable);
    for (const LogRecord& record : book_.records())
      EXPECT_EQ(record.message.find(secret), std::string::npos) << "a log contains the password";
  }

  std::filesystem::path config() const { return folder_.path() / "config"; }
  static store::SigningKey make_key(const std::string& name) { return store::SigningKey::generate(name).value(); }
  /// This machine signs with the key, and trusts it.
  void own_key(const store::SigningKey& key) {
    ASSERT_TRUE(key.write(config() / "kiln" / "keys" / (key.name() + ".key")));
    trust(key);
  }
  void trust(const store::SigningKey& key) {
    const auto public_key = key.public_key();
    ASSERT_TRUE(store::add_keys(config() / "kiln", store::trusted_keys_name, std::span(&public_key, 1)));
  }
  void forget_own_keys() { std::filesystem::remove_all(config() / "kiln" / "keys"); }
  void trust_nobody() { std::filesystem::remove(config() / "kiln" / "trusted-keys"); }

  std::unique_ptr<Cache> node(const std::string& name, const std::string& url) {
    CacheOptions options = this->options();
    options.directory = folder_.path() / name;
    options.stores = std::vector<SharedStore>{url};
    return std::make_unique<Cache>(backend_, options);
  }
  /// gets all programs, and returns how many were compiled.
  static std::uint64_t get_all(Cache& cache, int count = shared_programs) {
    for (int i = 0; i < count; ++i) {
      const auto program = cache.get(request(i));
      EXPECT_TRUE(program) << program.error().message();
      if (program) {
        EXPECT_EQ(text(*program), "source of program " + std::to_string(i));
      }
    }
    cache.flush();
    fakes::expect_counts_add_up(cache.stats());
    return cache.stats().compiles;
  }
  std::string path_of(int i) const {
    const std::string key = request(i).key().digest.hex();
    return "3/" + backend_->identity().digest().hex() + "/" + key.substr(0, 2) + "/" + key;
  }
  std::string logged() const {
    std::string text;
    for (const LogRecord& record : book_.records()) text += record.message + "\n";
    return text;
  }
};

class Sharing : public SharingTest, public testing::WithParamInterface<PlaceKind> {
 protected:
  void SetUp() override {
    if (*GetParam().program != '\0' && !fakes::is_installed(GetParam().program))
      GTEST_SKIP() << GetParam().program << " is not installed";
    SharingTest::SetUp();
    place_ = GetParam().make();
  }

  std::unique_ptr<Place> place_;
};

TEST_P(Sharing, TheSecondMachineCompilesNothing) {
  EXPECT_EQ(get_all(*node("one", place_->url({}))), static_cast<std::uint64_t>(shared_programs));
  const auto second = node("two", place_->url({}));
  EXPECT_EQ(get_all(*second), 0U) << logged();
  const Stats stats = second->stats();
  EXPECT_EQ(stats.shared_hits, static_cast<std::uint64_t>(shared_programs));
  EXPECT_EQ(stats.stores.at(0).verify, Verification::required);
  EXPECT_EQ(stats.store_failures, 0U) << logged();
  EXPECT_GT(stats.stores.at(0).latency_p99, std::chrono::nanoseconds(0));
  EXPECT_TRUE(book_.records().empty()) << logged();
}

TEST_P(Sharing, ObjectsAreTheBytesOnDiskBesideAnIdentity) {
  static_cast<void>(node("one", place_->url({}))->get(request(0)).value());
  const auto objects = place_->objects();
  const auto shared = objects->get(path_of(0), {}).value().value();
  ASSERT_EQ(entries().size(), 1U);
  EXPECT_TRUE(fakes::bytes_of(fakes::read_file(entries()[0])) == shared);
  EXPECT_TRUE(objects->has("3/" + backend_->identity().digest().hex() + "/identity.json", {}).value());
}

TEST_P(Sharing, AMachineWithoutAPrivateKeyOnlyReads) {
  static_cast<void>(get_all(*node("one", place_->url({})), 2));
  forget_own_keys();
  const auto reader = node("two", place_->url({}));
  EXPECT_EQ(get_all(*reader, 4), 2U);
  EXPECT_EQ(reader->stats().stores.at(0).uploads, 0U);
  EXPECT_EQ(reader->stats().stores.at(0).mode, StoreMode::read_only);
  EXPECT_FALSE(place_->objects()->has(path_of(3), {}).value());
}

TEST_P(Sharing, WithoutVerificationNoKeyIsNeeded) {
  forget_own_keys();
  trust_nobody();
  static_cast<void>(get_all(*node("one", place_->url("verify=off"))));
  EXPECT_EQ(get_all(*node("two", place_->url("verify=off"))), 0U) << logged();
}

TEST_P(Sharing, UnsignedEntriesAreNotUsed) {
  forget_own_keys();
  static_cast<void>(get_all(*node("one", place_->url("verify=off")), 3));
  backend_->loads = 0;
  const auto second = node("two", place_->url({}));
  EXPECT_EQ(get_all(*second, 3), 3U);
  EXPECT_EQ(backend_->loads, 0) << "an unsigned entry reached the driver";
  EXPECT_EQ(second->stats().stores.at(0).refusals, 3U);
}

TEST_P(Sharing, EntriesOfAStrangerAreNotUsedAndLoggedOnce) {
  static_cast<void>(get_all(*node("one", place_->url({})), 5));
  forget_own_keys();
  trust_nobody();
  own_key(make_key("other"));
  backend_->loads = 0;
  const auto second = node("two", place_->url("mode=ro"));
  EXPECT_EQ(get_all(*second, 5), 5U);
  EXPECT_EQ(backend_->loads, 0) << "an entry of a stranger reached the driver";
  EXPECT_EQ(second->stats().stores.at(0).refusals, 5U);
  EXPECT_EQ(book_.records().size(), 1U) << logged();
  EXPECT_NE(logged().find("ci"), std::string::npos) << "the signer is not named";
  EXPECT_TRUE(place_->objects()->has(path_of(0), {}).value()) << "a client deletes nothing";
}

TEST_P(Sharing, AfterARevocationEntriesAreNotUsed) {
  const auto leaked = make_key("leaked");
  forget_own_keys();
  own_key(leaked);
  static_cast<void>(get_all(*node("one", place_->url({})), 2));
  const auto key = leaked.public_key();
  ASSERT_TRUE(store::add_keys(config() / "kiln", store::revoked_keys_name, std::span(&key, 1)));
  EXPECT_EQ(get_all(*node("two", place_->url("mode=ro")), 2), 2U);
}

TEST_P(Sharing, DuringAKeyRotationOldAndNewMachinesUseTheEntries) {
  forget_own_keys();
  const auto old = make_key("old");
  const auto next = make_key("next");
  own_key(old);
  own_key(next);  // Both sign.
  static_cast<void>(get_all(*node("one", place_->url({})), 3));
  forget_own_keys();
  for (const auto* key : {&old, &next}) {
    trust_nobody();
    trust(*key);
    EXPECT_EQ(get_all(*node("trusts " + key->name(), place_->url({})), 3), 0U) << logged();
  }
}

TEST_P(Sharing, EntriesOfAMachineWhoseClockIsTenYearsOffAreUsed) {
  static_cast<void>(get_all(*node("one", place_->url({})), 1));
  const auto objects = place_->objects();
  const auto opened = store::open_entry(objects->get(path_of(0), {}).value().value()).value();
  const auto keys = store::signing_keys("", store::config_folders()).value();
  for (const int years : {-10, 10}) {
    auto entry = opened.entry;
    entry.created += years * std::chrono::hours(24 * 365);
    ASSERT_TRUE(
        objects->put(path_of(0), store::sign_entry(store::seal_entry(opened.label, entry), keys).value(), {}));
    EXPECT_EQ(get_all(*node("two" + std::to_string(years), place_->url("mode=ro")), 1), 0U) << logged();
  }
}

TEST_P(Sharing, AnEntryThatIsAlteredAnywhereIsNotUsed) {
  static_cast<void>(get_all(*node("one", place_->url({})), 1));
  const auto objects = place_->objects();
  const auto sound = objects->get(path_of(0), {}).value().value();
  int cases = 0;
  for (std::size_t at = 0; at < sound.size(); at += 7, ++cases) {
    auto altered = sound;
    altered[at] ^= std::byte{static_cast<unsigned char>(1 << (at % 8))};
    ASSERT_TRUE(objects->put(path_of(0), altered, {}));
    backend_->loads = 0;
    const auto second = node("two" + std::to_string(at), place_->url("mode=ro"));
    EXPECT_EQ(get_all(*second, 1), 1U) << "byte " << at;
    EXPECT_EQ(backend_->loads, 0) << "byte " << at << " reached the driver";
  }
  RecordProperty("cases", cases);
}

TEST_P(Sharing, AnEntryInThePlaceOfAnotherIsNotUsed) {
  static_cast<void>(get_all(*node("one", place_->url({})), 2));
  const auto objects = place_->objects();
  ASSERT_TRUE(objects->put(path_of(0), objects->get(path_of(1), {}).value().value(), {}));
  // Of another device as well.
  const auto other = std::make_shared<fakes::FakeBackend>(Identity{"fake", "Kiln", "nothing", "2.0", "1.0", {7}});
  const std::string key = request(1).key().digest.hex();
  ASSERT_TRUE(objects->put("3/" + other->identity().digest().hex() + "/" + key.substr(0, 2) + "/" + key,
                           objects->get(path_of(1), {}).value().value(), {}));
  EXPECT_EQ(get_all(*node("two", place_->url("mode=ro")), 2), 1U);
  CacheOptions options = this->options();
  options.directory = folder_.path() / "three";
  options.stores = std::vector<SharedStore>{place_->url("mode=ro")};
  EXPECT_EQ(Cache(other, options).get(request(1)).value().origin(), Origin::compiled);
  EXPECT_EQ(other->loads, 0);
}

TEST_P(Sharing, ManyMachinesAndThreadsShareAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t)
    threads.emplace_back([&, t] {
      const auto cache = node("machine" + std::to_string(t / 2), place_->url({}));
      static_cast<void>(get_all(*cache));
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(get_all(*node("last", place_->url({}))), 0U) << logged();
}

INSTANTIATE_TEST_SUITE_P(Places, Sharing, testing::ValuesIn(place_kinds),
                         [](const auto& kind) { return kind.param.name; });

/// Servers only: what happens if they fail.
class SharingWithServer : public Sharing {
 protected:
  std::string plain() const { return place_->url("verify=off"); }
  /// The time in which 8 threads get 200 new programs.
  milliseconds time_for_200(const std::string& name, const std::string& url) {
    CacheOptions options = this->options();
    options.directory = folder_.path() / name;
    options.stores.emplace();
    if (!url.empty()) options.stores->emplace_back(url);
    options.upload_limit = milliseconds(0);
    Cache cache(backend_, options);
    const auto start = steady_clock::now();
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t)
      threads.emplace_back([&, t] {
        for (int i = t; i < 200; i += 8) EXPECT_TRUE(cache.get(request(1000 + i)));
      });
    for (std::thread& thread : threads) thread.join();
    const auto took = std::chrono::duration_cast<milliseconds>(steady_clock::now() - start);
    return took;
  }
};

TEST_P(SharingWithServer, ThatIsDownOrStoppedDelaysProgramsByHalfASecondAtMost) {
  const auto alone = time_for_200("alone", {});
  place_->server()->pause();
  const auto paused = time_for_200("paused", plain());
  place_->server()->resume();
  place_->server()->stop();
  const auto down = time_for_200("down", plain());
  // The machine may be busy with other tests: `./dev sharing` measures.
  EXPECT_LT(paused, alone + milliseconds(1500));
  EXPECT_LT(down, alone + milliseconds(1500));
  RecordProperty("alone_ms", static_cast<int>(alone.count()));
  RecordProperty("paused_ms", static_cast<int>(paused.count()));
  RecordProperty("down_ms", static_cast<int>(down.count()));
}

TEST_P(SharingWithServer, ThatReturnsIsUsedAgain) {
  static_cast<void>(get_all(*node("one", plain())));
  const auto second = node("two", plain());
  place_->server()->stop();
  for (int i = 100; i < 105; ++i) EXPECT_TRUE(second->get(request(i)));
  EXPECT_FALSE(second->stats().stores.at(0).reading) << logged();
  place_->server()->start();
  if (std::string(GetParam().name) == "Redis") static_cast<void>(get_all(*node("three", plain())));
  const auto limit = steady_clock::now() + seconds(60);
  for (int i = 1000; !second->stats().stores.at(0).reading && steady_clock::now() < limit; ++i) {
    EXPECT_TRUE(second->get(request(i)));
    std::this_thread::yield();
  }
  EXPECT_EQ(second->get(request(0)).value().origin(), Origin::shared) << logged();
}

TEST_P(SharingWithServer, ThatIsStoppedDoesNotDelayTheEndForLong) {
  place_->server()->pause();
  const auto start = steady_clock::now();
  {
    const auto cache = node("one", plain());
    for (int i = 0; i < 10; ++i) EXPECT_TRUE(cache->get(request(i)));
  }
  EXPECT_LT(steady_clock::now() - start, milliseconds(3500))
      << "150 ms for each of the first gets, and 2 s at the end";
  place_->server()->resume();
}

TEST_P(SharingWithServer, ThatRefusesThePasswordIsNotUsed) {
  const auto cache = node("one", place_->wrong_url("verify=off"));
  EXPECT_EQ(get_all(*cache, 5), 5U);
  EXPECT_GE(cache->stats().stores.at(0).errors, 3U);
  EXPECT_EQ(logged().find("wrong-password-5520"), std::string::npos) << logged();
}

TEST_P(SharingWithServer, BehindAFaultyNetworkCostsCompilesOnly) {
  static_cast<void>(get_all(*node("one", plain())));
  fakes::FaultProxy proxy(place_->server()->port());
  std::string url = place_->url("verify=off&mode=ro");
  const std::string port = std::to_string(place_->server()->port());
  url.replace(url.rfind(":" + port), port.size() + 1, ":" + std::to_string(proxy.port()));
  using fakes::NetworkFault;
  const std::pair<const char*, NetworkFault> faults[] = {
      {"late", NetworkFault::delay_answers(milliseconds(100))},
      {"very late", NetworkFault::delay_answers(seconds(5))},
      {"reset at once", NetworkFault::reset_at_accept()},
      {"reset later", NetworkFault::reset_after(200)},
      {"truncated", NetworkFault::truncate_after(200)},
      {"half open", NetworkFault::half_open()},
      {"drip", NetworkFault::drip()},
      {"garbage", NetworkFault::garbage()},
      {"endless", NetworkFault::endless("HTTP/1.1 200 OK\r\n\r\n")},
      {"endless line", NetworkFault::endless("+")},
      {"refused", NetworkFault::refuse()}};
  for (const auto& [name, fault] : faults) {
    proxy.set(fault);
    const auto cache = node(name, url);
    const auto start = steady_clock::now();
    static_cast<void>(get_all(*cache, 6));
    EXPECT_LT(steady_clock::now() - start, seconds(8)) << name;
  }
  proxy.set({});
  EXPECT_EQ(get_all(*node("after", url)), 0U) << logged();
}

TEST_P(SharingWithServer, WorksInAForkedChildAndInItsParent) {
  const auto cache = node("one", plain());
  static_cast<void>(get_all(*cache, 3));
  fakes::Child child([&](const fakes::Child::Report& report) {
    static_cast<void>(cache->get(request(10)));
    cache->flush();
    const auto own = node("child", plain());
    report(std::string(to_string(own->get(request(0)).value().origin())));
  });
  EXPECT_TRUE(cache->get(request(11)));
  EXPECT_EQ(child.report(), "shared");
  cache->flush();
  EXPECT_EQ(node("two", plain())->get(request(10)).value().origin(), Origin::shared);
  EXPECT_EQ(node("three", plain())->get(request(11)).value().origin(), Origin::shared);
}

INSTANTIATE_TEST_SUITE_P(Servers, SharingWithServer, testing::ValuesIn(std::span(place_kinds).subspan(1)),
                         [](const auto& kind) { return kind.param.name; });

TEST_F(SharingTest, SettingsOfTheEnvironmentAndTheConfigFileAreUsed) {
  const auto shared = "file://" + (folder_.path() / "shared").string();
  CacheOptions options = this->options();
  options.directory = folder_.path() / "one";
  ::setenv("KILN_SHARED", shared.c_str(), 1);
  { EXPECT_TRUE(Cache(backend_, options).get(request(0))); }
  ::unsetenv("KILN_SHARED");
  fakes::write_file(config() / "kiln" / "kiln.conf", "store = " + shared + "\n");
  options.directory = folder_.path() / "two";
  EXPECT_EQ(Cache(backend_, options).get(request(0)).value().origin(), Origin::shared) << logged();
  options.directory = folder_.path() / "three";
  options.stores.emplace();
  EXPECT_EQ(Cache(backend_, options).get(request(0)).value().origin(), Origin::compiled) << "the code comes first";
}

// Before all tests that use a server: a process opens the library once.
TEST_F(SharingTest, WithoutTheLibraryForServersThereIsOneWarning) {
  ::setenv("KILN_REMOTE", "/does/not/exist.so", 1);
  const auto cache = node("one", "redis://localhost:1/");
  EXPECT_EQ(get_all(*cache, 5), 5U);
  EXPECT_EQ(book_.records().size(), 1U) << logged();
  EXPECT_FALSE(cache->stats().stores.at(0).usable);
}

TEST_F(SharingTest, AServerIsUsedOnceTheFileWithItsPasswordIsThere) {
  if (!fakes::is_installed("redis-server")) GTEST_SKIP() << "redis-server is not installed";
  const fakes::RedisServer server({.password = secret});
  static_cast<void>(get_all(*node("one", server.url()), 2));
  const auto file = folder_.path() / "password";
  const auto cache =
      node("two", fmt::format("redis://127.0.0.1:{}?password_file={}", server.port(), file.string()));
  EXPECT_EQ(cache->get(request(0)).value().origin(), Origin::compiled);
  EXPECT_EQ(cache->stats().stores.at(0).errors, 1U) << logged();
  fakes::write_file(file, secret);
  EXPECT_EQ(cache->get(request(1)).value().origin(), Origin::shared) << logged();
}

}  // namespace
}  // namespace kiln
