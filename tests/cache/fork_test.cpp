#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <future>
#include <latch>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <poll.h>
#include <unistd.h>

#include "fakes/cache_fixture.hpp"
#include "fakes/cache_on_file_system.hpp"
#include "fakes/child.hpp"
#include "store/bookkeeping.hpp"
#include "store/directory.hpp"

namespace kiln {
namespace {

using fakes::request;

/// A pipe that carries events between processes.
class Event {
 public:
  Event() {
    if (pipe(ends_.data()) != 0) std::abort();
  }
  ~Event() {
    for (const int end : ends_) close(end);
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void happens() const {
    if (write(ends_[1], "x", 1) != 1) std::abort();
  }
  /// Ends the process where the other one does not get there.
  void wait() const {
    char seen = 0;
    pollfd ready{ends_[0], POLLIN, 0};
    if (poll(&ready, 1, 60'000) != 1 || read(ends_[0], &seen, 1) != 1) std::abort();
  }

 private:
  std::array<int, 2> ends_{};
};

/// Tells when this process, or its child, finds a lock held.
class LockWatch final : public base::FileSystem {
 public:
  LockWatch() : parent_(getpid()) {}

  int lock(int file, int command, struct flock* lock_request) const override {
    const int result = FileSystem::lock(file, command, lock_request);
    if (result != 0 && errno == EAGAIN && !told_.exchange(true)) (getpid() == parent_ ? parent : child).happens();
    return result;
  }

  Event parent;
  Event child;

 private:
  const pid_t parent_;
  mutable std::atomic<bool> told_{false};
};

/// Caches that are used on both sides of a fork. A child that hangs is killed by its alarm, and reports how it
/// ended.
class ForkedCache : public fakes::CacheTest {
 protected:
  ForkedCache() { options_.threads = 2; }

  void SetUp() override {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the sanitizer does not follow threads that a forked child starts";
#endif
  }

  CacheOptions options() {
    CacheOptions options = options_;
    options.directory = folder_.path() / "cache";
    options.log = book_.log();
    return options;
  }

  static std::string in_child(const std::function<std::string()>& body) {
    return fakes::in_child([&body] {
      alarm(60);
      return body();
    });
  }

  static std::vector<Request> requests(int first, int count) {
    std::vector<Request> requests;
    for (int i = first; i < first + count; ++i) requests.push_back(request(i));
    return requests;
  }

  /// Starts the writer and the workers of the cache.
  static void use(Cache& cache) {
    ASSERT_EQ(cache.preload(requests(0, 10)).ready, 10U);
    for (int i = 10; i < 14; ++i) cache.get_async(request(i)).get().value();
    cache.flush();
  }

  /// Uses the cache in every way; "done", or what is wrong.
  static std::string use_in_every_way(Cache& cache, int first) {
    const auto right = [](const Result<Program>& program, int i) {
      return program && text(*program) == "source of program " + std::to_string(i);
    };
    if (!right(cache.get(request(first)), first)) return "get";
    if (!right(cache.get_async(request(first + 1)).get(), first + 1)) return "get_async";
    std::promise<Result<Program>> answer;
    cache.get_async(request(first + 2), [&](Result<Program> program) { answer.set_value(std::move(program)); });
    if (!right(answer.get_future().get(), first + 2)) return "get_async with a callback";
    if (cache.preload(requests(first, 20)).ready != 20) return "preload";
    cache.flush();
    static_cast<void>(cache.trim());
    if (!right(cache.find(request(first)).value().value(), first)) return "find";
    if (!cache.warm().errors.empty()) return "warm";
    if (!cache.persist()) return "persist";
    if (!cache.prune({})) return "prune";
    if (cache.programs().empty()) return "programs";
    const Stats stats = cache.stats();
    return stats.requests > 0 && stats.compiles > 0 && stats.save_failures == 0 ? "done" : "stats";
  }

  CacheOptions options_;
};

TEST_F(ForkedCache, IsUsedInTheChildInEveryWay) {
  auto cache = std::make_unique<Cache>(backend_, options());
  use(*cache);
  EXPECT_EQ(in_child([&] { return use_in_every_way(*cache, 100); }), "done");
  EXPECT_EQ(use_in_every_way(*cache, 200), "done") << "the parent is not affected";
  EXPECT_EQ(in_child([&]() -> std::string {
              if (!cache->clear()) return "clear";
              cache.reset();
              return "done";
            }),
            "done");
  EXPECT_TRUE(entries().empty());
}

TEST_F(ForkedCache, GetsAndSavesInTheChild) {
  Cache cache(backend_, options());
  use(cache);
  EXPECT_EQ(in_child([&]() -> std::string {
              cache.get(request(100)).value();
              cache.flush();
              return "done";
            }),
            "done");
  EXPECT_EQ(entries().size(), 15U);
}

TEST_F(ForkedCache, AnswersAsynchronouslyInTheChild) {
  Cache cache(backend_, options());
  use(cache);
  EXPECT_EQ(in_child([&] { return text(cache.get_async(request(100)).get().value()); }), "source of program 100");
}

TEST_F(ForkedCache, PreloadsInTheChild) {
  Cache cache(backend_, options());
  use(cache);
  EXPECT_EQ(in_child([&] { return std::to_string(cache.preload(requests(5, 30)).ready); }), "30");
}

TEST_F(ForkedCache, KeepsWhatWasInMemory) {
  options_.disk = false;
  Cache cache(backend_, options());
  use(cache);
  const int compiles = backend_->compiles;
  EXPECT_EQ(in_child([&]() -> std::string {
              cache.get(request(100)).value();
              for (int i = 0; i < 14; ++i) cache.get(request(i)).value();
              return std::to_string(backend_->compiles - compiles);
            }),
            "1");
}

TEST_F(ForkedCache, SavesAndCountsWhatTheChildDidWhenTheChildDestroysIt) {
  auto cache = std::make_unique<Cache>(backend_, options());
  use(*cache);
  for (int i = 0; i < 5; ++i) cache->get(request(0)).value();
  EXPECT_EQ(in_child([&]() -> std::string {
              for (int i = 0; i < 7; ++i) cache->get(request(1)).value();
              for (int i = 100; i < 103; ++i) cache->get(request(i)).value();
              const Stats stats = cache->stats();
              cache.reset();
              return std::to_string(stats.memory_hits) + " hits, " + std::to_string(stats.compiles) +
                     " compiles, " + std::to_string(stats.requests) + " requests";
            }),
            "7 hits, 3 compiles, 10 requests");
  EXPECT_EQ(entries().size(), 17U);
  const Stats parents = cache->stats();
  EXPECT_EQ(parents.compiles, 14U);
  EXPECT_EQ(parents.memory_hits, 5U);
  cache.reset();
  const auto lifetime = store::read_lifetime(folder_.path() / "cache");
  EXPECT_EQ(lifetime.totals.compiles, 17U);
  EXPECT_EQ(lifetime.totals.memory_hits, 12U);
  EXPECT_EQ(lifetime.totals.requests, parents.requests + 10);
}

TEST_F(ForkedCache, IsUsedByGrandchildren) {
  Cache cache(backend_, options());
  use(cache);
  EXPECT_EQ(in_child([&]() -> std::string {
              if (const auto told = use_in_every_way(cache, 100); told != "done") return told;
              return in_child([&]() -> std::string {
                if (const auto told = use_in_every_way(cache, 200); told != "done") return told;
                return in_child([&] { return use_in_every_way(cache, 300); });
              });
            }),
            "done");
  EXPECT_EQ(in_child([&] { return in_child([&] { return use_in_every_way(cache, 400); }); }), "done")
      << "a grandchild whose parent has not used it";
}

TEST_F(ForkedCache, IsFirstUsedByManyThreadsOfTheChildAtOnce) {
  Cache cache(backend_, options());
  use(cache);
  for (int round = 0; round < 10; ++round)
    EXPECT_EQ(in_child([&]() -> std::string {
                std::barrier all(8);
                std::atomic<int> wrong{0};
                const int before = backend_->compiles;
                const int first = 100 * (round + 1);
                std::vector<std::thread> threads;
                for (int i = 0; i < 8; ++i)
                  threads.emplace_back([&, i] {
                    all.arrive_and_wait();
                    if (!cache.get(request(first + i % 4))) ++wrong;
                    if (!cache.get_async(request(first + i % 3)).get()) ++wrong;
                  });
                for (auto& thread : threads) thread.join();
                cache.flush();
                if (backend_->compiles - before != 4) return "a program is compiled twice";
                const Stats stats = cache.stats();
                if (stats.requests != 16) return std::to_string(stats.requests) + " requests";
                return wrong == 0 ? "done" : "some are wrong";
              }),
              "done");
  EXPECT_EQ(entries().size(), 54U);
}

TEST_F(ForkedCache, DestroysNoModuleOfTheParentsInTheChild) {
  auto cache = std::make_unique<Cache>(backend_, options());
  use(*cache);
  EXPECT_EQ(in_child([&]() -> std::string {
              const int before = backend_->counts->destroyed;
              for (int i = 100; i < 103; ++i) cache->get(request(i)).value();
              if (!cache->evict(request(0)) || cache->evict(request(0))) return "evict";
              if (cache->trim(8) != 8) return "trim";
              if (backend_->counts->destroyed != before) return "the parent's programs are destroyed";
              cache.reset();
              return std::to_string(backend_->counts->destroyed - before);
            }),
            "3");
  EXPECT_EQ(in_child([&]() -> std::string {
              const int before = backend_->counts->destroyed;
              cache.reset();
              return std::to_string(backend_->counts->destroyed - before);
            }),
            "0");
}

TEST_F(ForkedCache, WaitsInTheChildForWhatTheParentCompiles) {
  LockWatch system;
  auto cache = fakes::cache_on(system, backend_, options());
  use(*cache);
  std::latch compiling(1);
  std::latch go_on(1);
  backend_->on_compile = [&](const Request&) {
    compiling.count_down();
    go_on.wait();
  };
  std::thread getting([&] { EXPECT_TRUE(cache->get(request(100))); });
  compiling.wait();
  fakes::Child child([&](const fakes::Child::Report& report) {
    alarm(60);
    backend_->on_compile = {};
    report(std::string(to_string(cache->get(request(100)).value().origin())));
  });
  system.child.wait();
  go_on.count_down();
  getting.join();
  EXPECT_EQ(child.report(), to_string(Origin::disk));
}

TEST_F(ForkedCache, WaitsInTheParentForWhatTheChildCompiles) {
  LockWatch system;
  auto cache = fakes::cache_on(system, backend_, options());
  use(*cache);
  fakes::Child child([&](const fakes::Child::Report& report) {
    alarm(60);
    backend_->on_compile = [&](const Request&) {
      report("compiling");
      system.parent.wait();
    };
    const std::string origin(to_string(cache->get(request(100)).value().origin()));
    cache->flush();
    report(origin);
  });
  ASSERT_EQ(child.report(), "compiling");
  EXPECT_EQ(cache->get(request(100)).value().origin(), Origin::disk);
  EXPECT_EQ(child.report(), to_string(Origin::compiled));
}

TEST_F(ForkedCache, HoldsNoLockOfAParentThatHasDied) {
  options_.lock_timeout = std::chrono::hours(1);
  Event used;
  Event parent_is_gone;
  // Reports through the pipe that it inherits; the one between is killed while it compiles.
  fakes::Child parent([&](const fakes::Child::Report& report) {
    auto cache = std::make_unique<Cache>(backend_, options());
    cache->get(request(0)).value();
    cache->flush();
    std::latch compiling(1);
    backend_->on_compile = [&](const Request&) {
      compiling.count_down();
      for (;;) pause();
    };
    std::thread getting([&] { static_cast<void>(cache->get(request(100))); });
    compiling.wait();
    if (fork() == 0) {
      alarm(60);
      backend_->on_compile = {};
      cache->get(request(1)).value();
      used.happens();
      parent_is_gone.wait();
      report(text(cache->get(request(100)).value()));
      _exit(0);
    }
    for (;;) pause();
  });
  used.wait();
  parent.kill();
  parent_is_gone.happens();
  EXPECT_EQ(parent.report(), "source of program 100");
}

TEST_F(ForkedCache, IsUsedInChildrenWhileThreadsOfTheParentCompileSaveHitAndEvict) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP()
      << "a child may inherit a lock of AddressSanitizer's allocator from a thread that it does not have (gcc 12)";
#endif
  options_.max_programs = 8;
  options_.write_queue = 4;
  Cache cache(backend_, options());
  std::atomic<bool> ends{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed)
    threads.emplace_back([&, seed] {
      std::mt19937 random(seed);
      for (int round = 0; !ends; ++round) {
        const int i = static_cast<int>(random() % 40);
        if (text(cache.get(request(i)).value()) != "source of program " + std::to_string(i)) ++wrong;
        if (round % 50 == 0 && !cache.get_async(request(1000 + round)).get()) ++wrong;
        if (seed == 0 && round % 100 == 0) cache.trim();
        if (seed == 1 && round % 100 == 0) cache.flush();
        if (seed == 2 && round % 500 == 0) static_cast<void>(cache.clear());
      }
    });
  for (int round = 0; round < 50; ++round) {
    ASSERT_EQ(in_child([&]() -> std::string {
                for (int i = 0; i < 10; ++i)
                  if (text(cache.get(request(i)).value()) != "source of program " + std::to_string(i)) return "get";
                if (!cache.get_async(request(50 + round)).get()) return "get_async";
                if (cache.preload(requests(0, 40)).ready != 40) return "preload";
                cache.flush();
                if (cache.stats().requests < 51) return "stats";
                if (round % 10 == 0 && !cache.clear()) return "clear";
                cache.trim();
                return "done";
              }),
              "done")
        << "round " << round;
  }
  ends = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  cache.flush();
  for (const auto& file : entries()) EXPECT_TRUE(store::read_entry(file.parent_path(), file.filename())) << file;
}

}  // namespace
}  // namespace kiln
