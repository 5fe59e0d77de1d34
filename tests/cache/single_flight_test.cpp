#include <gtest/gtest.h>

#include <barrier>
#include <functional>
#include <future>
#include <latch>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "base/file_system.hpp"
#include "cache/saver.hpp"
#include "fakes/cache_fixture.hpp"
#include "fakes/cache_on_file_system.hpp"
#include "fakes/child.hpp"

namespace kiln {
namespace {

using fakes::request;

class SingleFlight : public fakes::CacheTest {
 protected:
  /// Runs `work` on that many threads, all let go at once.
  static void at_once(int threads, const std::function<void(int)>& work) {
    std::barrier start(threads);
    std::vector<std::thread> running;
    for (int i = 0; i < threads; ++i)
      running.emplace_back([&, i] {
        start.arrive_and_wait();
        work(i);
      });
    for (std::thread& thread : running) thread.join();
  }
};

TEST_F(SingleFlight, SixtyFourThreadsOnOneKeyCompileOnce) {
  Cache cache(backend_, options());
  std::vector<Program> programs(64);
  at_once(64, [&](int i) { programs[static_cast<std::size_t>(i)] = cache.get(request(1)).value(); });
  EXPECT_EQ(backend_->compiles, 1);
  for (const Program& program : programs) EXPECT_EQ(&program.module(), &programs[0].module());
  const Stats stats = cache.stats();
  EXPECT_EQ(stats.requests, 64U);
  EXPECT_EQ(stats.compiles, 1U);
  fakes::expect_counts_add_up(stats);
}

TEST_F(SingleFlight, EveryWaitingThreadGetsTheOneError) {
  Cache cache(backend_, options());
  constexpr int threads = 8;
  std::latch all_asked(threads);
  // The compiler comes back only when the others had their chance to ask; those who come later try again.
  backend_->on_compile = [&](const Request&) { all_asked.wait(); };
  const Request broken({.name = "broken", .source = "does not compile"});
  std::atomic<int> errors{0};
  at_once(threads, [&](int) {
    all_asked.count_down();
    const auto result = cache.get(broken);
    if (!result && result.error().log() == "log of broken") ++errors;
  });
  EXPECT_EQ(errors, threads);
  const Stats stats = cache.stats();
  EXPECT_EQ(stats.failures, static_cast<std::uint64_t>(backend_->compiles));
  EXPECT_EQ(stats.failures + stats.joined, static_cast<std::uint64_t>(threads));
}

TEST_F(SingleFlight, DifferentKeysCompileInParallel) {
  Cache cache(backend_, options());
  // Neither compile ends before the other has begun.
  std::barrier both(2);
  backend_->on_compile = [&](const Request&) { both.arrive_and_wait(); };
  at_once(2, [&](int i) { EXPECT_TRUE(cache.get(request(i))); });
  EXPECT_EQ(backend_->compiles, 2);
}

TEST_F(SingleFlight, HitsGoOnWhileAnotherProgramIsCompiled) {
  Cache cache(backend_, options());
  static_cast<void>(cache.get(request(0)).value());
  std::latch compiling(1);
  std::latch go_on(1);
  backend_->on_compile = [&](const Request&) {
    compiling.count_down();
    go_on.wait();
  };
  std::thread slow([&] { EXPECT_TRUE(cache.get(request(1))); });
  compiling.wait();
  EXPECT_TRUE(cache.get(request(0)));
  EXPECT_EQ(cache.trim(), 1U) << "nor does evicting wait for the compiler";
  go_on.count_down();
  slow.join();
}

TEST_F(SingleFlight, AnExceptionOutOfABackendIsAnErrorForEveryone) {
  Cache cache(backend_, options());
  backend_->on_compile = [](const Request&) { throw std::runtime_error("out of toner"); };
  const auto result = cache.get(request(1));
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message().find("out of toner"), std::string::npos);
  backend_->on_compile = nullptr;
  EXPECT_TRUE(cache.get(request(1)));
}

TEST_F(SingleFlight, WhateverABackendThrowsTheKeyIsFreeAfterwards) {
  Cache cache(backend_, options());
  backend_->on_compile = [](const Request&) { throw 42; };
  EXPECT_FALSE(cache.get(request(1)));
  EXPECT_EQ(cache.stats().failures, 1U);
  backend_->on_compile = nullptr;
  EXPECT_TRUE(cache.get(request(1)));
}

TEST_F(SingleFlight, AnExceptionWhileABinaryIsLoadedIsAMiss) {
  static_cast<void>(Cache(backend_, options()).get(request(1)).value());
  struct Silent : std::exception {
    const char* what() const noexcept override { return nullptr; }
  };
  const std::vector<std::function<void()>> throwing = {[] { throw std::runtime_error("no toner"); },
                                                       [] { throw Silent(); }, [] { throw 42; }};
  for (const auto& thrown : throwing) {
    Cache cache(backend_, options());
    backend_->compiles = 0;
    backend_->on_load = thrown;
    EXPECT_EQ(text(cache.get(request(1)).value()), "source of program 1");
    EXPECT_EQ(backend_->compiles, 1);
    EXPECT_EQ(cache.stats().failures, 0U);
    backend_->on_load = nullptr;
  }
}

TEST_F(SingleFlight, ABackendThatThrowsOutOfMemoryIsCalledAgainAfterAnEviction) {
  Cache cache(backend_, options());
  static_cast<void>(cache.get(request(0)).value());
  backend_->on_compile = [this](const Request&) {
    if (backend_->counts->alive > 0) throw std::bad_alloc();
  };
  EXPECT_TRUE(cache.get(request(1)));
  EXPECT_EQ(cache.stats().pressure, 1U);
}

TEST_F(SingleFlight, ARequestForTheProgramThatIsBeingCompiledIsCountedAsAFailure) {
  Cache cache(backend_, options());
  backend_->on_compile = [&](const Request& request) {
    EXPECT_EQ(cache.get(request).error().code(), ErrorCode::invalid_request);
  };
  EXPECT_TRUE(cache.get(request(1)));
  const Stats stats = cache.stats();
  EXPECT_EQ(stats.failures, 1U);
  EXPECT_EQ(stats.requests, 2U);
}

TEST_F(SingleFlight, AProgramEvictedWhileItWaitsToBeSavedIsNotCompiledAgain) {
  // The writer is held up at its first file; the cache opens its folder before.
  struct SlowDisk final : base::FileSystem {
    mutable std::latch saving{1};
    mutable std::latch go_on{1};
    mutable std::atomic<bool> held{false};
    int rename(int folder, const char* from, const char* to) const override {
      if (std::string_view(to).starts_with("program_0-") && !held.exchange(true)) {
        saving.count_down();
        go_on.wait();
      }
      return FileSystem::rename(folder, from, to);
    }
  };
  const SlowDisk disk;
  const auto cache = fakes::cache_on(disk, backend_, options());
  static_cast<void>(cache->get(request(0)).value());
  disk.saving.wait();
  static_cast<void>(cache->get(request(1)).value());
  EXPECT_TRUE(cache->evict(request(1)));
  EXPECT_EQ(text(cache->get(request(1)).value()), "source of program 1");
  EXPECT_EQ(backend_->compiles, 2);
  disk.go_on.count_down();
}

TEST_F(SingleFlight, TwoCachesOnOneFolderCompileOnceBetweenThem) {
  Cache one(backend_, options());
  Cache two(backend_, options());
  at_once(16, [&](int i) {
    for (int key = 0; key < 20; ++key)
      EXPECT_EQ(text((i % 2 == 0 ? one : two).get(request(key)).value()),
                "source of program " + std::to_string(key));
  });
  EXPECT_EQ(backend_->compiles, 20);
  EXPECT_EQ(one.stats().compiles + two.stats().compiles, 20U);
}

TEST_F(SingleFlight, ALockNotHadInTimeCostsASecondCompileAndNothingElse) {
  CacheOptions options = this->options();
  options.lock_timeout = std::chrono::milliseconds(1);
  Cache one(backend_, options);
  Cache two(backend_, options);
  std::atomic<int> inside{0};
  // The first one compiles for as long as the second takes to give up waiting.
  backend_->on_compile = [&](const Request&) {
    const int mine = ++inside;
    inside.notify_all();
    if (mine == 1) inside.wait(1);
  };
  at_once(2, [&](int i) { EXPECT_TRUE((i == 0 ? one : two).get(request(0))); });
  EXPECT_EQ(backend_->compiles, 2);
}

TEST_F(SingleFlight, DestroyingTheCacheWaitsForGetsUnderWay) {
  auto cache = std::make_unique<Cache>(backend_, options());
  constexpr int threads = 4;
  std::latch compiling(threads);
  std::promise<void> gone;
  const auto destroyed = gone.get_future().share();
  std::atomic<int> too_early{0};
  backend_->on_compile = [&](const Request&) {
    compiling.count_down();
    if (destroyed.wait_for(std::chrono::milliseconds(50)) == std::future_status::ready) ++too_early;
  };
  std::vector<Program> programs(threads);
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i)
    running.emplace_back(
        [&, asked = cache.get(), i] { programs[static_cast<std::size_t>(i)] = asked->get(request(i)).value(); });
  compiling.wait();
  cache.reset();
  gone.set_value();
  for (std::thread& thread : running) thread.join();
  EXPECT_EQ(too_early, 0);
  for (int i = 0; i < threads; ++i)
    EXPECT_EQ(text(programs[static_cast<std::size_t>(i)]), "source of program " + std::to_string(i));
  EXPECT_EQ(entries().size(), static_cast<std::size_t>(threads)) << "all were saved";
}

TEST_F(SingleFlight, APreloadUnderWayEndsWhenTheCacheIsDestroyed) {
  for (const unsigned threads : {1U, 3U}) {
    backend_->compiles = 0;
    CacheOptions options = this->options();
    options.disk = false;
    options.threads = threads;
    auto cache = std::make_unique<Cache>(backend_, options);
    std::latch compiling(1);
    std::atomic_flag told;
    backend_->on_compile = [&](const Request&) {
      if (!told.test_and_set()) compiling.count_down();
    };
    std::vector<Request> requests;
    for (int i = 0; i < 64; ++i) requests.push_back(request(i));
    PreloadReport report;
    std::thread preloading([&, asked = cache.get()] { report = asked->preload(requests); });
    compiling.wait();
    cache.reset();
    preloading.join();
    EXPECT_EQ(report.ready, requests.size());
    EXPECT_EQ(backend_->compiles, static_cast<int>(requests.size()));
  }
}

TEST_F(SingleFlight, ABackendThatAsksForTheProgramItIsToCompileGetsAnError) {
  const std::string told = fakes::in_child([&]() -> std::string {
    alarm(60);
    Cache cache(backend_, options());
    std::string refusal = "it was not refused";
    backend_->on_compile = [&](const Request& wanted) {
      if (const auto again = cache.get(wanted); !again) refusal = again.error().message();
    };
    return cache.get(request(0)) ? refusal : "it was not compiled";
  });
  EXPECT_EQ(told, "a backend or a store requested the program that it is providing");
}

TEST(Writer, AJobMayFlush) {
  const std::string told = fakes::in_child([]() -> std::string {
    alarm(60);
    bool done = false;
    cache::Writer writer(4);
    writer.write([&] {
      writer.flush();
      done = true;
    });
    writer.flush();
    return done ? "done" : "the job was not waited for";
  });
  EXPECT_EQ(told, "done");
}

TEST_F(SingleFlight, AForkedChildMayDestroyACacheThatIsInUse) {
  auto cache = std::make_unique<Cache>(backend_, options());
  std::latch compiling(1);
  std::latch forked(1);
  backend_->on_compile = [&](const Request&) {
    compiling.count_down();
    forked.wait();
  };
  std::thread getting([&] { EXPECT_TRUE(cache->get(request(0))); });
  compiling.wait();
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    cache.reset();
    _exit(0);
  }
  forked.count_down();
  getting.join();
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  cache.reset();
  EXPECT_EQ(entries().size(), 1U);
}

}  // namespace
}  // namespace kiln
