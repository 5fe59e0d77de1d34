#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include <kiln/prune.hpp>

#include "fakes/cache_fixture.hpp"
#include "fakes/cache_on_file_system.hpp"
#include "fakes/files.hpp"
#include "store/performance.hpp"

// Counts, measurements and the manifest: what is kept beside the programs, and what it costs.
namespace kiln {
namespace {

using fakes::request;

/// Counts the calls that go to the disk.
class CountingDisk final : public base::FileSystem {
 public:
  int open(int folder, const char* name, int flags, mode_t mode) const override {
    ++calls;
    return FileSystem::open(folder, name, flags, mode);
  }
  ssize_t read(int file, void* bytes, std::size_t count) const override {
    const ssize_t got = FileSystem::read(file, bytes, count);
    bytes_read += got > 0 ? static_cast<std::uint64_t>(got) : 0;
    ++calls;
    return got;
  }
  ssize_t write(int file, const void* bytes, std::size_t count) const override {
    bytes_written += count;
    ++calls;
    return FileSystem::write(file, bytes, count);
  }
  int status(int file, struct stat* status) const override {
    ++calls;
    return FileSystem::status(file, status);
  }
  int status(int folder, const char* name, struct stat* status) const override {
    ++calls;
    return FileSystem::status(folder, name, status);
  }
  int list(int folder, std::vector<std::string>* names) const override {
    const std::size_t before = names->size();
    const int result = FileSystem::list(folder, names);
    names_listed += names->size() - before;
    ++calls;
    return result;
  }

  mutable std::atomic<std::uint64_t> calls{0};
  mutable std::atomic<std::uint64_t> bytes_read{0};
  mutable std::atomic<std::uint64_t> bytes_written{0};
  mutable std::atomic<std::uint64_t> names_listed{0};
};

class Bookkeeping : public fakes::CacheTest {
 protected:
  void fill(int programs) {
    CacheOptions options = this->options();
    options.max_programs = 4;
    Cache cache(backend_, options);
    for (int i = 0; i < programs; ++i) static_cast<void>(cache.get(request(i)).value());
  }
  std::filesystem::path folder() { return folder_.path() / "cache" / backend_->identity().folder(); }
};

TEST_F(Bookkeeping, FlushAndStatsCostTheSameHoweverManyProgramsAreStored) {
  struct Cost {
    std::uint64_t calls, bytes, listed;
  };
  int next = 100'000;
  const auto cost = [&] {
    const CountingDisk disk;
    const auto cache = fakes::cache_on(disk, backend_, options());
    static_cast<void>(cache->get(request(next++)).value());
    cache->flush();
    // With the save of one program, which is as large in both cases: it may begin at any time before flush() waits.
    disk.calls = disk.bytes_read = disk.bytes_written = disk.names_listed = 0;
    static_cast<void>(cache->get(request(next++)).value());
    cache->flush();
    static_cast<void>(cache->stats());
    return Cost{disk.calls, disk.bytes_read + disk.bytes_written, disk.names_listed};
  };
  fill(10);
  const Cost few = cost();
  fill(1'000);
  const Cost many = cost();
  EXPECT_LE(many.listed, few.listed + 2) << "names listed";
  EXPECT_LE(many.calls, few.calls + few.calls / 4) << "calls";
  EXPECT_LE(many.bytes, few.bytes + few.bytes / 4) << "bytes";
}

TEST_F(Bookkeeping, AFullDirectoryIsNotListedAtEveryFlush) {
  fill(200);
  CacheOptions options = this->options();
  options.max_disk_bytes = Cache(backend_, options).stats().disk_bytes;
  const CountingDisk disk;
  const auto cache = fakes::cache_on(disk, backend_, options);
  int prunes = 0;
  for (int i = 0; i < 40; ++i) {
    static_cast<void>(cache->get(request(1000 + i)).value());
    disk.names_listed = 0;
    cache->flush();
    prunes += disk.names_listed > 100 ? 1 : 0;
    EXPECT_LE(cache->stats().disk_bytes, options.max_disk_bytes);
  }
  EXPECT_GE(prunes, 1);
  EXPECT_LE(prunes, 4);
}

TEST_F(Bookkeeping, AFolderThatCannotBeWrittenToIsListedOnce) {
  struct ReadOnlyDisk final : base::FileSystem {
    int rename(int, const char*, const char*) const override {
      errno = EROFS;
      return -1;
    }
    int list(int folder, std::vector<std::string>* names) const override {
      ++listings;
      return FileSystem::list(folder, names);
    }
    mutable std::atomic<int> listings{0};
  };
  fill(5);
  std::filesystem::remove(folder() / "usage.json");
  const ReadOnlyDisk disk;
  const auto cache = fakes::cache_on(disk, backend_, options());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(cache->stats().disk_programs, 5U);
  EXPECT_EQ(disk.listings, 1);
}

TEST_F(Bookkeeping, StatsTellWhatIsOnDisk) {
  fill(40);
  Cache cache(backend_, options());
  EXPECT_EQ(cache.stats().disk_programs, 40U);
  std::uint64_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder()))
    if (file.path().extension() == ".bin" || file.path().extension() == ".meta") bytes += file.file_size();
  EXPECT_EQ(cache.stats().disk_bytes, bytes);
  static_cast<void>(cache.get(request(1000)).value());
  cache.flush();
  EXPECT_EQ(cache.stats().disk_programs, 41U);
  EXPECT_EQ(cache.clear().value(), 41U);
  EXPECT_EQ(cache.stats().disk_programs, 0U);
  EXPECT_EQ(cache.stats().disk_bytes, 0U);
}

TEST_F(Bookkeeping, AFolderWithoutCountsIsCountedOnce) {
  fill(5);
  for (const std::string text : {"", "garbage", R"({"programs": -1, "bytes": 5})", R"({"programs": 3})"}) {
    fakes::write_file(folder() / "usage.json", text);
    Cache cache(backend_, options());
    EXPECT_EQ(cache.stats().disk_programs, 5U) << text;
  }
  std::filesystem::remove(folder() / "usage.json");
  Cache cache(backend_, options());
  EXPECT_EQ(cache.stats().disk_programs, 5U);
  EXPECT_TRUE(std::filesystem::exists(folder() / "usage.json"));
}

TEST_F(Bookkeeping, TheManifestDoesNotGrowWithThePrograms) {
  fill(1);
  const auto before = std::filesystem::file_size(folder() / "manifest.json");
  fill(100);
  EXPECT_EQ(std::filesystem::file_size(folder() / "manifest.json"), before);
}

TEST_F(Bookkeeping, ALargeManifestOfKilnBefore02IsReplaced) {
  fill(1);
  fakes::write_file(folder() / "manifest.json", std::string(1'000'000, ' ') + "{}");
  { static_cast<void>(Cache(backend_, options()).get(request(2)).value()); }
  EXPECT_LT(std::filesystem::file_size(folder() / "manifest.json"), 10'000U);
}

TEST_F(Bookkeeping, NotesOfEvictedProgramsAreBoundedAndRewriteNoEntry) {
  constexpr int programs = 3000;
  static_assert(programs > store::PerformanceFile::max_programs);
  fill(programs);
  std::map<std::filesystem::path, std::filesystem::file_time_type> times;
  for (const auto& file : entries()) times[file] = std::filesystem::last_write_time(file);
  CacheOptions options = this->options();
  options.max_programs = 1;
  {
    Cache cache(backend_, options);
    for (int i = 0; i < programs; ++i) cache.get(request(i)).value().note_gflops(1 + i);
    cache.flush();
  }
  for (const auto& [file, time] : times) EXPECT_EQ(std::filesystem::last_write_time(file), time) << file;
  const auto measured = store::PerformanceFile::read(base::Folder::open(folder(), false).value());
  EXPECT_EQ(measured.size(), store::PerformanceFile::max_programs);
  EXPECT_EQ(measured.find(request(programs - 1).key().digest).gflops, programs) << "the last notes are kept";
}

TEST_F(Bookkeeping, FlushDoesNotBringBackWhatPruneRemoved) {
  fill(20);
  Cache cache(backend_, options());
  for (int i = 0; i < 20; ++i) cache.get(request(i)).value().note_gflops(5);
  ASSERT_TRUE(prune(folder_.path() / "cache", {.max_bytes = 0}));
  cache.flush();
  EXPECT_TRUE(entries().empty());
}

TEST_F(Bookkeeping, AnEvictedProgramComesBackWithItsPerformance) {
  fill(3);
  Cache cache(backend_, options());
  cache.get(request(0)).value().note_gflops(7.5);
  ASSERT_TRUE(cache.evict(request(0)));
  EXPECT_EQ(cache.get(request(0)).value().gflops(), 7.5) << "before it was written";
  cache.flush();
  ASSERT_TRUE(cache.evict(request(0)));
  EXPECT_EQ(cache.get(request(0)).value().gflops(), 7.5) << "after it was written";
}

TEST_F(Bookkeeping, ADamagedPerformanceFileCountsAsNothingMeasuredAndIsReplaced) {
  fill(2);
  {
    Cache cache(backend_, options());
    cache.get(request(0)).value().note_gflops(7.5);
  }
  const auto file = folder() / "performance.txt";
  const std::string whole = fakes::read_file(file);
  for (const std::string& text : {std::string(), std::string("garbage"), whole.substr(0, whole.size() - 1),
                                  whole + "x", std::string(10'000'000, '1')}) {
    fakes::write_file(file, text);
    Cache cache(backend_, options());
    EXPECT_EQ(cache.get(request(0)).value().gflops(), 0) << text.size();
    cache.get(request(1)).value().note_gflops(2);
    cache.flush();
    EXPECT_EQ(store::PerformanceFile::read(base::Folder::open(folder(), false).value()).size(), 1U);
  }
  // Every bit of a line: some number or none, and nothing worse.
  fakes::write_file(file, whole);
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string other = whole;
    other[bit / 8] = static_cast<char>(other[bit / 8] ^ (1 << bit % 8));
    const auto found = store::PerformanceFile::parse(other).find(request(0).key().digest);
    ASSERT_GE(found.gflops, 0);
  }
}

TEST_F(Bookkeeping, WarmCountsNothingAndRemovesWhatTheDriverRefuses) {
  fill(6);
  {
    Cache cache(backend_, options());
    EXPECT_EQ(cache.warm().ready, 6U);
    EXPECT_EQ(cache.warm().ready, 6U) << "all are in memory";
    const Stats stats = cache.stats();
    EXPECT_EQ(stats.requests, 0U);
    EXPECT_EQ(stats.disk_hits, 0U);
    EXPECT_EQ(stats.compile_time_saved.count(), 0);
    static_cast<void>(cache.get(request(0)).value());
    EXPECT_EQ(cache.stats().memory_hits, 1U);
  }
  backend_->refuse_loads = true;
  Cache cache(backend_, options());
  const auto report = cache.warm();
  EXPECT_EQ(report.ready, 0U);
  EXPECT_EQ(report.errors.size(), 6U);
  EXPECT_TRUE(entries().empty());
  EXPECT_EQ(cache.stats().replaced, 6U);
}

TEST_F(Bookkeeping, ClearGoesOnPastWhatItCannotRemove) {
  fill(5);
  // A folder in an entry's place cannot be unlinked.
  const auto stuck = entries()[2];
  std::filesystem::remove(stuck);
  fakes::write_file(stuck / "precious", "mine");
  Cache cache(backend_, options());
  const auto cleared = cache.clear();
  ASSERT_FALSE(cleared);
  EXPECT_NE(cleared.error().message().find("1 of 5"), std::string::npos) << cleared.error().message();
  EXPECT_EQ(entries().size(), 1U);
  EXPECT_TRUE(std::filesystem::exists(stuck / "precious"));
}

TEST_F(Bookkeeping, OnceADayWhatDeadProcessesLeftIsRemoved) {
  fill(1);
  const auto left = folder() / ".tmp-00112233445566778899aabbccddeeff";
  fakes::write_file(left, "half");
  { static_cast<void>(Cache(backend_, options()).get(request(10)).value()); }
  EXPECT_TRUE(std::filesystem::exists(left)) << "pruned within the day";
  fakes::set_age(folder_.path() / "cache" / ".last-prune", std::chrono::hours(25));
  { static_cast<void>(Cache(backend_, options()).get(request(11)).value()); }
  EXPECT_FALSE(std::filesystem::exists(left));
}

}  // namespace
}  // namespace kiln
