#include <gtest/gtest.h>

#include <future>
#include <set>

#include "fakes/cache_fixture.hpp"

namespace kiln {
namespace {

using fakes::request;

class CacheBulk : public fakes::CacheTest {
 protected:
  static std::vector<Request> requests(int count) {
    std::vector<Request> requests;
    for (int i = 0; i < count; ++i) requests.push_back(request(i));
    return requests;
  }
};

TEST_F(CacheBulk, PreloadGetsThemAllAndTellsOfEach) {
  Cache cache(backend_, options());
  std::vector<Request> wanted = requests(20);
  wanted.push_back(Request({.name = "broken", .source = "does not compile"}));
  std::set<std::string> names;
  std::size_t calls = 0;
  std::size_t failed = 0;
  const PreloadReport report = cache.preload(wanted, [&](const Progress& progress) {
    EXPECT_EQ(progress.done, ++calls);
    EXPECT_EQ(progress.total, 21U);
    names.insert(progress.name);
    failed += progress.error != nullptr ? 1 : 0;
  });
  EXPECT_EQ(report.ready, 20U);
  ASSERT_EQ(report.errors.size(), 1U);
  EXPECT_EQ(report.errors[0].code(), ErrorCode::compile_failed);
  EXPECT_EQ(names.size(), 21U);
  EXPECT_EQ(failed, 1U);
  EXPECT_EQ(cache.programs().size(), 20U);
}

TEST_F(CacheBulk, PreloadOfNothingReturns) {
  Cache cache(backend_, options());
  EXPECT_EQ(cache.preload({}).ready, 0U);
  EXPECT_EQ(cache.warm().ready, 0U);
}

TEST_F(CacheBulk, WarmLoadsTheWholeFolderWithoutCompiling) {
  { static_cast<void>(Cache(backend_, options()).preload(requests(15))); }
  Cache cache(backend_, options());
  EXPECT_EQ(cache.warm().ready, 15U);
  EXPECT_EQ(backend_->compiles, 15);
  for (int i = 0; i < 15; ++i)
    EXPECT_EQ(text(cache.get(request(i)).value()), "source of program " + std::to_string(i));
  EXPECT_EQ(cache.stats().memory_hits, 15U);
}

TEST_F(CacheBulk, WarmKnowsProgramsByTheirWholeNames) {
  const Request request({.name = "blur/3 \xC3\xA9", .source = "source"});
  { static_cast<void>(Cache(backend_, options()).get(request).value()); }
  Cache cache(backend_, options());
  EXPECT_EQ(cache.warm().ready, 1U);
  EXPECT_EQ(cache.get(request).value().name(), request.name());
}

TEST_F(CacheBulk, WarmSaysWhyAProgramCannotBeLoaded) {
  { static_cast<void>(Cache(backend_, options()).get(request(1)).value()); }
  Cache cache(backend_, options());
  backend_->refuse_loads = true;
  const PreloadReport report = cache.warm();
  EXPECT_EQ(report.ready, 0U);
  ASSERT_EQ(report.errors.size(), 1U);
  EXPECT_TRUE(report.errors[0].message().ends_with(".bin: the fake refuses the binary"))
      << report.errors[0].message();
}

TEST_F(CacheBulk, AGetThatJoinsAWarmThatFailsCompiles) {
  { static_cast<void>(Cache(backend_, options()).get(request(1)).value()); }
  Cache cache(backend_, options());
  backend_->refuse_loads = true;
  std::promise<void> loading;
  std::promise<void> go_on;
  std::atomic<bool> first{true};
  backend_->on_load = [&] {
    if (!first.exchange(false)) return;
    loading.set_value();
    go_on.get_future().wait();
  };
  auto warmed = std::async(std::launch::async, [&] { return cache.warm(); });
  loading.get_future().wait();
  auto got = std::async(std::launch::async, [&] { return cache.get(request(1)); });
  go_on.set_value();
  EXPECT_EQ(warmed.get().ready, 0U);
  const auto program = got.get();
  ASSERT_TRUE(program) << program.error().message();
  EXPECT_EQ(text(*program), "source of program 1");
}

TEST_F(CacheBulk, WhatAProgressCallbackThrowsReachesTheCaller) {
  Cache cache(backend_, options());
  const auto wanted = requests(5);
  EXPECT_THROW(static_cast<void>(cache.preload(wanted, [](const Progress&) { throw std::runtime_error("stop"); })),
               std::runtime_error);
  EXPECT_EQ(cache.programs().size(), 5U);
}

TEST_F(CacheBulk, WarmStopsAtTheBound) {
  { static_cast<void>(Cache(backend_, options()).preload(requests(15))); }
  CacheOptions options = this->options();
  options.max_programs = 4;
  Cache cache(backend_, options);
  EXPECT_EQ(cache.warm().ready, 4U);
  EXPECT_EQ(cache.stats().evictions, 0U);
}

TEST_F(CacheBulk, AsynchronousGetsAnswerWithTheSameProgram) {
  Cache cache(backend_, options());
  std::vector<Future<Program>> futures;
  for (int i = 0; i < 40; ++i) futures.push_back(cache.get_async(request(i % 10)));
  for (std::size_t i = 0; i < futures.size(); ++i)
    EXPECT_EQ(text(futures[i].get().value()), "source of program " + std::to_string(i % 10));
  EXPECT_EQ(backend_->compiles, 10);
}

TEST_F(CacheBulk, AHitIsReadyAtOnce) {
  Cache cache(backend_, options());
  static_cast<void>(cache.get(request(0)).value());
  auto future = cache.get_async(request(0));
  EXPECT_TRUE(future.ready());
}

TEST_F(CacheBulk, FuturesOfProgramsCanBeContinuedAndJoined) {
  Cache cache(backend_, options());
  std::vector<Future<std::string>> texts;
  for (int i = 0; i < 20; ++i)
    texts.push_back(cache.get_async(request(i)).then([&](const Result<Program>& program) {
      // A continuation may wait for other programs: another thread takes its place.
      return text(program.value()) + text(cache.get_async(request(100)).get().value());
    }));
  EXPECT_TRUE(when_all(texts).get());
  for (std::size_t i = 0; i < texts.size(); ++i)
    EXPECT_EQ(texts[i].get().value(), "source of program " + std::to_string(i) + "source of program 100");
  const auto failed = cache.get_async(Request({.name = "empty"})).then([](const Result<Program>& program) {
    return program.value().name();
  });
  EXPECT_EQ(failed.error()->code(), ErrorCode::invalid_request);
}

TEST_F(CacheBulk, DestroyingTheCacheFinishesWhatWasAskedAndSavesIt) {
  std::vector<Future<Program>> futures;
  {
    Cache cache(backend_, options());
    for (int i = 0; i < 10; ++i) futures.push_back(cache.get_async(request(i)));
  }
  for (auto& future : futures) EXPECT_TRUE(future.get());
  EXPECT_EQ(entries().size(), 10U);
}

TEST_F(CacheBulk, AQueueOfOneLosesNothing) {
  CacheOptions options = this->options();
  options.write_queue = 1;
  Cache cache(backend_, options);
  static_cast<void>(cache.preload(requests(50)));
  cache.flush();
  EXPECT_EQ(entries().size(), 50U);
  options.write_queue = 0;
  Cache unqueued(backend_, options);
  static_cast<void>(unqueued.get(request(99)).value());
  EXPECT_EQ(entries().size(), 51U);
}

}  // namespace
}  // namespace kiln
