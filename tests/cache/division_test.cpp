#include <gtest/gtest.h>

#include <condition_variable>
#include <future>
#include <mutex>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <sys/stat.h>

#include "fakes/cache_fixture.hpp"
#include "fakes/child.hpp"
#include "fakes/files.hpp"

// How caches divide the programs that they all want. Two caches of one process exclude each other as two processes
// do.
namespace kiln {
namespace {

using fakes::FakeBackend;
using fakes::request;
using std::chrono::milliseconds;
using std::chrono::seconds;

class Division : public fakes::CacheTest {
 protected:
  static std::vector<Request> requests(int count) {
    std::vector<Request> requests;
    for (int i = 0; i < count; ++i) requests.push_back(request(i));
    return requests;
  }
  /// Options of a cache that does one thing after the other.
  CacheOptions one_thread() {
    CacheOptions options = this->options();
    options.threads = 1;
    return options;
  }

  std::shared_ptr<FakeBackend> other_ = std::make_shared<FakeBackend>();
};

TEST_F(Division, APreloadCompilesWhatNobodyElseDoesAndComesBackForTheRest) {
  std::promise<void> busy;
  std::promise<void> go_on;
  backend_->on_compile = [&](const Request& request) {
    if (request.name() != "program_0") return;
    busy.set_value();
    go_on.get_future().wait();
  };
  Cache first(backend_, one_thread());
  auto program = first.get_async(request(0));
  busy.get_future().wait();
  std::vector<std::string> order;
  other_->on_compile = [&](const Request& request) {
    order.push_back(request.name());
    if (order.size() == 9) go_on.set_value();
  };
  Cache second(other_, one_thread());
  EXPECT_EQ(second.preload(requests(10)).ready, 10U);
  EXPECT_TRUE(program.get());
  EXPECT_EQ(other_->compiles, 9);
  EXPECT_EQ(std::set(order.begin(), order.end()).count("program_0"), 0U);
  EXPECT_EQ(second.get(request(0)).value().origin(), Origin::disk);
  fakes::expect_counts_add_up(second.stats());
}

/// Has one place for background work, and any number for urgent requests.
class BackendWithPlaces final : public Backend {
 public:
  explicit BackendWithPlaces(std::shared_ptr<FakeBackend> fake) : fake_(std::move(fake)) {}
  const Identity& identity() const noexcept override { return fake_->identity(); }
  Result<Compiled> compile(const Request& request) override { return fake_->compile(request); }
  Result<std::unique_ptr<Module>> load(const Binary& binary) override { return fake_->load(binary); }
  unsigned useful_threads() const noexcept override { return useful; }
  std::unique_ptr<CompilePlace> wait_for_place(Urgency urgency) override {
    if (urgency == Urgency::now) return nullptr;
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !taken_; });
    --waiting_;
    taken_ = true;
    return std::make_unique<Place>(*this);
  }
  void wait_until_so_many_wait(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ == count; });
  }
  unsigned useful = 0;

 private:
  struct Place final : CompilePlace {
    explicit Place(BackendWithPlaces& of) : of_(of) {}
    ~Place() override {
      const std::lock_guard lock(of_.mutex_);
      of_.taken_ = false;
      of_.changed_.notify_all();
    }
    BackendWithPlaces& of_;
  };

  const std::shared_ptr<FakeBackend> fake_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_ = 0;
  bool taken_ = false;
};

TEST_F(Division, AnUrgentRequestForAProgramOfAPreloadDoesNotWaitForThePreload) {
  std::promise<void> busy;
  std::promise<void> go_on;
  std::string first;
  backend_->on_compile = [&](const Request& request) {
    if (!first.empty()) return;
    first = request.name();
    busy.set_value();
    go_on.get_future().wait();
  };
  const auto backend = std::make_shared<BackendWithPlaces>(backend_);
  CacheOptions options = this->options();
  options.threads = 4;
  Cache cache(backend, options);
  const auto wanted = requests(4);
  std::thread preload([&] { EXPECT_EQ(cache.preload(wanted).ready, 4U); });
  busy.get_future().wait();
  backend->wait_until_so_many_wait(3);
  for (const Request& request : wanted) {
    if (request.name() == first) continue;
    EXPECT_EQ(cache.get(request).value().origin(), Origin::compiled);
  }
  go_on.set_value();
  preload.join();
  EXPECT_EQ(backend_->compiles, 4);
}

TEST_F(Division, AStoredProgramDoesNotWaitForTheOneThreadThatCompilesWellOnADriver) {
  { static_cast<void>(Cache(backend_, options()).get(request(1)).value()); }
  std::promise<void> busy;
  std::promise<void> go_on;
  backend_->on_compile = [&](const Request&) {
    busy.set_value();
    go_on.get_future().wait();
  };
  const auto backend = std::make_shared<BackendWithPlaces>(backend_);
  backend->useful = 1;
  Cache cache(backend, options());
  auto compiled = cache.get_async(request(0));
  busy.get_future().wait();
  if (std::thread::hardware_concurrency() > 1) {
    EXPECT_EQ(cache.get_async(request(1)).get().value().origin(), Origin::disk);
  }
  go_on.set_value();
  EXPECT_TRUE(compiled.get());
}

TEST_F(Division, APreloadLoadsOtherProgramsWhileAnotherThreadCompilesItsFirst) {
  for (int i = 1; i < 4; ++i) static_cast<void>(Cache(backend_, options()).get(request(i)).value());
  std::promise<void> busy;
  std::promise<void> go_on;
  backend_->on_compile = [&](const Request&) {
    busy.set_value();
    go_on.get_future().wait();
  };
  Cache cache(backend_, one_thread());
  std::thread compiling([&] { EXPECT_TRUE(cache.get(request(0))); });
  busy.get_future().wait();
  const auto report = cache.preload(requests(4), [&](const Progress& progress) {
    if (progress.done == 3) go_on.set_value();
  });
  EXPECT_EQ(report.ready, 4U);
  compiling.join();
}

TEST_F(Division, AsynchronousGetsCompileWhatNobodyElseDoesAndComeBackForTheRest) {
  std::promise<void> busy;
  std::promise<void> go_on;
  backend_->on_compile = [&](const Request& request) {
    if (request.name() != "program_0") return;
    busy.set_value();
    go_on.get_future().wait();
  };
  Cache first(backend_, one_thread());
  auto program = first.get_async(request(0));
  busy.get_future().wait();
  other_->on_compile = [&](const Request&) {
    if (other_->compiles == 9) go_on.set_value();
  };
  Cache second(other_, one_thread());
  std::vector<Future<Program>> futures;
  for (int i = 0; i < 10; ++i) futures.push_back(second.get_async(request(i)));
  for (auto& future : futures) EXPECT_TRUE(future.get());
  EXPECT_EQ(other_->compiles, 9);
  EXPECT_TRUE(program.get());
  fakes::expect_counts_add_up(second.stats());
}

TEST_F(Division, OneOfThoseWhoWaitTakesOverFromAProcessThatStopped) {
  std::promise<void> busy;
  std::promise<void> go_on;
  backend_->on_compile = [&](const Request&) {
    busy.set_value();
    go_on.get_future().wait();
  };
  Cache stopped(backend_, one_thread());
  auto program = stopped.get_async(request(0));
  busy.get_future().wait();
  CacheOptions options = one_thread();
  options.lock_timeout = seconds(2);
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i)
    threads.emplace_back([&, i] {
      Cache cache(other_, options);
      if (i % 2 == 0)
        EXPECT_EQ(cache.preload(requests(1)).ready, 1U);
      else
        EXPECT_TRUE(cache.get(request(0)));
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(other_->compiles, 1);
  go_on.set_value();
  EXPECT_TRUE(program.get());
}

TEST_F(Division, AStoppedProcessKeepsItsProgramFromOthersForTheTimeoutOnly) {
  fakes::Child stopped([&](const fakes::Child::Report& report) {
    backend_->on_compile = [&](const Request&) {
      report("compiling");
      std::this_thread::sleep_for(milliseconds(100));
    };
    Cache cache(backend_, one_thread());
    const auto program = cache.get(request(0));
    report(program ? std::string(to_string(program->origin())) : program.error().message());
  });
  ASSERT_EQ(stopped.report(), "compiling");
  stopped.send(SIGSTOP);
  CacheOptions options = one_thread();
  options.lock_timeout = milliseconds(200);
  {
    Cache cache(other_, options);
    EXPECT_EQ(cache.preload(requests(4)).ready, 4U);
  }
  EXPECT_EQ(other_->compiles, 4);
  stopped.send(SIGCONT);
  EXPECT_EQ(stopped.report(), "compiled");
  EXPECT_EQ(stopped.wait(), 0);
}

TEST_F(Division, AFolderWithoutLocksDelaysNoPreload) {
  std::filesystem::create_directories(folder_.path() / "cache" / backend_->identity().folder());
  const std::string result = fakes::in_ordinary_child(folder_.path(), [&]() -> std::string {
    chmod((folder_.path() / "cache" / backend_->identity().folder()).c_str(), 0500);
    CacheOptions options = this->options();
    options.lock_timeout = std::chrono::hours(1);
    Cache cache(backend_, options);
    const auto ready = cache.preload(requests(5)).ready;
    chmod((folder_.path() / "cache" / backend_->identity().folder()).c_str(), 0700);
    return std::to_string(ready);
  });
  EXPECT_EQ(result, "5");
}

TEST_F(Division, ProgramsThatTookLongestBeforeAreCompiledFirst) {
  const auto version = [](int number) {
    std::vector<Request> requests;
    for (const char* name : {"quick", "slow", "medium"})
      requests.push_back(Request({.name = name, .source = fmt::format("version {} of {}", number, name)}));
    // The longest source, but of no known name.
    requests.push_back(Request({.name = fmt::format("new_{}", number), .source = std::string(10'000, 'x')}));
    return requests;
  };
  backend_->on_compile = [](const Request& request) {
    const int time = request.name() == "slow" ? 60 : request.name() == "medium" ? 25 : 1;
    std::this_thread::sleep_for(milliseconds(time));
  };
  { static_cast<void>(Cache(backend_, options()).preload(version(1))); }
  std::vector<std::string> order;
  backend_->on_compile = [&](const Request& request) { order.push_back(request.name()); };
  Cache cache(backend_, one_thread());
  EXPECT_EQ(cache.preload(version(2)).ready, 4U);
  EXPECT_EQ(order, (std::vector<std::string>{"new_2", "slow", "medium", "quick"}));
}

TEST_F(Division, TimesOfAnotherDriverCountToo) {
  backend_->on_compile = [](const Request& request) {
    if (request.name() == "program_2") std::this_thread::sleep_for(milliseconds(50));
  };
  { static_cast<void>(Cache(backend_, options()).preload(requests(4))); }
  Identity identity = backend_->identity();
  identity.driver = "2.0";
  const auto newer = std::make_shared<FakeBackend>(identity);
  std::vector<std::string> order;
  newer->on_compile = [&](const Request& request) { order.push_back(request.name()); };
  Cache cache(newer, one_thread());
  EXPECT_EQ(cache.preload(requests(4)).ready, 4U);
  ASSERT_FALSE(order.empty());
  EXPECT_EQ(order.front(), "program_2");
}

TEST_F(Division, DamagedTimesDoNoHarm) {
  { static_cast<void>(Cache(backend_, options()).preload(requests(4))); }
  int number = 0;
  for (const auto& item : std::filesystem::recursive_directory_iterator(folder_.path()))
    if (item.path().extension() == ".meta")
      fakes::write_file(item.path(),
                        std::vector<std::string>{"", "{\"compile_ms\": -1e999}", "{\"compile_ms\": []}",
                                                 "{\"compile_ms\": 1e300}"}[number++ % 4]);
  EXPECT_EQ(number, 4);
  Identity identity = backend_->identity();
  identity.driver = "2.0";
  Cache cache(std::make_shared<FakeBackend>(identity), one_thread());
  EXPECT_EQ(cache.preload(requests(4)).ready, 4U);
}

TEST_F(Division, ProgressTellsTheRemainingTimeAndThePlaceInTheList) {
  backend_->on_compile = [](const Request&) { std::this_thread::sleep_for(milliseconds(20)); };
  Cache cache(backend_, one_thread());
  const auto wanted = requests(5);
  std::set<std::size_t> places;
  cache.preload(wanted, [&](const Progress& progress) {
    ASSERT_LT(progress.index, wanted.size());
    EXPECT_EQ(progress.name, wanted[progress.index].name());
    places.insert(progress.index);
    ASSERT_TRUE(progress.remaining);
    if (progress.done == progress.total)
      EXPECT_EQ(progress.remaining->count(), 0);
    else
      EXPECT_GE(*progress.remaining, milliseconds(5));
  });
  EXPECT_EQ(places.size(), 5U);
}

TEST_F(Division, SlowLoadsAreSharedByThreads) {
  { static_cast<void>(Cache(backend_, options()).preload(requests(10))); }
  std::mutex mutex;
  std::condition_variable changed;
  int loading = 0;
  bool together = false;
  backend_->on_load = [&] {
    std::unique_lock lock(mutex);
    if (backend_->loads == 1) {
      lock.unlock();
      return std::this_thread::sleep_for(milliseconds(5));
    }
    together = together || ++loading == 2;
    changed.notify_all();
    changed.wait(lock, [&] { return together; });
  };
  CacheOptions options = this->options();
  options.threads = 4;
  Cache cache(backend_, options);
  EXPECT_EQ(cache.preload(requests(10)).ready, 10U);
  EXPECT_EQ(backend_->compiles, 10);
}

/// A backend whose threads are no use.
class OneThreadBackend final : public Backend {
 public:
  const Identity& identity() const noexcept override { return fake.identity(); }
  unsigned useful_threads() const noexcept override { return 1; }
  Result<Compiled> compile(const Request& request) override { return fake.compile(request); }
  Result<std::unique_ptr<Module>> load(const Binary& binary) override { return fake.load(binary); }
  FakeBackend fake;
};

TEST_F(Division, ABackendThatThreadsDoNotHelpGetsOne) {
  const auto backend = std::make_shared<OneThreadBackend>();
  std::set<std::thread::id> threads;
  std::mutex mutex;
  backend->fake.on_compile = [&](const Request&) {
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
  };
  Cache cache(backend, options());
  EXPECT_EQ(cache.preload(requests(20)).ready, 20U);
  EXPECT_EQ(threads.size(), 1U);
}

TEST_F(Division, ManyProcessesThatPreloadTheSameCompileItOnceInAll) {
  backend_->on_compile = [](const Request&) { std::this_thread::sleep_for(milliseconds(1)); };
  std::vector<std::unique_ptr<fakes::Child>> children;
  for (int i = 0; i < 8; ++i)
    children.push_back(std::make_unique<fakes::Child>([&](const fakes::Child::Report& report) {
      CacheOptions options = this->options();
      options.threads = 4;
      Cache cache(backend_, options);
      const auto ready = cache.preload(requests(50)).ready;
      report(fmt::format("{} {}", ready, cache.stats().compiles));
    }));
  int compiles = 0;
  for (auto& child : children) {
    const std::string text = child->report();
    ASSERT_TRUE(text.starts_with("50 ")) << text;
    compiles += std::stoi(text.substr(3));
  }
  EXPECT_EQ(compiles, 50);
}

}  // namespace
}  // namespace kiln
