#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include <kiln/cache.hpp>

#include "fakes/cache_fixture.hpp"
#include "fakes/child.hpp"
#include "fakes/fault_proxy.hpp"
#include "fakes/files.hpp"
#include "fakes/servers.hpp"
#include "store/remote_library.hpp"
#include "store/store_url.hpp"

// Machines that start at once and share a Redis server, whose leases decide which of them compiles a program.
namespace kiln {
namespace {

using fakes::request;
using namespace std::chrono_literals;
using std::chrono::steady_clock;

/// The same name as request(0), but another program.
Request variant(int number) {
  return Request({.name = request(0).name(), .source = "variant " + std::to_string(number)});
}

class FleetTest : public fakes::CacheTest {
 protected:
  void SetUp() override {
    if (!fakes::is_installed("redis-server")) GTEST_SKIP() << "redis-server is not installed";
    server_ = std::make_unique<fakes::RedisServer>(fakes::RedisServer::Options{.arguments = arguments_});
    backend_->on_compile = [this](const Request&) { std::this_thread::sleep_for(compile_time_); };
  }

  std::unique_ptr<Cache> node(const std::string& name, const std::string& more = {}) {
    CacheOptions options = this->options();
    options.directory = folder_.path() / name;
    options.stores = std::vector<SharedStore>{server_->url("verify=off" + more)};
    options.threads = 2;
    options.save = save_;
    auto cache = std::make_unique<Cache>(backend_, options);
    // Opens the store. Machines that are busy with loading libcurl compile without a lease.
    EXPECT_FALSE(cache->find(request(999)).value());
    return cache;
  }
  std::vector<std::unique_ptr<Cache>> nodes(int count) {
    std::vector<std::unique_ptr<Cache>> all;
    for (int i = 0; i < count; ++i) all.push_back(node("node" + std::to_string(i)));
    return all;
  }
  template <class Body>
  static void run_all(std::vector<std::unique_ptr<Cache>>& nodes, const Body& body) {
    std::vector<std::thread> threads;
    for (auto& cache : nodes) threads.emplace_back([&] { body(*cache); });
    for (auto& thread : threads) thread.join();
  }
  static StoreStats sum(std::vector<std::unique_ptr<Cache>>& nodes) {
    StoreStats all;
    for (auto& cache : nodes) {
      const StoreStats one = cache->stats().stores.at(0);
      all.leases += one.leases;
      all.lease_waits += one.lease_waits;
      all.lease_timeouts += one.lease_timeouts;
      all.errors += one.errors;
    }
    return all;
  }
  std::unique_ptr<store::ObjectStore> objects() {
    return store::open_remote_store(store::parse_store_url(server_->url()).value()).value();
  }
  /// Takes a lease as another machine does that is stopped afterwards.
  void hold(const Request& held, std::chrono::milliseconds duration) {
    const store::Lease lease{.path = store::entry_path(backend_->identity().digest().hex(), held.key().digest),
                             .token = "another machine",
                             .duration = duration};
    ASSERT_TRUE(objects()->take_lease(lease, false, {}).value().is_taken);
  }
  static std::chrono::milliseconds time_of(const auto& body) {
    const auto start = steady_clock::now();
    body();
    return std::chrono::duration_cast<std::chrono::milliseconds>(steady_clock::now() - start);
  }

  /// On a busy machine, an answer may come too late; then a program is compiled once more, and that is counted.
  void expect_compiles(std::vector<std::unique_ptr<Cache>>& nodes, int programs) {
    const auto timeouts = static_cast<int>(sum(nodes).lease_timeouts);
    EXPECT_GE(backend_->compiles, programs);
    EXPECT_LE(backend_->compiles, programs + timeouts);
  }

  std::vector<std::string> arguments_ = {};
  bool save_ = true;
  std::chrono::milliseconds compile_time_ = 100ms;
  std::unique_ptr<fakes::RedisServer> server_;
};

TEST_F(FleetTest, EightMachinesThatStartAtOnceCompileEachProgramOnce) {
  auto all = nodes(8);
  run_all(all, [](Cache& cache) {
    for (int i = 0; i < 5; ++i) EXPECT_EQ(text(cache.get(request(i)).value()), request(i).source());
  });
  expect_compiles(all, 5);
  EXPECT_GT(sum(all).lease_waits, 0U);
}

TEST_F(FleetTest, MachinesThatPreloadTheSameProgramsShareTheWork) {
  auto all = nodes(4);
  std::vector<Request> requests;
  for (int i = 0; i < 24; ++i) requests.push_back(request(i));
  run_all(all, [&](Cache& cache) { EXPECT_EQ(cache.preload(requests).ready, 24U); });
  expect_compiles(all, 24);
  int who_compiled = 0;
  for (auto& cache : all) who_compiled += cache->stats().compiles > 0;
  EXPECT_GT(who_compiled, 1);
}

TEST_F(FleetTest, AsynchronousRequestsOfSeveralMachinesCompileOnce) {
  auto all = nodes(4);
  run_all(all, [](Cache& cache) {
    std::vector<Future<Program>> futures;
    for (int i = 0; i < 12; ++i) futures.push_back(cache.get_async(request(i)));
    for (auto& future : futures) EXPECT_TRUE(future.get());
  });
  expect_compiles(all, 12);
}

TEST_F(FleetTest, AHolderThatIsDeadCostsItsLease) {
  const auto cache = node("one");
  const auto start = steady_clock::now();
  hold(request(7), 1s);
  EXPECT_EQ(cache->get(request(7)).value().origin(), Origin::compiled);
  EXPECT_GE(steady_clock::now() - start, 1s);
  EXPECT_LT(steady_clock::now() - start, 5s);
  EXPECT_EQ(cache->stats().stores.at(0).leases, 1U);
  EXPECT_EQ(cache->stats().stores.at(0).lease_timeouts, 0U);
}

TEST_F(FleetTest, AMachineWaitsForAsLongAsItExpectsToCompile) {
  const auto cache = node("one");
  ASSERT_TRUE(cache->get(variant(0)));
  hold(variant(1), 60s);
  const auto took = time_of([&] { EXPECT_EQ(cache->get(variant(1)).value().origin(), Origin::compiled); });
  EXPECT_GE(took, 2 * compile_time_);
  EXPECT_LT(took, 5s);
  EXPECT_EQ(cache->stats().stores.at(0).lease_timeouts, 1U);
}

TEST_F(FleetTest, AFailedCompileGivesTheLeaseBack) {
  const auto one = node("one");
  const auto two = node("two");
  const Request broken({.name = "broken", .source = "does not compile"});
  EXPECT_EQ(one->get(broken).error().code(), ErrorCode::compile_failed);
  EXPECT_LT(time_of([&] { EXPECT_EQ(two->get(broken).error().code(), ErrorCode::compile_failed); }), 3s);
  EXPECT_EQ(two->stats().stores.at(0).leases, 1U);
}

TEST_F(FleetTest, AMachineThatUploadsNothingTakesNoLeaseButWaits) {
  const auto reader = node("reader", "&mode=ro");
  EXPECT_EQ(reader->get(request(0)).value().origin(), Origin::compiled);
  EXPECT_EQ(reader->stats().stores.at(0).leases, 0U);
  compile_time_ = 300ms;
  std::atomic<bool> compiles{false};
  backend_->on_compile = [&](const Request&) {
    compiles = true;
    std::this_thread::sleep_for(compile_time_);
  };
  const auto writer = node("writer");
  std::thread other([&] { EXPECT_TRUE(writer->get(request(1))); });
  while (!compiles) std::this_thread::yield();
  EXPECT_EQ(reader->get(request(1)).value().origin(), Origin::shared);
  other.join();
}

TEST_F(FleetTest, TheNetworkDelaysNoCompileByMoreThanAMoment) {
  const auto cache = node("one", "&timeout=10s");
  ASSERT_TRUE(cache->get(request(0)));
  server_->pause();
  for (int i = 1; i < 4; ++i)
    EXPECT_LT(time_of([&] { EXPECT_EQ(cache->get(request(i)).value().origin(), Origin::compiled); }), 2s);
  server_->resume();
}

TEST_F(FleetTest, AHolderThatIsKilledIsReplaced) {
  fakes::Child holder([this](const fakes::Child::Report& report) {
    const auto cache = node("holder");
    // Its lease is short, because it knows how long compiling takes.
    compile_time_ = 10ms;
    static_cast<void>(cache->get(variant(0)));
    backend_->on_compile = [&](const Request&) {
      report("compiling");
      std::this_thread::sleep_for(1min);
    };
    static_cast<void>(cache->get(variant(1)));
  });
  ASSERT_EQ(holder.report(), "compiling");
  holder.kill();
  const auto cache = node("waiter");
  EXPECT_LT(time_of([&] { EXPECT_EQ(cache->get(variant(1)).value().origin(), Origin::compiled); }), 8s);
  EXPECT_EQ(cache->stats().stores.at(0).leases, 1U) << "it compiled without the lease";
}

TEST_F(FleetTest, NodesThatAreKilledAndStartedAgainAtRandomEndWithAllPrograms) {
  constexpr int machines = 8;
  constexpr int programs = 20;
  compile_time_ = 20ms;
  std::mt19937 random(4711);
  const auto start = [&](int i) {
    return std::make_unique<fakes::Child>([this, i](const fakes::Child::Report& report) {
      // A killed machine comes back without its disk.
      const auto cache = node(fmt::format("node{}-{}", i, ::getpid()));
      // Dead holders cost a second, because the time to compile is known.
      static_cast<void>(cache->get(variant(-1)));
      for (int k = 0; k < programs; ++k)
        if (auto program = cache->get(variant(k)); !program || text(*program) != variant(k).source())
          return report("wrong program");
      cache->flush();
      report("done " + std::to_string(cache->stats().compiles));
    });
  };
  std::vector<std::unique_ptr<fakes::Child>> all;
  for (int i = 0; i < machines; ++i) all.push_back(start(i));
  int restarts = 0;
  for (; restarts < 12; ++restarts) {
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 60));
    const int i = static_cast<int>(random() % machines);
    all[static_cast<std::size_t>(i)] = nullptr;
    all[static_cast<std::size_t>(i)] = start(i);
  }
  for (auto& child : all) EXPECT_TRUE(child->report().starts_with("done ")) << "a node did not get all programs";
}

TEST_F(FleetTest, ADamagedEntryIsReplacedByOneMachine) {
  compile_time_ = 300ms;
  const auto path = store::entry_path(backend_->identity().digest().hex(), request(0).key().digest);
  ASSERT_TRUE(objects()->put(path, std::as_bytes(std::span("damaged", 7)), {}));
  auto all = nodes(4);
  run_all(all, [](Cache& cache) { EXPECT_TRUE(cache.get(request(0))); });
  expect_compiles(all, 1);
}

TEST_F(FleetTest, AMachineThatSavesNothingWaitsForNobody) {
  save_ = false;
  const auto cache = node("one");
  hold(request(0), 60s);
  EXPECT_LT(time_of([&] { EXPECT_EQ(cache->get(request(0)).value().origin(), Origin::compiled); }), 5s);
  EXPECT_EQ(cache->stats().stores.at(0).lease_timeouts, 0U);
}

TEST_F(FleetTest, LargeProgramsAreWaitedForToo) {
  const Request large({.name = "large", .source = std::string(8 << 20, 'x')});
  auto all = nodes(4);
  run_all(all, [&](Cache& cache) { EXPECT_TRUE(cache.get(large)); });
  expect_compiles(all, 1);
}

TEST_F(FleetTest, AStallOfTheServerDoesNotEndAWait) {
  // What the other machine uploads.
  {
    CacheOptions options = this->options();
    options.stores.emplace();
    Cache other(std::make_shared<fakes::FakeBackend>(), options);
    ASSERT_TRUE(other.get(request(0)));
  }
  const std::string sealed = fakes::read_file(entries().at(0));
  const auto cache = node("one");
  hold(request(0), 60s);
  std::thread waiter([&] { EXPECT_EQ(cache->get(request(0)).value().origin(), Origin::shared); });
  std::this_thread::sleep_for(300ms);
  server_->pause();
  std::this_thread::sleep_for(1s);
  server_->resume();
  const auto path = store::entry_path(backend_->identity().digest().hex(), request(0).key().digest);
  EXPECT_TRUE(objects()->put(path, std::as_bytes(std::span(sealed)), {}));
  waiter.join();
  EXPECT_EQ(backend_->compiles, 0);
}

/// A machine that gets the programs of a record through a slow network.
class PrefetchTest : public FleetTest, public testing::WithParamInterface<const char*> {
 protected:
  static constexpr int programs = 200;

  void SetUp() override {
    if (is_redis() && !fakes::is_installed("redis-server")) GTEST_SKIP() << "redis-server is not installed";
    if (!is_redis() && !fakes::is_installed("nginx")) GTEST_SKIP() << "nginx is not installed";
    if (is_redis())
      server_ = std::make_unique<fakes::RedisServer>();
    else
      nginx_ = std::make_unique<fakes::NginxServer>();
    proxy_ = std::make_unique<fakes::FaultProxy>(is_redis() ? server_->port() : nginx_->port());
  }
  static bool is_redis() { return GetParam() == std::string("Redis"); }
  std::unique_ptr<Cache> node(const std::string& name, bool with_record, const std::string& more = {}) {
    CacheOptions options = this->options();
    options.directory = folder_.path() / name;
    options.stores = std::vector<SharedStore>{fmt::format("{}:{}/{}?verify=off{}",
                                                          is_redis() ? "redis://127.0.0.1" : "http://127.0.0.1",
                                                          proxy_->port(), is_redis() ? "0" : "cache", more)};
    options.upload_limit = upload_limit_;
    options.write_queue = 2 * programs;
    options.record = with_record ? record_ : std::filesystem::path();
    return std::make_unique<Cache>(backend_, options);
  }
  /// Another machine records and uploads the programs.
  void fill() {
    upload_limit_ = 10s;
    const auto first = node("first", true);
    upload_limit_ = 100ms;
    for (int i = 0; i < programs; ++i) ASSERT_TRUE(first->get(request(i)));
    first->flush();
    ASSERT_EQ(first->stats().stores.at(0).uploads, static_cast<std::uint64_t>(programs));
    backend_->compiles = 0;
  }
  /// Those of the connection that made the most, and one to connect.
  std::size_t round_trips(const auto& body) {
    proxy_->set(fakes::NetworkFault::delay_answers(20ms));
    static_cast<void>(proxy_->take_round_trips());
    body();
    return proxy_->take_round_trips() + 1;
  }

  std::chrono::milliseconds upload_limit_ = 100ms;
  const std::filesystem::path record_ = folder_.path() / "app.kilnreq";
  std::unique_ptr<fakes::NginxServer> nginx_;
  std::unique_ptr<fakes::FaultProxy> proxy_;
};

INSTANTIATE_TEST_SUITE_P(Servers, PrefetchTest, testing::Values("Redis", "Nginx"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(PrefetchTest, WarmGetsAllProgramsOfARecordInAFewRoundTrips) {
  fill();
  const auto second = node("second", false);
  // 8 on 32 connections of an idle machine. On a busy one, a connection may serve three threads after one another.
  EXPECT_LE(round_trips([&] { EXPECT_EQ(second->warm(record_).ready, 200U); }), is_redis() ? 3U : 22U);
  for (int i = 0; i < programs; ++i) EXPECT_EQ(text(second->get(request(i)).value()), request(i).source());
  EXPECT_EQ(backend_->compiles, 0);
  EXPECT_EQ(second->stats().stores.at(0).hits, static_cast<std::uint64_t>(programs));
}

TEST_P(PrefetchTest, TheFirstMissGetsTheOthersToo) {
  fill();
  // So that a busy machine that asks twice still gets the answer first.
  backend_->on_compile = [](const Request&) { std::this_thread::sleep_for(2s); };
  const auto second = node("second", true);
  const std::size_t trips = round_trips([&] {
    for (int i = 0; i < programs; ++i) EXPECT_EQ(text(second->get(request(i)).value()), request(i).source());
  });
  EXPECT_LE(trips, 40U) << "programs were asked for one by one";
  EXPECT_EQ(second->stats().compiles, 0U);
}

TEST_P(PrefetchTest, AServerThatIsSilentDelaysProgramsByAMoment) {
  fill();
  proxy_->set(fakes::NetworkFault::half_open());
  const auto second = node("second", true);
  EXPECT_LT(time_of([&] {
              for (int i = 0; i < programs; ++i) EXPECT_TRUE(second->get(request(i)));
            }),
            3s);
  EXPECT_EQ(backend_->compiles, programs);
}

TEST_P(PrefetchTest, ProgramsThatAreNotThereAreCompiled) {
  fill();
  const auto second = node("second", true);
  EXPECT_EQ(second->get(request(1000)).value().origin(), Origin::compiled);
  second->flush();
  EXPECT_EQ(second->warm(record_).ready, 201U) << "the record has this program by now";
  EXPECT_EQ(backend_->compiles, 1);
}

TEST_P(PrefetchTest, ItEndsWithTheCache) {
  fill();
  proxy_->set(fakes::NetworkFault::drip());
  const auto took = time_of([&] {
    const auto second = node("second", true, "&timeout=10s");
    EXPECT_TRUE(second->get(request(0)));
  });
  EXPECT_LT(took, 5s);
}

TEST_P(PrefetchTest, ARecordThatIsNoneIsAnError) {
  fakes::write_file(record_, "something else, which is long enough to have a header");
  const auto report = node("second", false)->warm(record_);
  ASSERT_EQ(report.errors.size(), 1U);
  EXPECT_NE(report.errors[0].message().find("app.kilnreq"), std::string::npos);
}

class FleetWithLittleMemory : public FleetTest {
 protected:
  FleetWithLittleMemory() { arguments_ = {"--maxmemory", "100kb", "--maxmemory-policy", "noeviction"}; }
};

TEST_F(FleetWithLittleMemory, AServerWithoutMemoryGivesNoLeasesAndDelaysNothing) {
  const auto cache = node("one");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(cache->get(request(i)).value().origin(), Origin::compiled);
  EXPECT_EQ(cache->stats().stores.at(0).leases, 0U);
}

/// What clients find after a failover, until the server is the master.
class FleetWithAReplica : public FleetTest {
 protected:
  FleetWithAReplica() { arguments_ = {"--replicaof", "127.0.0.1 1"}; }
};

TEST_F(FleetWithAReplica, CompilesWithoutLeasesUntilTheServerIsTheMaster) {
  const auto cache = node("one");
  EXPECT_EQ(cache->get(request(0)).value().origin(), Origin::compiled);
  EXPECT_EQ(cache->stats().stores.at(0).leases, 0U);
  EXPECT_TRUE(cache->stats().stores.at(0).reading) << "it is read";
}

class LeaseTest : public FleetTest {
 protected:
  store::Lease lease(const std::string& token) const {
    return {.path = "3/a/bb/cc", .token = token, .duration = 10s};
  }
};

TEST_F(LeaseTest, OneTokenGetsItUntilItIsGivenBack) {
  const auto store = objects();
  EXPECT_TRUE(store->take_lease(lease("one"), false, {}).value().is_taken);
  EXPECT_TRUE(store->take_lease(lease("one"), false, {}).value().is_taken) << "an answer may have been lost";
  EXPECT_TRUE(store->take_lease(lease("two"), false, {}).value().is_held);
  EXPECT_TRUE(store->release_lease(lease("two"), {}));
  EXPECT_TRUE(store->take_lease(lease("two"), false, {}).value().is_held) << "only its holder releases it";
  EXPECT_TRUE(store->release_lease(lease("one"), {}));
  EXPECT_FALSE(store->take_lease(lease("two"), true, {}).value().is_held);
  EXPECT_TRUE(store->take_lease(lease("two"), false, {}).value().is_taken);
}

TEST_F(LeaseTest, TheAnswerSaysWhetherTheObjectIsThere) {
  const auto store = objects();
  ASSERT_TRUE(store->put("3/a/bb/cc", std::as_bytes(std::span("text", 4)), {}));
  const auto answer = store->take_lease(lease("one"), false, {}).value();
  EXPECT_TRUE(answer.is_taken);
  EXPECT_TRUE(answer.has_object);
}

TEST_F(LeaseTest, ALostAnswerDoesNotMakeTheHolderWaitForItself) {
  fakes::FaultProxy proxy(server_->port());
  const auto store =
      store::open_remote_store(store::parse_store_url(fmt::format("redis://127.0.0.1:{}", proxy.port())).value())
          .value();
  ASSERT_TRUE(store->has("x", {}));
  proxy.set(fakes::NetworkFault::truncate_after(0));
  EXPECT_FALSE(store->take_lease(lease("one"), false, {}));
  proxy.set(fakes::NetworkFault::none());
  EXPECT_TRUE(store->take_lease(lease("one"), false, {}).value().is_taken);
}

TEST_F(LeaseTest, ManyObjectsComeInTheirOrder) {
  const auto store = objects();
  std::vector<std::string> paths;
  for (int i = 0; i < 600; ++i) {
    paths.push_back("3/many/" + std::to_string(i));
    const std::string text(static_cast<std::size_t>(i) * 100, 'x');
    if (i % 3 != 0) {
      ASSERT_TRUE(store->put(paths.back(), std::as_bytes(std::span(text)), {}));
    }
  }
  std::size_t next = 0;
  store->get_many(paths, {}, [&](std::size_t place, auto answer) {
    EXPECT_EQ(place, next++);
    ASSERT_TRUE(answer);
    ASSERT_EQ(answer->has_value(), place % 3 != 0);
    EXPECT_EQ(*answer ? (*answer)->size() : place * 100, place * 100);
  });
  EXPECT_EQ(next, paths.size());
}

TEST_F(LeaseTest, EveryObjectHasAnAnswerIfTheConnectionBreaks) {
  fakes::FaultProxy proxy(server_->port());
  const auto store =
      store::open_remote_store(store::parse_store_url(fmt::format("redis://127.0.0.1:{}", proxy.port())).value())
          .value();
  ASSERT_TRUE(store->put("3/a", std::as_bytes(std::span("text", 4)), {}));
  proxy.set(fakes::NetworkFault::truncate_after(1000));
  const std::vector<std::string> paths(600, "3/a");
  std::vector<int> answers(paths.size());
  store->get_many(paths, {}, [&](std::size_t place, const auto& /*answer*/) { ++answers[place]; });
  EXPECT_EQ(std::ranges::count(answers, 1), 600);
}

}  // namespace
}  // namespace kiln
