#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "fakes/cache_fixture.hpp"

namespace kiln {
namespace {

using fakes::request;

class CacheBasics : public fakes::CacheTest {};

TEST_F(CacheBasics, CompilesOnceAndAnswersFromMemoryAfterwards) {
  Cache cache(backend_, options());
  const Program first = cache.get(request(1)).value();
  const Program second = cache.get(request(1)).value();
  EXPECT_EQ(text(first), "source of program 1");
  EXPECT_EQ(&first.module(), &second.module());
  EXPECT_EQ(first.origin(), Origin::compiled);
  EXPECT_EQ(backend_->compiles, 1);
  EXPECT_EQ(cache.stats().memory_hits, 1U);
}

TEST_F(CacheBasics, AFailedCompileReturnsTheLogAndLeavesNothingBehind) {
  Cache cache(backend_, options());
  const Request broken({.name = "broken", .source = "this does not compile"});
  for (int attempt = 1; attempt <= 2; ++attempt) {
    const auto result = cache.get(broken);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), ErrorCode::compile_failed);
    EXPECT_EQ(result.error().log(), "log of broken");
    EXPECT_EQ(backend_->compiles, attempt);
  }
  cache.flush();
  EXPECT_TRUE(entries().empty());
  EXPECT_TRUE(cache.programs().empty());
  EXPECT_EQ(cache.stats().failures, 2U);
}

TEST_F(CacheBasics, ABadRequestIsAnsweredWithItsErrorBeforeAnythingIsAsked) {
  Cache cache(backend_, options());
  const auto result = cache.get(Request({.name = "empty", .source = ""}));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::invalid_request);
  EXPECT_THROW(static_cast<void>(cache.get(Request({.name = "empty"})).value()), Failure);
  EXPECT_FALSE(cache.find(Request({.name = "empty"})));
  EXPECT_FALSE(cache.get_async(Request({.name = "empty"})).get());
  EXPECT_EQ(backend_->compiles, 0);
}

TEST_F(CacheBasics, FindNeverCompiles) {
  Cache cache(backend_, options());
  EXPECT_FALSE(cache.find(request(1)).value().has_value());
  EXPECT_EQ(backend_->compiles, 0);
  EXPECT_EQ(cache.stats().absent, 1U);
  static_cast<void>(cache.get(request(1)).value());
  EXPECT_TRUE(cache.find(request(1)).value().has_value());
}

TEST_F(CacheBasics, HandlesOutliveTheCacheAndItsBackend) {
  const auto counts = backend_->counts;
  Program kept;
  {
    Cache cache(backend_, options());
    kept = cache.get(request(1)).value();
    static_cast<void>(cache.get(request(2)).value());
    backend_.reset();
  }
  EXPECT_EQ(counts->alive, 1);
  EXPECT_EQ(text(kept), "source of program 1");
  std::thread([&] { kept = {}; }).join();
  EXPECT_EQ(counts->alive, 0);
}

TEST_F(CacheBasics, KeepsItsBoundsAndReloadsWhatWasEvicted) {
  CacheOptions options = this->options();
  options.max_programs = 2;
  Cache cache(backend_, options);
  for (int i = 0; i < 5; ++i) static_cast<void>(cache.get(request(i)).value());
  EXPECT_EQ(cache.programs().size(), 2U);
  cache.flush();
  EXPECT_EQ(cache.get(request(0)).value().origin(), Origin::disk);
  EXPECT_EQ(backend_->compiles, 5);
  EXPECT_EQ(cache.stats().evictions, 4U);
}

TEST_F(CacheBasics, EvictAndTrimSpareWhatIsInUse) {
  Cache cache(backend_, options());
  Program held = cache.get(request(1)).value();
  static_cast<void>(cache.get(request(2)).value());
  EXPECT_FALSE(cache.evict(request(1)));
  EXPECT_TRUE(cache.evict(request(2)));
  EXPECT_FALSE(cache.evict(request(2)));
  EXPECT_EQ(cache.trim(), 0U);
  held = {};
  EXPECT_EQ(cache.trim(), 1U);
}

TEST_F(CacheBasics, MemoryPressureEvictsTheLeastRecentlyUsedAndTriesAgain) {
  Cache cache(backend_, options());
  Program held = cache.get(request(0)).value();
  for (int i = 1; i < 6; ++i) static_cast<void>(cache.get(request(i)).value());
  backend_->compile_errors = 2;
  EXPECT_TRUE(cache.get(request(9)));
  EXPECT_EQ(cache.stats().pressure, 2U);
  EXPECT_TRUE(cache.evict(request(3)));
  EXPECT_FALSE(cache.evict(request(1))) << "went first";
  EXPECT_FALSE(cache.evict(request(2))) << "went second";
  EXPECT_EQ(text(held), "source of program 0");
}

TEST_F(CacheBasics, MemoryPressureThatNothingRelievesIsAnError) {
  Cache cache(backend_, options());
  const Program held = cache.get(request(0)).value();
  backend_->compile_errors = 1'000'000;
  const auto result = cache.get(request(1));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::out_of_memory);
  EXPECT_EQ(cache.programs().size(), 1U);
}

TEST_F(CacheBasics, TellsWhatItKnowsOfItsPrograms) {
  backend_->on_compile = [](const Request&) {
    // Long enough to be measured on any clock.
    for (const auto start = std::chrono::steady_clock::now();
         std::chrono::steady_clock::now() - start < std::chrono::milliseconds(1);) {
    }
  };
  Cache cache(backend_, options());
  const Program program = cache.get(request(1)).value();
  const Program again = cache.get(request(1)).value();
  cache.flush();
  const std::vector<ProgramInfo> programs = cache.programs();
  ASSERT_EQ(programs.size(), 1U);
  EXPECT_EQ(programs[0].key.name, "program_1");
  EXPECT_EQ(programs[0].references, 2U);
  EXPECT_EQ(programs[0].hits, 1U);
  EXPECT_EQ(programs[0].bytes, 100U);
  EXPECT_GE(programs[0].compile_time, std::chrono::milliseconds(1));
  EXPECT_TRUE(programs[0].stored);
  EXPECT_TRUE(program.stored());
}

TEST_F(CacheBasics, PerformanceIsKeptWithTheProgram) {
  {
    Cache cache(backend_, options());
    const Program program = cache.get(request(1)).value();
    EXPECT_EQ(program.gflops(), 0);
    cache.flush();
    program.note_gflops(625.5);
    EXPECT_EQ(program.gflops(), 625.5);
  }
  Cache cache(backend_, options());
  EXPECT_EQ(cache.get(request(1)).value().gflops(), 625.5);
  EXPECT_EQ(backend_->compiles, 1);
}

TEST_F(CacheBasics, PerformanceNotedBeforeAnEvictionIsKept) {
  {
    Cache cache(backend_, options());
    static_cast<void>(cache.get(request(1)).value());
    cache.flush();
    cache.get(request(1)).value().note_gflops(3.5);
    cache.get(request(1)).value().note_gbps(4.5);
    EXPECT_EQ(cache.trim(), 1U);
  }
  Cache again(backend_, options());
  EXPECT_EQ(again.get(request(1)).value().gflops(), 3.5);
  EXPECT_EQ(again.get(request(1)).value().gbps(), 4.5);
}

TEST_F(CacheBasics, AddsAProgramThatWasCompiledElsewhere) {
  Compiled compiled = backend_->compile(request(1)).value();
  {
    Cache cache(backend_, options());
    const Program added = cache.add(request(1), std::move(compiled), std::chrono::milliseconds(5)).value();
    EXPECT_EQ(added.origin(), Origin::added);
    EXPECT_EQ(cache.get(request(1)).value().key().digest, added.key().digest);
    Compiled second = backend_->compile(request(1)).value();
    EXPECT_EQ(&cache.add(request(1), std::move(second)).value().module(), &added.module());
    EXPECT_FALSE(cache.add(request(2), Compiled{}));
  }
  Cache cache(backend_, options());
  EXPECT_EQ(cache.get(request(1)).value().origin(), Origin::disk);
}

TEST_F(CacheBasics, StatisticsReadAsALineAndAsJson) {
  Cache cache(backend_, options());
  for (int i = 0; i < 20; ++i) static_cast<void>(cache.get(request(1)).value());
  cache.flush();
  const Stats stats = cache.stats();
  EXPECT_EQ(stats.to_line(), "1 program cached, 1 on disk, 0.0 s of compiling saved, 95% hit rate");
  EXPECT_NE(stats.to_json().find("\"memory_hits\":19"), std::string::npos);
  EXPECT_EQ(stats.misses(), 1U);
  fakes::expect_counts_add_up(stats);
}

TEST_F(CacheBasics, TheDefaultPlaceFollowsTheEnvironmentAndEmptyIsUnset) {
  // This process runs this test alone; nothing else reads the environment meanwhile.
  setenv("KILN_CACHE_DIR", "/a", 1);
  setenv("XDG_CACHE_HOME", "/b", 1);
  setenv("HOME", "/c", 1);
  EXPECT_EQ(default_directory(), "/a");
  setenv("KILN_CACHE_DIR", "", 1);
  EXPECT_EQ(default_directory(), "/b/kiln");
  setenv("XDG_CACHE_HOME", "", 1);
  EXPECT_EQ(default_directory(), "/c/.cache/kiln");
  setenv("HOME", "", 1);
  EXPECT_EQ(default_directory(), "");
  Cache cache(backend_, {.log = book_.log()});
  EXPECT_TRUE(cache.get(request(1)));
  ASSERT_EQ(book_.records().size(), 1U);
  EXPECT_NE(book_.records()[0].message.find("KILN_CACHE_DIR"), std::string::npos);
}

}  // namespace
}  // namespace kiln
