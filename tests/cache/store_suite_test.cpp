#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <ostream>
#include <thread>

#include "fakes/cache_fixture.hpp"
#include "fakes/gate.hpp"
#include "fakes/servers.hpp"
#include "fakes/stores.hpp"
#include "store/directory.hpp"
#include "store/disk_store.hpp"

// What a cache promises on any shared store: one that works, on disk or in memory, and one that misbehaves in every
// way.
namespace kiln {
namespace {

using fakes::Gate;
using fakes::request;
using Bytes = std::vector<std::byte>;
using Found = std::optional<Bytes>;

/// A store under test, and what may be expected of it.
struct Subject {
  Subject(std::shared_ptr<Store> object, bool does_share = true, bool does_fail = false, bool does_answer = true)
      : store(std::move(object)), shares(does_share), fails(does_fail), answers(does_answer) {}
  Subject(std::string url, std::shared_ptr<fakes::Server> runs = {})
      : store(std::move(url)), server(std::move(runs)) {}

  SharedStore store;
  std::shared_ptr<fakes::Server> server = {};
  /// Whether another cache finds there what one has put there.
  bool shares = true;
  /// Whether its failures are to be seen in the statistics.
  bool fails = false;
  /// Whether its calls end without an error.
  bool answers = true;
};

struct Kind {
  std::string name;
  std::function<Subject(const Identity&, const std::filesystem::path&)> make;
  /// The server that it needs.
  std::string program = {};
  friend void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }
};

/// What a store has that throws: an exception of the standard library's, another object, a number.
struct NotAnException {};
struct WithoutAMessage : std::exception {
  const char* what() const noexcept override { return nullptr; }
};

/// put() and get() as in `memory`, with the answer of get() passed through `spoil`.
Subject spoiled(std::function<Found(Bytes)> spoil) {
  auto memory = std::make_shared<fakes::MemoryStore>();
  return Subject{std::make_shared<fakes::FunctionStore>(
                     [memory, spoil = std::move(spoil)](const EntryAddress& address) -> Result<Found> {
                       auto found = memory->get(address);
                       if (!found || !*found) return found;
                       return spoil(std::move(**found));
                     },
                     [memory](const EntryAddress& address, std::span<const std::byte> sealed) {
                       return memory->put(address, sealed);
                     }),
                 false, true};
}

template <class Thrown>
Subject throwing(Thrown thrown) {
  return Subject{std::make_shared<fakes::FunctionStore>(
                     [thrown](const EntryAddress&) -> Result<Found> { throw thrown; },
                     [thrown](const EntryAddress&, std::span<const std::byte>) -> Result<void> { throw thrown; }),
                 false, true, false};
}

/// Answers with what was put under another key.
Subject mixing_up() {
  struct State {
    std::mutex mutex;
    std::map<Digest, Bytes> put;
  };
  auto state = std::make_shared<State>();
  return Subject{std::make_shared<fakes::FunctionStore>(
                     [state](const EntryAddress& address) -> Result<Found> {
                       const std::lock_guard lock(state->mutex);
                       for (const auto& [key, sealed] : state->put)
                         if (key != address.key.digest) return Found(sealed);
                       return Found{};
                     },
                     [state](const EntryAddress& address, std::span<const std::byte> sealed) -> Result<void> {
                       const std::lock_guard lock(state->mutex);
                       state->put.insert_or_assign(address.key.digest, Bytes(sealed.begin(), sealed.end()));
                       return {};
                     }),
                 false, true};
}

const Kind kinds[] = {
    {"Disk",
     [](const Identity& identity, const std::filesystem::path& root) {
       return Subject{store::DiskStore::open(root / "shared", identity, Log(LogLevel::off, {})).value()};
     }},
    {"Memory",
     [](const Identity&, const std::filesystem::path&) { return Subject{std::make_shared<fakes::MemoryStore>()}; }},
    {"Folder", [](const Identity&,
                  const std::filesystem::path& root) { return Subject("file://" + (root / "shared").string()); }},
    {"Nginx",
     [](const Identity&, const std::filesystem::path&) {
       const auto server = std::make_shared<fakes::NginxServer>();
       return Subject(server->url("verify=off"), server);
     },
     "nginx"},
    {"Redis",
     [](const Identity&, const std::filesystem::path&) {
       const auto server = std::make_shared<fakes::RedisServer>();
       return Subject(server->url("verify=off"), server);
     },
     "redis-server"},
    {"S3",
     [](const Identity&, const std::filesystem::path&) {
       const auto server = std::make_shared<fakes::S3Server>();
       return Subject(server->url("verify=off"), server);
     },
     "python3-botocore"},
    {"ThrowsAnException",
     [](const Identity&, const std::filesystem::path&) { return throwing(std::runtime_error("no network")); }},
    {"ThrowsAnExceptionWithoutAMessage",
     [](const Identity&, const std::filesystem::path&) { return throwing(WithoutAMessage{}); }},
    {"ThrowsANumber", [](const Identity&, const std::filesystem::path&) { return throwing(42); }},
    {"ThrowsAnObject", [](const Identity&, const std::filesystem::path&) { return throwing(NotAnException{}); }},
    {"Fails",
     [](const Identity&, const std::filesystem::path&) {
       const Error down(ErrorCode::io, "the network is down");
       return Subject{std::make_shared<fakes::FunctionStore>(
                          [down](const EntryAddress&) -> Result<Found> { return down; },
                          [down](const EntryAddress&, std::span<const std::byte>) -> Result<void> { return down; }),
                      false, true, false};
     }},
    {"HasNothing",
     [](const Identity&, const std::filesystem::path&) {
       return Subject{std::make_shared<fakes::FunctionStore>(
                          [](const EntryAddress&) -> Result<Found> { return Found{}; },
                          [](const EntryAddress&, std::span<const std::byte>) -> Result<void> { return {}; }),
                      false, false};
     }},
    {"ReturnsAnotherKeysBytes", [](const Identity&, const std::filesystem::path&) { return mixing_up(); }},
    {"ReturnsNoBytes",
     [](const Identity&, const std::filesystem::path&) { return spoiled([](Bytes) { return Found(Bytes{}); }); }},
    {"ReturnsGarbage",
     [](const Identity&, const std::filesystem::path&) {
       return spoiled([](const Bytes& bytes) { return Found(Bytes(bytes.size(), std::byte{'x'})); });
     }},
    {"ReturnsHalf",
     [](const Identity&, const std::filesystem::path&) {
       return spoiled([](Bytes bytes) {
         bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(bytes.size() / 2), bytes.end());
         return Found(std::move(bytes));
       });
     }},
    {"FlipsABit",
     [](const Identity&, const std::filesystem::path&) {
       return spoiled([](Bytes bytes) {
         bytes[bytes.size() / 2] ^= std::byte{1};
         return Found(std::move(bytes));
       });
     }},
};

class StoreSuite : public fakes::CacheTest, public testing::WithParamInterface<Kind> {
 protected:
  void SetUp() override {
    if (!GetParam().program.empty() && !fakes::is_installed(GetParam().program))
      GTEST_SKIP() << GetParam().program << " is not installed";
  }
  Subject subject() { return GetParam().make(backend_->identity(), folder_.path()); }
  /// A cache on a machine of its own, with the store.
  std::unique_ptr<Cache> machine(const std::string& name, const Subject& subject) {
    CacheOptions options = this->options();
    options.directory = folder_.path() / name;
    if (subject.store.object || !subject.store.url.empty())
      options.stores = std::vector<SharedStore>{subject.store};
    return std::make_unique<Cache>(backend_, options);
  }
};

TEST_P(StoreSuite, GivesEveryMachineTheRightProgramAndSavesCompilesIfItWorks) {
  constexpr int programs = 10;
  const Subject subject = this->subject();
  for (const std::string name : {"one", "two"}) {
    const auto cache = machine(name, subject);
    for (int i = 0; i < programs; ++i) {
      const auto program = cache->get(request(i));
      ASSERT_TRUE(program) << program.error().message();
      EXPECT_EQ(text(*program), "source of program " + std::to_string(i));
    }
    const Stats stats = cache->stats();
    fakes::expect_counts_add_up(stats);
    EXPECT_EQ(stats.shared_hits, subject.shares && name == "two" ? programs : 0U);
    if (!subject.fails) {
      EXPECT_EQ(stats.store_failures, 0U);
    } else if (name == "two") {
      // A store whose calls fail is not called for a while after the third one.
      EXPECT_GE(stats.store_failures, 3U);
      if (subject.answers) {
        EXPECT_GE(stats.store_failures, static_cast<std::uint64_t>(programs));
      }
    }
  }
  EXPECT_EQ(backend_->compiles, subject.shares ? programs : 2 * programs);
  // Whatever the store did, what is on disk is sound, and found without the store.
  const auto again = machine("two", std::shared_ptr<Store>());
  for (int i = 0; i < programs; ++i) EXPECT_EQ(again->get(request(i)).value().origin(), Origin::disk);
}

TEST_P(StoreSuite, ServesManyThreadsAtOnce) {
  constexpr int programs = 8;
  const Subject subject = this->subject();
  const auto cache = machine("one", subject);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        const auto program = cache->get(request(i % programs));
        ASSERT_TRUE(program) << program.error().message();
        EXPECT_EQ(text(*program), "source of program " + std::to_string(i % programs));
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(backend_->compiles, programs) << "each is compiled once, whatever the store does";
}

TEST_P(StoreSuite, NeverGivesOneIdentityTheBinariesOfAnother) {
  const Subject subject = this->subject();
  const auto newer = std::make_shared<fakes::FakeBackend>(Identity{"fake", "Kiln", "nothing", "1.1", "1.0", {7}});
  static_cast<void>(machine("one", subject)->get(request(0)).value());
  CacheOptions options = this->options();
  options.directory = folder_.path() / "two";
  options.stores = std::vector<SharedStore>{subject.store};
  {
    Cache cache(newer, options);
    EXPECT_EQ(cache.get(request(0)).value().origin(), Origin::compiled);
  }
  EXPECT_EQ(newer->loads, 0) << "its driver has seen a foreign binary";
  for (const auto& folder : store::device_folders(options.directory).value())
    for (const auto& file : store::stored_files(folder.path).value()) {
      const auto entry = store::read_entry(folder.path, file.name);
      ASSERT_TRUE(entry) << entry.error().message();
      EXPECT_EQ(entry->label.identity, newer->identity().digest());
    }
}

INSTANTIATE_TEST_SUITE_P(Stores, StoreSuite, testing::ValuesIn(kinds),
                         [](const auto& kind) { return kind.param.name; });

class SharedStoreOfACache : public fakes::CacheTest {
 protected:
  CacheOptions options_with(std::shared_ptr<Store> store) {
    CacheOptions options = this->options();
    options.stores = std::vector<SharedStore>{std::move(store)};
    return options;
  }
};

/// A store that hands out what was put under the key by any identity.
std::shared_ptr<Store> ignoring_identities() {
  auto memory = std::make_shared<fakes::MemoryStore>();
  return std::make_shared<fakes::FunctionStore>(
      [memory](const EntryAddress& address) {
        return memory->get({{}, address.key});
      },
      [memory](const EntryAddress& address, std::span<const std::byte> sealed) {
        return memory->put({{}, address.key}, sealed);
      });
}

TEST_F(SharedStoreOfACache, ThatReturnsAnotherIdentitysBytesIsAMissAndIsLeftAlone) {
  const auto store = ignoring_identities();
  const auto other = std::make_shared<fakes::FakeBackend>(Identity{"fake", "Kiln", "other", "1.0", "1.0", {7}});
  { static_cast<void>(Cache(backend_, options_with(store)).get(request(0)).value()); }
  Cache cache(other, options_with(store));
  EXPECT_EQ(cache.get(request(0)).value().origin(), Origin::compiled);
  EXPECT_EQ(other->loads, 0);
  EXPECT_EQ(cache.stats().store_failures, 1U);
  EXPECT_EQ(cache.stats().replaced, 0U) << "a client never deletes what it could not use";
  ASSERT_FALSE(book_.records().empty());
  EXPECT_NE(book_.records()[0].message.find("another device, driver or compiler"), std::string::npos);
}

TEST_F(SharedStoreOfACache, IsNotEmptiedByCachesWhoseDriversRefuseEachOthersBinaries) {
  // Each driver takes its own binaries only.
  const auto store = std::make_shared<fakes::MemoryStore>();
  std::vector<std::shared_ptr<fakes::FakeBackend>> drivers;
  for (const char* version : {"1.0", "2.0"})
    drivers.push_back(std::make_shared<fakes::FakeBackend>(Identity{"fake", "Kiln", "gpu", version, "1.0", {7}}));
  for (int round = 0; round < 5; ++round)
    for (const auto& driver : drivers) {
      CacheOptions options = options_with(store);
      options.directory = folder_.path() / fakes::numbered("machine", round);
      EXPECT_EQ(text(Cache(driver, options).get(request(0)).value()), "source of program 0");
    }
  EXPECT_EQ(drivers[0]->compiles + drivers[1]->compiles, 2);
  EXPECT_EQ(store->size(), 2U);
}

TEST_F(SharedStoreOfACache, ThatCallsItsCacheGetsAnErrorAndTheProgramIsCompiled) {
  Cache* cache = nullptr;
  std::atomic<int> refused{0};
  const auto call_back = [&] {
    if (cache == nullptr) return;
    // The same program, another one, and all that waits for something.
    if (const auto again = cache->get(request(0)); !again) ++refused;
    if (const auto other = cache->get(request(77)); !other) ++refused;
    if (const auto async = cache->get_async(request(78)).get(); !async) ++refused;
    const Request wanted = request(79);
    if (cache->preload(std::span(&wanted, 1)).ready == 0) ++refused;
    if (cache->warm().ready == 0) ++refused;
    if (!cache->add(request(81), backend_->compile(request(81)).value())) ++refused;
    cache->flush();
  };
  const auto store = std::make_shared<fakes::FunctionStore>(
      [&](const EntryAddress&) -> Result<Found> {
        call_back();
        return Found{};
      },
      [&](const EntryAddress&, std::span<const std::byte>) -> Result<void> {
        if (cache != nullptr && !cache->get(request(80))) ++refused;
        return {};
      });
  Cache made(backend_, options_with(store));
  cache = &made;
  EXPECT_EQ(text(made.get(request(0)).value()), "source of program 0");
  made.flush();
  cache = nullptr;
  EXPECT_EQ(refused, 7);
  EXPECT_EQ(backend_->compiles, 2) << "one of them by the store itself";
}

TEST_F(SharedStoreOfACache, ThatBlocksInPutHoldsUpNoGetNoSaveAndNoEnd) {
  const auto gate = std::make_shared<Gate>();
  CacheOptions options = options_with(std::make_shared<fakes::FunctionStore>(
      [](const EntryAddress&) -> Result<Found> { return Found{}; },
      [gate](const EntryAddress&, std::span<const std::byte>) -> Result<void> {
        gate->pass();
        return {};
      }));
  options.upload_limit = std::chrono::milliseconds(20);
  options.write_queue = 4;
  {
    Cache cache(backend_, options);
    static_cast<void>(cache.get(request(0)).value());
    gate->wait_for_somebody();
    for (int i = 1; i < 20; ++i) static_cast<void>(cache.get(request(i)).value());
    cache.flush();
    EXPECT_EQ(entries().size(), 20U) << "saved, though the store takes nothing";
    EXPECT_GE(cache.stats().store_failures, 15U) << "dropped, since the queue was full";
  }
  // The cache has ended with the store still at work; the thread that is left behind ends with it.
  gate->open();
}

TEST_F(SharedStoreOfACache, ThatBlocksInGetHoldsUpNoGetAndNoEnd) {
  const auto gate = std::make_shared<Gate>();
  {
    Cache cache(backend_, options_with(std::make_shared<fakes::FunctionStore>(
                              [gate](const EntryAddress& address) -> Result<Found> {
                                if (address.key.name == "program_0") gate->pass();
                                return Found{};
                              },
                              [](const EntryAddress&, std::span<const std::byte>) -> Result<void> { return {}; })));
    for (int i = 0; i < 5; ++i)
      EXPECT_EQ(text(cache.get(request(i)).value()), "source of program " + std::to_string(i));
    cache.flush();
    EXPECT_EQ(entries().size(), 5U);
    EXPECT_EQ(cache.stats().stores.at(0).errors, 1U) << "it did not answer while a request waited";
  }
  // The cache has ended while the store is still at work; the thread that is left behind ends with it.
  gate->open();
}

TEST_F(SharedStoreOfACache, GetsEveryProgramThoughNothingMayWaitToBeSaved) {
  const auto store = std::make_shared<fakes::MemoryStore>();
  CacheOptions options = options_with(store);
  options.write_queue = 0;
  options.upload_limit = std::chrono::milliseconds::max();
  Cache cache(backend_, options);
  static_cast<void>(cache.get(request(0)).value());
  cache.flush();
  EXPECT_EQ(store->size(), 1U);
  EXPECT_EQ(cache.stats().store_failures, 0U);
}

TEST_F(SharedStoreOfACache, GetsTheBytesThatAreOnDiskAndTheOtherWayRound) {
  const auto store = std::make_shared<fakes::MemoryStore>();
  const EntryAddress address{backend_->identity().digest(), request(0).key()};
  { static_cast<void>(Cache(backend_, options_with(store)).get(request(0)).value()); }
  const auto shared = store->get(address).value().value();
  ASSERT_EQ(entries().size(), 1U);
  EXPECT_TRUE(fakes::bytes_of(fakes::read_file(entries()[0])) == shared);

  CacheOptions elsewhere = options_with(store);
  elsewhere.directory = folder_.path() / "elsewhere";
  { EXPECT_EQ(Cache(backend_, elsewhere).get(request(0)).value().origin(), Origin::shared); }
  ASSERT_EQ(entries().size(), 2U);
  for (const auto& file : entries()) EXPECT_TRUE(fakes::bytes_of(fakes::read_file(file)) == shared);
}

}  // namespace
}  // namespace kiln
