#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include <kiln/cache.hpp>

#include "fakes/cache_fixture.hpp"
#include "fakes/child.hpp"
#include "fakes/files.hpp"
#include "fakes/gate.hpp"
#include "fakes/stores.hpp"
#include "store/bookkeeping.hpp"
#include "store/sealed_entry.hpp"

// How a cache uses its shared stores: in which order, for how long, and what it does when they are late or fail.
namespace kiln {
namespace {

using fakes::FunctionStore;
using fakes::Gate;
using fakes::MemoryStore;
using fakes::request;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Found = std::optional<std::vector<std::byte>>;

/// A correct store whose calls are counted, and can be made to wait or fail.
class TestStore final : public Store {
 public:
  Result<Found> get(const EntryAddress& address) override {
    ++gets;
    if (on_get) on_get(address);
    if (fails) return Error(ErrorCode::io, "the network is down");
    return memory.get(address);
  }
  Result<void> put(const EntryAddress& address, std::span<const std::byte> sealed) override {
    ++puts;
    if (on_put) on_put();
    if (fails) return Error(ErrorCode::io, "the network is down");
    return memory.put(address, sealed);
  }

  MemoryStore memory;
  std::function<void(const EntryAddress&)> on_get;
  std::function<void()> on_put;
  std::atomic<bool> fails{false};
  std::atomic<int> gets{0};
  std::atomic<int> puts{0};
};

class SharedStores : public fakes::CacheTest {
 protected:
  CacheOptions machine(const std::string& name, std::vector<SharedStore> stores) {
    CacheOptions options = this->options();
    options.directory = folder_.path() / name;
    options.stores = std::move(stores);
    return options;
  }
  std::unique_ptr<Cache> cache(const std::string& name, std::vector<SharedStore> stores) {
    return std::make_unique<Cache>(backend_, machine(name, std::move(stores)));
  }
  /// Puts these programs into the store.
  void fill(const std::shared_ptr<Store>& store, int programs = 1) {
    const auto filler = cache("filler", {store});
    for (int i = 0; i < programs; ++i) ASSERT_TRUE(filler->get(request(i)));
  }
  std::string file_url(const std::string& options = {}) const {
    return "file://" + (folder_.path() / "shared").string() + options;
  }
  /// The log of a level, as one text.
  std::string logged() const {
    std::string text;
    for (const LogRecord& record : book_.records()) text += record.message + "\n";
    return text;
  }
};

TEST_F(SharedStores, ALateAnswerIsUsedIfTheCompilerIsSlower) {
  const auto store = std::make_shared<TestStore>();
  fill(store);
  const auto compiling = std::make_shared<Gate>();
  const auto compiler = std::make_shared<Gate>();
  store->on_get = [&](const EntryAddress&) { compiling->pass(); };
  backend_->on_compile = [&](const Request&) {
    compiling->open();
    compiler->pass();
  };
  const auto node = cache("node", {store});
  const Program program = node->get(request(0)).value();
  EXPECT_EQ(program.origin(), Origin::shared);
  EXPECT_EQ(text(program), "source of program 0");
  compiler->open();
  node->flush();
  const Stats stats = node->stats();
  EXPECT_EQ(stats.stores.at(0).races_won, 1U);
  EXPECT_EQ(stats.stores.at(0).hits, 1U);
  EXPECT_EQ(stats.compiles, 0U);
  fakes::expect_counts_add_up(stats);
}

TEST_F(SharedStores, TheCompilerIsUsedIfTheAnswerIsSlower) {
  const auto store = std::make_shared<TestStore>();
  fill(store);
  const auto gate = std::make_shared<Gate>();
  store->on_get = [gate](const EntryAddress&) { gate->pass(); };
  const auto node = cache("node", {store});
  EXPECT_EQ(node->get(request(0)).value().origin(), Origin::compiled);
  const Stats stats = node->stats();
  EXPECT_EQ(stats.stores.at(0).races_lost, 1U);
  EXPECT_EQ(stats.compiles, 1U);
  fakes::expect_counts_add_up(stats);
  gate->open();
}

TEST_F(SharedStores, ALateAnswerIsUsedIfTheCompilerFails) {
  const auto store = std::make_shared<TestStore>();
  fill(store);
  const auto compiling = std::make_shared<Gate>();
  store->on_get = [&](const EntryAddress&) { compiling->pass(); };
  backend_->compile_errors = 1;
  backend_->on_compile = [&](const Request&) { compiling->open(); };
  const auto node = cache("node", {store});
  EXPECT_EQ(node->get(request(0)).value().origin(), Origin::shared);
  fakes::expect_counts_add_up(node->stats());
}

TEST_F(SharedStores, AnErrorOfTheCompilerIsReturnedIfALateAnswerIsAMiss) {
  const auto store = std::make_shared<TestStore>();
  const auto compiling = std::make_shared<Gate>();
  store->on_get = [&](const EntryAddress&) { compiling->pass(); };
  backend_->on_compile = [&](const Request&) { compiling->open(); };
  const auto node = cache("node", {store});
  const auto program = node->get(Request({.name = "wrong", .source = "does not compile"}));
  ASSERT_FALSE(program);
  EXPECT_EQ(program.error().code(), ErrorCode::compile_failed);
  EXPECT_EQ(node->stats().failures, 1U);
}

/// With a store that never answers.
class SilentStore : public SharedStores {
 protected:
  SilentStore() {
    store_->on_get = [gate = gate_](const EntryAddress&) { gate->pass(); };
  }
  ~SilentStore() override { gate_->open(); }

  const std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  const std::shared_ptr<TestStore> store_ = std::make_shared<TestStore>();
};

TEST_F(SilentStore, IsNotWaitedForByFindOrAPreloadOfOneOrAFailedCompile) {
  const auto node = cache("node", {store_});
  const auto start = steady_clock::now();
  EXPECT_FALSE(node->find(request(0)).value());
  const auto program = cache("other", {store_})->get(Request({.name = "wrong", .source = "does not compile"}));
  ASSERT_FALSE(program);
  EXPECT_EQ(program.error().code(), ErrorCode::compile_failed);
  const Request one = request(1);
  EXPECT_EQ(cache("third", {store_})->preload(std::span(&one, 1)).ready, 1U);
  EXPECT_LT(steady_clock::now() - start, milliseconds(4000)) << "about 300 ms each";
  fakes::expect_counts_add_up(node->stats());
}

TEST_F(SilentStore, LeavesAPlaceToCompileToTheThreadThatGotIt) {
  struct Places final : Backend {
    explicit Places(std::shared_ptr<fakes::FakeBackend> backend) : fake(std::move(backend)) {}
    const Identity& identity() const noexcept override { return fake->identity(); }
    std::unique_ptr<CompilePlace> wait_for_place(Urgency) override {
      struct Place final : CompilePlace {
        ~Place() override { EXPECT_EQ(thread, std::this_thread::get_id()); }
        const std::thread::id thread = std::this_thread::get_id();
      };
      place_of = std::this_thread::get_id();
      return std::make_unique<Place>();
    }
    Result<Compiled> compile(const Request& wanted) override {
      EXPECT_EQ(place_of, std::this_thread::get_id());
      return fake->compile(wanted);
    }
    Result<std::unique_ptr<Module>> load(const Binary& binary) override { return fake->load(binary); }
    std::shared_ptr<fakes::FakeBackend> fake;
    std::thread::id place_of;
  };
  Cache node(std::make_shared<Places>(backend_), machine("node", {store_}));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(node.get(request(i)));
}

TEST_F(SilentStore, LeavesAWorkerToProgramsThatABackendRequests) {
  CacheOptions options = machine("node", {store_});
  options.threads = 1;
  Cache* cache_of_backend = nullptr;
  backend_->on_compile = [&](const Request& wanted) {
    if (wanted.name() == "program_0") {
      EXPECT_TRUE(cache_of_backend->get_async(request(1)).get());
    }
  };
  Cache node(backend_, options);
  cache_of_backend = &node;
  EXPECT_TRUE(node.get_async(request(0)).get());
}

TEST_F(SilentStore, LetsProgramsThatRequestEachOtherFailInsteadOfWaitingForever) {
  Cache* cache_of_backend = nullptr;
  std::atomic<int> refused{0};
  backend_->on_compile = [&](const Request& wanted) {
    if (!cache_of_backend->get(request(wanted.name() == "program_0" ? 1 : 0))) ++refused;
  };
  const auto node = cache("node", {store_});
  cache_of_backend = node.get();
  EXPECT_TRUE(node->get(request(0)));
  EXPECT_EQ(refused, 1);
}

TEST_F(SilentStore, IsSkippedAlsoIfProgramsCompileFasterThanARequestWouldWait) {
  CacheOptions options = machine("node", {store_});
  options.disk = false;
  backend_->on_compile = [](const Request&) { std::this_thread::sleep_for(milliseconds(20)); };
  Cache node(backend_, options);
  // One name, so that the time to compile it is known.
  for (int i = 0; i < 20; ++i)
    EXPECT_TRUE(node.get(Request({.name = "variant", .source = "variant " + std::to_string(i)})));
  EXPECT_FALSE(node.stats().stores.at(0).reading);
}

TEST_F(SilentStore, DoesNotKeepOthersFromBeingAsked) {
  const auto fast = std::make_shared<TestStore>();
  SharedStore slow(store_);
  slow.name = "slow";
  const auto node = cache("node", {fast, slow});
  std::vector<std::thread> threads;
  for (int t = 0; t < 80; ++t) threads.emplace_back([&, t] { EXPECT_TRUE(node->get(request(t))); });
  for (std::thread& thread : threads) thread.join();
  // Threads that hang do not count for long.
  int before = fast->gets;
  const auto limit = steady_clock::now() + std::chrono::seconds(20);
  for (int i = 1000; fast->gets == before && steady_clock::now() < limit; ++i) EXPECT_TRUE(node->get(request(i)));
  before = fast->gets;
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(node->get(request(2000 + i)));
  EXPECT_EQ(fast->gets, before + 10);
  EXPECT_TRUE(node->stats().stores.at(0).reading);
}

TEST_F(SharedStores, InAFolderOrOfTheApplicationServeManyThreadsAtOnce) {
  constexpr int programs = 32;
  const auto store = std::make_shared<TestStore>();
  fill(store, programs);
  store->on_get = [](const EntryAddress&) { std::this_thread::sleep_for(milliseconds(20)); };
  const auto node = cache("node", {store});
  std::vector<std::thread> threads;
  for (int t = 0; t < programs; ++t)
    threads.emplace_back([&, t] { EXPECT_EQ(node->get(request(t)).value().origin(), Origin::shared); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(node->stats().compiles, 0U);
}

TEST_F(SharedStores, ThatAnswerEndTheWaitForALockOfAnotherProcess) {
  const auto store = std::make_shared<TestStore>();
  fill(store);
  const auto gate = std::make_shared<Gate>();
  // The first cache compiles for as long as the test wants; the store answers the second one late.
  CacheOptions options = machine("node", {});
  backend_->on_compile = [gate](const Request&) { gate->pass(); };
  Cache first(backend_, options);
  std::thread compiling([&] { EXPECT_TRUE(first.get(request(0))); });
  gate->wait_for_somebody();
  store->on_get = [](const EntryAddress&) { std::this_thread::sleep_for(milliseconds(400)); };
  const auto start = steady_clock::now();
  {
    Cache second(backend_, machine("node", {store}));
    EXPECT_EQ(second.get(request(0)).value().origin(), Origin::shared);
  }
  EXPECT_LT(steady_clock::now() - start, std::chrono::seconds(10)) << "the end waited for the lock";
  gate->open();
  compiling.join();
}

TEST_F(SharedStores, AreNotBlamedForTheTimeOfAnotherStore) {
  const auto late = std::make_shared<TestStore>();
  const auto good = std::make_shared<TestStore>();
  late->on_get = [](const EntryAddress&) { std::this_thread::sleep_for(milliseconds(140)); };
  good->on_get = [](const EntryAddress&) { std::this_thread::sleep_for(milliseconds(30)); };
  const auto node = cache("node", {late, good});
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(node->get(request(i)));
  EXPECT_EQ(node->stats().stores.at(1).errors, 0U);
  EXPECT_TRUE(node->stats().stores.at(1).reading);
}

TEST_F(SharedStores, CountARequestOfAPreloadOnce) {
  { EXPECT_TRUE(Cache(backend_, options()).get(request(0))); }
  for (const auto& entry : entries()) fakes::write_file(entry, "garbage");
  CacheOptions options = this->options();
  options.stores = std::vector<SharedStore>{std::make_shared<MemoryStore>()};
  Cache node(backend_, options);
  const Request requests[] = {request(0), Request({.name = "wrong", .source = ""})};
  EXPECT_EQ(node.preload(requests).errors.size(), 1U);
  const Stats stats = node.stats();
  EXPECT_EQ(stats.requests, 2U);
  EXPECT_EQ(stats.failures, 1U);
  EXPECT_EQ(stats.store_failures, 1U) << "the damaged entry";
}

TEST_F(SharedStores, AppearInTheTotalsOfTheDirectoryAlsoIfAnUploadEndsLate) {
  const auto store = std::make_shared<TestStore>();
  const auto gate = std::make_shared<Gate>();
  store->on_put = [gate] { gate->pass(); };
  CacheOptions options = machine("node", {store});
  options.upload_limit = milliseconds(20);
  {
    Cache node(backend_, options);
    EXPECT_TRUE(node.get(request(0)));
    node.flush();
    gate->open();
    while (node.stats().stores.at(0).uploads == 0) std::this_thread::yield();
  }
  EXPECT_EQ(store::read_lifetime(options.directory).totals.stores.at(0).uploads, 1U);
}

TEST_F(SharedStores, ABackendThatRequestsItsOwnProgramDuringARaceGetsAnError) {
  const auto store = std::make_shared<TestStore>();
  const auto gate = std::make_shared<Gate>();
  store->on_get = [gate](const EntryAddress&) { gate->pass(); };
  Cache* cache_of_backend = nullptr;
  std::atomic<int> refused{0};
  backend_->on_compile = [&](const Request& wanted) {
    if (!cache_of_backend->get(wanted)) ++refused;
  };
  const auto node = cache("node", {store});
  cache_of_backend = node.get();
  EXPECT_TRUE(node->get(request(0)));
  EXPECT_EQ(refused, 1);
  gate->open();
}

TEST_F(SharedStores, ManyThreadsRaceWithoutLosingOrMixingUpPrograms) {
  constexpr int programs = 12;
  const auto store = std::make_shared<TestStore>();
  fill(store, programs);
  // About as slow as the compiler: each wins some of the races.
  std::atomic<int> calls{0};
  store->on_get = [&](const EntryAddress&) { std::this_thread::sleep_for(milliseconds(150 + 4 * (calls++ % 5))); };
  backend_->on_compile = [](const Request&) { std::this_thread::sleep_for(milliseconds(8)); };
  const auto node = cache("node", {store});
  std::vector<std::thread> threads;
  for (int t = 0; t < programs; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < programs; ++i) {
        const int which = (i + t) % programs;
        const auto program = node->get(request(which));
        ASSERT_TRUE(program) << program.error().message();
        EXPECT_EQ(text(*program), "source of program " + std::to_string(which));
      }
    });
  for (std::thread& thread : threads) thread.join();
  fakes::expect_counts_add_up(node->stats());
}

TEST_F(SharedStores, AreAskedFastestFirstAndFasterOnesAreFilled) {
  const auto fast = std::make_shared<TestStore>();
  const auto slow = std::make_shared<TestStore>();
  fill(slow);
  {
    const auto node = cache("node", {fast, slow});
    EXPECT_EQ(node->get(request(0)).value().origin(), Origin::shared);
    node->flush();
    EXPECT_EQ(node->stats().stores.at(1).hits, 1U);
    EXPECT_EQ(node->stats().stores.at(0).uploads, 1U);
    EXPECT_EQ(slow->puts, 1) << "it had the entry";
  }
  const auto next = cache("next", {fast, slow});
  EXPECT_EQ(next->get(request(0)).value().origin(), Origin::shared);
  EXPECT_EQ(next->stats().stores.at(0).hits, 1U);
  EXPECT_EQ(slow->gets, 2) << "by the filler and by the first node";
}

TEST_F(SharedStores, AreNotCalledForAWhileAfterThreeFailures) {
  const auto store = std::make_shared<TestStore>();
  store->fails = true;
  const auto node = cache("node", {store});
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(node->get(request(i)));
  EXPECT_LE(store->gets, 4) << "three, and perhaps a probe";
  EXPECT_FALSE(node->stats().stores.at(0).reading);
  EXPECT_NE(logged().find("the network is down"), std::string::npos);
}

TEST_F(SharedStores, AreUsedAgainOnceTheyAnswer) {
  const auto store = std::make_shared<TestStore>();
  fill(store, 3);
  store->fails = true;
  const auto node = cache("node", {store});
  for (int i = 10; i < 13; ++i) EXPECT_TRUE(node->get(request(i)));
  EXPECT_FALSE(node->stats().stores.at(0).reading);
  store->fails = false;
  // A request in the background finds that it answers.
  const auto limit = steady_clock::now() + std::chrono::seconds(20);
  for (int i = 100; !node->stats().stores.at(0).reading && steady_clock::now() < limit; ++i) {
    EXPECT_TRUE(node->get(request(i)));
    std::this_thread::yield();
  }
  EXPECT_EQ(node->get(request(0)).value().origin(), Origin::shared);
}

TEST_F(SharedStores, AreNotAskedAgainSoonForWhatTheyLack) {
  const auto store = std::make_shared<TestStore>();
  CacheOptions options = machine("node", {store});
  options.stores->front().mode = StoreMode::read_only;
  options.disk = false;
  Cache node(backend_, options);
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(node.find(request(0)).value());
  }
  EXPECT_EQ(store->gets, 1);
  EXPECT_EQ(node.stats().stores.at(0).misses, 1U);
  EXPECT_EQ(node.stats().absent, 5U);
}

TEST_F(SharedStores, AreAskedForWhatWasUploadedMeanwhile) {
  const auto store = std::make_shared<TestStore>();
  // A request waits for a store as long as compiling took before.
  backend_->on_compile = [](const Request&) { std::this_thread::sleep_for(milliseconds(150)); };
  CacheOptions options = machine("node", {store});
  options.disk = false;
  Cache node(backend_, options);
  EXPECT_TRUE(node.get(request(0)));
  node.flush();
  node.trim(0);
  EXPECT_EQ(node.get(request(0)).value().origin(), Origin::shared);
}

TEST_F(SharedStores, OfEachModeAreReadOrWrittenOnly) {
  const auto only_read = std::make_shared<TestStore>();
  const auto only_written = std::make_shared<TestStore>();
  SharedStore read(only_read);
  read.mode = StoreMode::read_only;
  SharedStore written(only_written);
  written.mode = StoreMode::write_only;
  const auto node = cache("node", {read, written});
  EXPECT_TRUE(node->get(request(0)));
  node->flush();
  EXPECT_EQ(only_read->gets, 1);
  EXPECT_EQ(only_read->puts, 0);
  EXPECT_EQ(only_written->gets, 0);
  EXPECT_EQ(only_written->puts, 1);
}

TEST_F(SharedStores, AreAskedWhileNoLockIsHeld) {
  const auto store = std::make_shared<TestStore>();
  std::atomic<int> compiled{0};
  store->on_get = [&](const EntryAddress&) {
    // Another cache gets the lock of the same key, and compiles.
    CacheOptions options = machine("node", {});
    options.lock_timeout = std::chrono::hours(1);
    Cache other(backend_, options);
    if (other.get(request(0)).value().origin() == Origin::compiled) ++compiled;
  };
  const auto node = cache("node", {store});
  EXPECT_EQ(node->get(request(0)).value().origin(), Origin::disk);
  EXPECT_EQ(compiled, 1);
}

TEST_F(SharedStores, OfAPreloadAreAskedBeforeAnythingIsCompiled) {
  constexpr int programs = 24;
  const auto store = std::make_shared<TestStore>();
  fill(store, programs);
  backend_->compiles = 0;
  std::vector<Request> requests;
  for (int i = 0; i < programs; ++i) requests.push_back(request(i));
  const auto node = cache("node", {store});
  EXPECT_EQ(node->preload(requests).ready, static_cast<std::size_t>(programs));
  EXPECT_EQ(backend_->compiles, 0);
  EXPECT_EQ(node->stats().shared_hits, static_cast<std::uint64_t>(programs));
  EXPECT_EQ(node->stats().absent, 0U);
  fakes::expect_counts_add_up(node->stats());
}

TEST_F(SharedStores, ThatDoNotAnswerDelayAPreloadByLessThanHalfASecond) {
  const auto store = std::make_shared<TestStore>();
  const auto gate = std::make_shared<Gate>();
  store->on_get = [gate](const EntryAddress&) { gate->pass(); };
  std::vector<Request> requests;
  for (int i = 0; i < 50; ++i) requests.push_back(request(i));
  const auto node = cache("node", {store});
  const auto start = steady_clock::now();
  EXPECT_EQ(node->preload(requests).ready, requests.size());
  EXPECT_LT(steady_clock::now() - start, milliseconds(2500)) << "a lot, because the machine may be busy";
  EXPECT_LE(store->gets, 20);
  gate->open();
}

TEST_F(SharedStores, ThatDoNotTakeUploadsDelayTheEndByTheLimitOnce) {
  const auto store = std::make_shared<TestStore>();
  const auto gate = std::make_shared<Gate>();
  store->on_put = [gate] { gate->pass(); };
  CacheOptions options = machine("node", {store});
  options.upload_limit = milliseconds(400);
  const auto start = steady_clock::now();
  {
    Cache node(backend_, options);
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(node.get(request(i)));
    node.flush();
    node.flush();
  }
  const auto took = steady_clock::now() - start;
  EXPECT_GE(took, milliseconds(400));
  EXPECT_LT(took, milliseconds(790));
  gate->open();
}

TEST_F(SharedStores, GetNoFactsIfTheyAreNotShared) {
  const auto store = std::make_shared<TestStore>();
  CacheOptions options = machine("node", {store});
  options.share_facts = false;
  { EXPECT_TRUE(Cache(backend_, options).get(request(0))); }
  const auto sealed = store->memory.get({backend_->identity().digest(), request(0).key()}).value().value();
  const auto opened = store::open_entry(sealed).value();
  EXPECT_EQ(opened.entry.facts, "");
  EXPECT_EQ(opened.entry.parts.size(), 1U);
  EXPECT_EQ(cache("other", {store})->get(request(0)).value().origin(), Origin::shared);
}

TEST_F(SharedStores, WithAnInvalidUrlAreLeftOutWithAWarning) {
  const auto node = cache("node", {"gopher://user:secret-word@host/"});
  EXPECT_TRUE(node->get(request(0)));
  EXPECT_NE(logged().find("the store URL does not begin with"), std::string::npos) << logged();
  EXPECT_EQ(logged().find("secret-word"), std::string::npos);
  EXPECT_TRUE(node->stats().stores.empty());
}

TEST_F(SharedStores, InAFolderServeOtherMachines) {
  for (const char* name : {"one", "two"}) {
    const auto node = cache(name, {file_url()});
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(node->get(request(i)));
    node->flush();
    EXPECT_EQ(node->stats().shared_hits, std::string(name) == "two" ? 5U : 0U) << logged();
  }
  EXPECT_EQ(backend_->compiles, 5);
  const auto folder = folder_.path() / "shared" / "3" / backend_->identity().digest().hex();
  EXPECT_TRUE(std::filesystem::exists(folder / "identity.json"));
  const std::string key = request(0).key().digest.hex();
  EXPECT_TRUE(std::filesystem::exists(folder / key.substr(0, 2) / key));
}

TEST_F(SharedStores, InAFolderThatOthersCanWriteToNeedSignatures) {
  std::filesystem::create_directory(folder_.path() / "shared");
  std::filesystem::permissions(folder_.path() / "shared", std::filesystem::perms::all);
  const auto node = cache("node", {file_url()});
  EXPECT_TRUE(node->get(request(0)));
  node->flush();
  EXPECT_EQ(node->stats().stores.at(0).verify, Verification::required);
  EXPECT_EQ(node->stats().stores.at(0).mode, StoreMode::read_only);
  EXPECT_NE(logged().find("kiln key new"), std::string::npos) << logged();
  EXPECT_EQ(cache("other", {file_url()})->get(request(0)).value().origin(), Origin::compiled);
}

TEST_F(SharedStores, WorkInAForkedChild) {
  const auto node = cache("node", {file_url()});
  EXPECT_TRUE(node->get(request(0)));
  node->flush();
  fakes::Child child([&](const fakes::Child::Report& report) {
    const auto own = cache("child", {file_url()});
    report(std::string(to_string(own->get(request(0)).value().origin())));
    // The parent's cache works here too.
    EXPECT_TRUE(node->get(request(1)));
    node->flush();
    report(std::to_string(node->stats().stores.at(0).uploads));
  });
  EXPECT_EQ(child.report(), "shared");
  EXPECT_EQ(child.report(), "1");
  EXPECT_EQ(cache("later", {file_url()})->get(request(1)).value().origin(), Origin::shared);
}

}  // namespace
}  // namespace kiln
