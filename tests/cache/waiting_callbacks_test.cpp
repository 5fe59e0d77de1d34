#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <latch>
#include <stdexcept>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

#include "fakes/cache_fixture.hpp"
#include "fakes/child.hpp"

namespace kiln {
namespace {

using fakes::request;

/// Callbacks that wait for the cache that calls them, with one worker and with four. A deadlock ends the child
/// process that runs the test, not the test.
class WaitingCallbacks : public fakes::CacheTest, public testing::WithParamInterface<unsigned> {
 protected:
  CacheOptions options() {
    CacheOptions options = CacheTest::options();
    options.threads = GetParam();
    return options;
  }
  static int workers() { return static_cast<int>(GetParam()); }

  static std::vector<Request> requests(int first, int count) {
    std::vector<Request> requests;
    for (int i = first; i < first + count; ++i) requests.push_back(request(i));
    return requests;
  }

  static std::string with_deadline(const std::function<std::string()>& body) {
    return fakes::in_child([&body] {
      alarm(60);
      return body();
    });
  }

  /// Runs `inside` in as many callbacks at once as there are workers.
  std::string in_all_workers(const std::function<bool(Cache&, int)>& inside) {
    return with_deadline([&]() -> std::string {
      std::atomic<int> right{0};
      Cache cache(backend_, options());
      std::latch all_inside(workers());
      std::latch ended(workers());
      for (int i = 0; i < workers(); ++i)
        cache.get_async(request(i), [&, i](const Result<Program>& program) {
          all_inside.arrive_and_wait();
          if (program && inside(cache, i)) ++right;
          ended.count_down();
        });
      // Before the cache is destroyed, which may do what waits in another way.
      ended.wait();
      return right == workers() ? "done" : std::to_string(right) + " are right";
    });
  }
};

TEST_P(WaitingCallbacks, MayPreload) {
  EXPECT_EQ(
      in_all_workers([](Cache& cache, int i) { return cache.preload(requests(100 * (i + 1), 20)).ready == 20; }),
      "done");
}

TEST_P(WaitingCallbacks, MayWarm) {
  { static_cast<void>(Cache(backend_, options()).preload(requests(1000, 20))); }
  EXPECT_EQ(in_all_workers([](Cache& cache, int) { return cache.warm().ready >= 20; }), "done");
}

TEST_P(WaitingCallbacks, MayWaitForOtherPrograms) {
  EXPECT_EQ(in_all_workers([](Cache& cache, int i) {
              auto first = cache.get_async(request(100 + i));
              auto second = cache.get_async(request(1000));
              return first.get() && second.get();
            }),
            "done");
}

TEST_P(WaitingCallbacks, MayWaitForEachOtherThreeDeep) {
  EXPECT_EQ(in_all_workers([](Cache& cache, int i) {
              std::promise<bool> outer;
              cache.get_async(request(100 + i), [&](const Result<Program>&) {
                std::promise<bool> inner;
                cache.get_async(request(200 + i), [&](const Result<Program>&) {
                  const bool ready = cache.preload(requests(300, 10)).ready == 10;
                  inner.set_value(ready && cache.get_async(request(400 + i)).get());
                });
                outer.set_value(inner.get_future().get());
              });
              return outer.get_future().get();
            }),
            "done");
}

TEST_P(WaitingCallbacks, MayWaitForWhatWasAskedForBefore) {
  EXPECT_EQ(with_deadline([&]() -> std::string {
              Cache cache(backend_, options());
              std::latch asked(1);
              std::vector<Future<Program>> later;
              std::latch ended(workers());
              for (int i = 0; i < workers(); ++i)
                cache.get_async(request(i), [&](const Result<Program>&) {
                  asked.wait();
                  for (const auto& future : later) future.wait();
                  ended.count_down();
                });
              for (int i = 0; i < 20; ++i) later.push_back(cache.get_async(request(100 + i)));
              asked.count_down();
              ended.wait();
              return "done";
            }),
            "done");
}

TEST_P(WaitingCallbacks, OfProgressMayAskForProgramsAndWait) {
  EXPECT_EQ(with_deadline([&]() -> std::string {
              Cache cache(backend_, options());
              std::atomic<int> wrong{0};
              std::atomic<int> at_once{0};
              int next = 1000;
              const PreloadReport report = cache.preload(requests(0, 30), [&](const Progress&) {
                if (++at_once != 1) ++wrong;
                if (!cache.get_async(request(next++)).get()) ++wrong;
                if (cache.preload(requests(next, 3)).ready != 3) ++wrong;
                next += 3;
                --at_once;
              });
              if (report.ready != 30) return "not all are ready";
              return wrong == 0 ? "done" : std::to_string(wrong) + " are wrong";
            }),
            "done");
}

TEST_P(WaitingCallbacks, OfABackendMayAskForOtherProgramsAndWait) {
  EXPECT_EQ(with_deadline([&]() -> std::string {
              std::atomic<int> right{0};
              Cache cache(backend_, options());
              std::latch all_inside(workers());
              backend_->on_compile = [&](const Request& wanted) {
                const int i = std::stoi(wanted.name().substr(wanted.name().find('_') + 1));
                if (i >= 100) return;
                all_inside.arrive_and_wait();
                if (cache.get_async(request(100 + i)).get()) ++right;
              };
              std::vector<Future<Program>> programs;
              for (int i = 0; i < workers(); ++i) programs.push_back(cache.get_async(request(i)));
              for (auto& program : programs) program.get().value();
              return right == workers() ? "done" : std::to_string(right) + " are right";
            }),
            "done");
}

TEST_P(WaitingCallbacks, OfABackendMayWaitWhileOthersAskForTheProgramThatItCompiles) {
  EXPECT_EQ(with_deadline([&]() -> std::string {
              constexpr int askers = 40;
              Cache cache(backend_, options());
              std::latch all_asked(1);
              backend_->on_compile = [&](const Request& wanted) {
                if (wanted.name() != request(0).name()) return;
                all_asked.wait();
                cache.get_async(request(1)).get().value();
              };
              std::vector<Future<Program>> programs;
              for (int i = 0; i < askers; ++i) programs.push_back(cache.get_async(request(0)));
              all_asked.count_down();
              for (auto& program : programs)
                if (text(program.get().value()) != "source of program 0") return "wrong";
              return backend_->compiles == 2 ? "done" : std::to_string(backend_->compiles) + " compiles";
            }),
            "done");
}

TEST_P(WaitingCallbacks, GetTheErrorOfTheFlightTheyJoin) {
  EXPECT_EQ(with_deadline([&]() -> std::string {
              constexpr int askers = 20;
              const Request bad({.name = "bad", .source = "does not compile"});
              Cache cache(backend_, options());
              std::latch all_asked(1);
              std::latch compiling(1);
              std::atomic<int> compiles{0};
              backend_->on_compile = [&](const Request&) {
                if (++compiles > 1) return;
                compiling.count_down();
                all_asked.wait();
              };
              std::thread user([&] { static_cast<void>(cache.get(bad)); });
              compiling.wait();
              std::vector<Future<Program>> programs;
              for (int i = 0; i < askers; ++i) programs.push_back(cache.get_async(bad));
              // All of them have joined once the last of the workers does something else.
              for (int i = 0; i < workers(); ++i) static_cast<void>(cache.get_async(request(1)).get());
              all_asked.count_down();
              int failed = 0;
              for (auto& program : programs) failed += program.get() ? 0 : 1;
              user.join();
              return failed == askers ? "done" : std::to_string(failed) + " failed";
            }),
            "done");
}

TEST_P(WaitingCallbacks, ThatAskOneAfterTheOtherNeedNoStack) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr int many = 10'000;
#else
  constexpr int many = 100'000;
#endif
  EXPECT_EQ(with_deadline([&]() -> std::string {
              CacheOptions options = this->options();
              options.disk = false;
              options.max_programs = 4;
              Cache cache(backend_, options);
              std::promise<void> ended;
              std::function<void(int)> ask = [&](int i) {
                cache.get_async(request(i), [&, i](const Result<Program>&) {
                  if (i == many) return ended.set_value();
                  ask(i + 1);
                });
              };
              ask(0);
              ended.get_future().wait();
              return "done";
            }),
            "done");
}

TEST_P(WaitingCallbacks, AreAllCalledBeforeTheCacheIsGone) {
  EXPECT_EQ(with_deadline([&]() -> std::string {
              std::atomic<int> called{0};
              {
                Cache cache(backend_, options());
                for (int i = 0; i < 40; ++i)
                  cache.get_async(request(i), [&, i](const Result<Program>&) {
                    cache.get_async(request(100 + i), [&](const Result<Program>&) { ++called; });
                    static_cast<void>(cache.get_async(request(200 + i)).get());
                    ++called;
                  });
              }
              return called == 80 ? "done" : std::to_string(called) + " were called";
            }),
            "done");
}

TEST_P(WaitingCallbacks, MayThrowWhichIsLogged) {
  Cache cache(backend_, options());
  for (int round = 0; round < 2; ++round) {
    // First from a worker, then from memory.
    std::promise<void> called;
    cache.get_async(request(0), [&](const Result<Program>&) {
      called.set_value();
      throw std::runtime_error("no such texture");
    });
    called.get_future().wait();
    EXPECT_TRUE(cache.get_async(request(1 + round)).get());
  }
  cache.get_async(request(0), [](const Result<Program>&) { throw 1; });
  std::string logged;
  for (const LogRecord& record : book_.records()) logged += record.message + "\n";
  EXPECT_NE(logged.find("no such texture"), std::string::npos) << logged;
}

TEST_P(WaitingCallbacks, GoOnWhereNoFurtherThreadCanBeStarted) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer ends a process that cannot start a thread";
#endif
  const std::string told = fakes::in_ordinary_child(folder_.path(), [&]() -> std::string {
    alarm(60);
    CacheOptions options = this->options();
    options.disk = false;
    Cache cache(backend_, options);
    std::latch inside(1);
    std::latch asked(1);
    std::vector<Future<Program>> later;
    std::promise<bool> ended;
    cache.get_async(request(0), [&](const Result<Program>&) {
      inside.count_down();
      asked.wait();
      for (const auto& future : later) future.wait();
      ended.set_value(cache.preload(requests(200, 10)).ready == 10 && cache.get_async(request(300)).get());
    });
    inside.wait();
    const rlimit none{0, 0};
    if (setrlimit(RLIMIT_NPROC, &none) != 0) return "the limit cannot be set";
    for (int i = 0; i < 10; ++i) later.push_back(cache.get_async(request(100 + i)));
    asked.count_down();
    return ended.get_future().get() ? "done" : "not all are there";
  });
  EXPECT_EQ(told, "done");
}

INSTANTIATE_TEST_SUITE_P(Workers, WaitingCallbacks, testing::Values(1U, 4U), testing::PrintToStringParamName());

}  // namespace
}  // namespace kiln
