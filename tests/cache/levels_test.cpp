#include <gtest/gtest.h>

#include <fstream>

#include "fakes/cache_fixture.hpp"
#include "store/disk_store.hpp"

namespace kiln {
namespace {

using fakes::request;

class CacheLevels : public fakes::CacheTest {
 protected:
  void fill(int programs) {
    Cache cache(backend_, options());
    for (int i = 0; i < programs; ++i) static_cast<void>(cache.get(request(i)).value());
  }
  static void overwrite(const std::filesystem::path& file, const std::string& contents) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << contents;
  }
};

TEST_F(CacheLevels, ASecondCacheCompilesNothing) {
  fill(10);
  Cache cache(backend_, options());
  for (int i = 0; i < 10; ++i) {
    const Program program = cache.get(request(i)).value();
    EXPECT_EQ(program.origin(), Origin::disk);
    EXPECT_EQ(text(program), "source of program " + std::to_string(i));
    EXPECT_GT(program.compile_time().count(), 0);
  }
  EXPECT_EQ(backend_->compiles, 10);
  EXPECT_EQ(cache.stats().disk_hits, 10U);
  EXPECT_GT(cache.stats().compile_time_saved.count(), 0);
}

TEST_F(CacheLevels, AnotherIdentityNeverSeesTheBinaries) {
  fill(1);
  const auto newer = std::make_shared<fakes::FakeBackend>(Identity{"fake", "Kiln", "nothing", "1.1", "1.0", {7}});
  Cache cache(newer, options());
  EXPECT_EQ(cache.get(request(0)).value().origin(), Origin::compiled);
  EXPECT_EQ(newer->loads, 0);
  cache.flush();
  EXPECT_EQ(entries().size(), 2U);
}

TEST_F(CacheLevels, ADamagedEntryIsCompiledAnewReplacedAndItsNeighboursLeftAlone) {
  fill(3);
  for (const auto& file : entries())
    if (file.filename().string().starts_with("program_1-")) overwrite(file, "garbage");
  {
    Cache cache(backend_, options());
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(text(cache.get(request(i)).value()), "source of program " + std::to_string(i));
    EXPECT_EQ(backend_->compiles, 4);
    EXPECT_EQ(cache.stats().replaced, 1U);
    EXPECT_EQ(cache.stats().disk_hits, 2U);
  }
  ASSERT_EQ(book_.records().size(), 1U);
  EXPECT_NE(book_.records()[0].message.find("program_1"), std::string::npos);
  Cache cache(backend_, options());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(cache.get(request(i)).value().origin(), Origin::disk);
}

TEST_F(CacheLevels, ABinaryTheDriverRefusesIsCompiledAnewAndReplaced) {
  fill(1);
  {
    backend_->refuse_loads = true;
    Cache cache(backend_, options());
    EXPECT_EQ(cache.get(request(0)).value().origin(), Origin::compiled);
    EXPECT_EQ(cache.stats().replaced, 1U);
  }
  backend_->refuse_loads = false;
  Cache cache(backend_, options());
  EXPECT_EQ(cache.get(request(0)).value().origin(), Origin::disk);
}

TEST_F(CacheLevels, MemoryPressureWhileLoadingDoesNotCostTheEntry) {
  fill(2);
  Cache cache(backend_, options());
  static_cast<void>(cache.get(request(0)).value());
  backend_->load_errors = 1;
  EXPECT_EQ(cache.get(request(1)).value().origin(), Origin::disk);
  EXPECT_EQ(cache.stats().pressure, 1U);
  EXPECT_EQ(cache.stats().replaced, 0U);
}

TEST_F(CacheLevels, ADriverWithoutBinariesWorksWithoutAFolder) {
  const auto bare = std::make_shared<fakes::FakeBackend>(Identity{"fake", "Kiln", "bare", "1.0", "1.0", {}});
  Cache cache(bare, options());
  EXPECT_TRUE(cache.get(request(0)));
  cache.flush();
  EXPECT_TRUE(cache.folder().empty());
  EXPECT_TRUE(entries().empty());
  EXPECT_FALSE(cache.programs()[0].stored);
}

TEST_F(CacheLevels, WithoutTheDiskLevelNothingIsWritten) {
  CacheOptions options = this->options();
  options.disk = false;
  Cache cache(backend_, options);
  EXPECT_TRUE(cache.get(request(0)));
  cache.flush();
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "cache"));
}

TEST_F(CacheLevels, WithSavingOffPersistSaves) {
  CacheOptions options = this->options();
  options.save = false;
  Cache cache(backend_, options);
  for (int i = 0; i < 3; ++i) static_cast<void>(cache.get(request(i)).value());
  cache.flush();
  EXPECT_TRUE(entries().empty());
  EXPECT_TRUE(cache.persist());
  EXPECT_EQ(entries().size(), 3U);
  EXPECT_TRUE(cache.programs()[0].stored);
}

TEST_F(CacheLevels, TheSharedStoreIsAskedBeforeTheCompilerAndFilledByIt) {
  const auto shared = [&] {
    return std::shared_ptr<Store>(
        store::DiskStore::open(folder_.path() / "shared", backend_->identity(), book_.log()).value());
  };
  CacheOptions here = options();
  here.stores = std::vector<SharedStore>{shared()};
  { static_cast<void>(Cache(backend_, here).get(request(0)).value()); }

  CacheOptions there = options();
  there.directory = folder_.path() / "another machine";
  there.stores = std::vector<SharedStore>{shared()};
  {
    Cache cache(backend_, there);
    const Program program = cache.get(request(0)).value();
    EXPECT_EQ(program.origin(), Origin::shared);
    EXPECT_EQ(text(program), "source of program 0");
    EXPECT_EQ(cache.stats().shared_hits, 1U);
  }
  there.stores = {};
  EXPECT_EQ(Cache(backend_, there).get(request(0)).value().origin(), Origin::disk);
  EXPECT_EQ(backend_->compiles, 1);
}

TEST_F(CacheLevels, LifetimeStatisticsAddUpOverCaches) {
  fill(3);
  fill(3);
  std::ifstream file(folder_.path() / "cache" / "cache_stats.json");
  const std::string json((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_NE(json.find("\"sessions\": 2"), std::string::npos) << json;
  EXPECT_NE(json.find("\"compiles\": 3"), std::string::npos) << json;
  EXPECT_NE(json.find("\"disk_hits\": 3"), std::string::npos) << json;
}

TEST_F(CacheLevels, ClearEmptiesMemoryAndThisDevicesFolder) {
  fill(3);
  const auto other = std::make_shared<fakes::FakeBackend>(Identity{"fake", "Kiln", "other", "1.0", "1.0", {7}});
  { static_cast<void>(Cache(other, options()).get(request(0)).value()); }
  Cache cache(backend_, options());
  const Program held = cache.get(request(0)).value();
  EXPECT_EQ(cache.clear().value(), 3U);
  EXPECT_EQ(entries().size(), 1U);
  EXPECT_EQ(text(held), "source of program 0");
}

TEST_F(CacheLevels, TheDiskBoundIsKept) {
  CacheOptions options = this->options();
  options.max_disk_bytes = 4000;
  Cache cache(backend_, options);
  for (int i = 0; i < 30; ++i) static_cast<void>(cache.get(request(i)).value());
  cache.flush();
  EXPECT_LE(cache.stats().disk_bytes, 4000U);
  EXPECT_GT(cache.stats().disk_programs, 0U);
}

}  // namespace
}  // namespace kiln
