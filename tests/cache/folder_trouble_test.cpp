#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <thread>

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fakes/cache_fixture.hpp"
#include "fakes/files.hpp"
#include "fakes/mounted_disk.hpp"

namespace kiln {
namespace {

using fakes::request;

/// Whatever is wrong with the folder, every program works and the trouble is one sentence in the log.
class FolderTrouble : public fakes::CacheTest {
 protected:
  void expect_to_work(Cache& cache, int programs = 5) {
    for (int i = 0; i < programs; ++i)
      EXPECT_EQ(text(cache.get(request(i)).value()), "source of program " + std::to_string(i));
    cache.flush();
  }
  std::filesystem::path directory() const { return folder_.path() / "cache"; }
};

TEST_F(FolderTrouble, TheFolderIsAFile) {
  std::ofstream(directory()) << "in the way";
  Cache cache(backend_, options());
  expect_to_work(cache);
  ASSERT_EQ(book_.records().size(), 1U);
  EXPECT_NE(book_.records()[0].message.find(directory().string()), std::string::npos);
}

TEST_F(FolderTrouble, TheFolderLiesUnderAFile) {
  std::ofstream(directory()) << "in the way";
  CacheOptions options = this->options();
  options.directory = directory() / "deeper";
  Cache cache(backend_, options);
  expect_to_work(cache);
  EXPECT_EQ(book_.records().size(), 1U);
}

TEST_F(FolderTrouble, TheFolderBelongsToAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  std::filesystem::create_directory(directory());
  ASSERT_EQ(chown(directory().c_str(), 12345, 12345), 0);
  Cache cache(backend_, options());
  expect_to_work(cache);
  EXPECT_TRUE(entries().empty());
  ASSERT_EQ(book_.records().size(), 1U);
  EXPECT_NE(book_.records()[0].message.find("another user"), std::string::npos);
}

TEST_F(FolderTrouble, TheFolderCanBeWrittenByEveryone) {
  std::filesystem::create_directory(directory());
  ASSERT_EQ(chmod(directory().c_str(), 0777), 0);
  Cache cache(backend_, options());
  expect_to_work(cache);
  EXPECT_TRUE(entries().empty());
  EXPECT_EQ(book_.records().size(), 1U);
}

TEST_F(FolderTrouble, TheFolderIsReadOnly) {
  const fakes::MountedDisk disk(directory(), "64k", true);
  if (!disk.mounted()) GTEST_SKIP() << "a file system cannot be mounted here";
  Cache cache(backend_, options());
  expect_to_work(cache);
  EXPECT_EQ(cache.stats().save_failures, 5U);
  EXPECT_EQ(book_.records().size(), 1U) << "once, not for every program";
  EXPECT_FALSE(cache.persist());
}

TEST_F(FolderTrouble, AFullDiskCostsOnlyWhatDoesNotFit) {
  // Of bytes, few and a megabyte, and of files.
  for (const auto& [size, programs] :
       {std::pair("64k", 60), std::pair("1m", 600), std::pair("1m,nr_inodes=30", 60)}) {
    const fakes::MountedDisk disk(directory(), size, false);
    if (!disk.mounted()) GTEST_SKIP() << "a file system cannot be mounted here";
    const auto count = static_cast<std::uint64_t>(programs);
    {
      Cache cache(backend_, options());
      expect_to_work(cache, programs);
      const Stats stats = cache.stats();
      EXPECT_GT(stats.saves, 0U) << size;
      EXPECT_GT(stats.save_failures, 0U) << size;
      EXPECT_EQ(stats.saves + stats.save_failures, count) << size;
    }
    Cache cache(backend_, options());
    const int before = backend_->compiles;
    expect_to_work(cache, programs);
    EXPECT_LT(backend_->compiles - before, programs) << "what did fit is used: " << size;
    EXPECT_EQ(cache.stats().replaced, 0U) << "nothing half written is found: " << size;
  }
}

TEST_F(FolderTrouble, OfAReadOnlyMountWhatIsThereIsUsed) {
  {
    Cache cache(backend_, options());
    expect_to_work(cache);
  }
  const fakes::ReadOnlyMount mount(directory());
  if (!mount.mounted()) GTEST_SKIP() << "a folder cannot be mounted here";
  Cache cache(backend_, options());
  expect_to_work(cache, 8);
  EXPECT_EQ(backend_->compiles, 8);
  EXPECT_EQ(cache.stats().disk_hits, 5U);
  EXPECT_EQ(cache.stats().save_failures, 3U);
  EXPECT_EQ(book_.records().size(), 1U) << "once, not for every program";
}

TEST_F(FolderTrouble, WithoutDescriptorsProgramsAreCompiled) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP()
      << "UBSan, which comes with it, asks a pipe whether an object can be read, and needs descriptors for it";
#endif
  struct rlimit all {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &all), 0);
  for (rlim_t left = 0; left < 12; ++left) {
    const long before = fakes::open_descriptors();
    struct rlimit few = all;
    few.rlim_cur = static_cast<rlim_t>(before) + left;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    {
      Cache cache(backend_, options());
      expect_to_work(cache);
      cache.trim();
      expect_to_work(cache);
      static_cast<void>(cache.prune({}));
    }
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &all), 0);
    EXPECT_EQ(fakes::open_descriptors(), before) << "none is left open";
    Cache cache(backend_, options());
    expect_to_work(cache);
    EXPECT_EQ(entries().size(), 5U) << "all is well again";
    std::filesystem::remove_all(directory());
  }
}

TEST_F(FolderTrouble, TheFolderIsReplacedByAFileWhileInUse) {
  Cache cache(backend_, options());
  expect_to_work(cache);
  const auto folder = cache.folder();
  std::filesystem::remove_all(folder);
  std::ofstream(folder) << "in the way";
  cache.trim();
  expect_to_work(cache);
  EXPECT_TRUE(std::filesystem::is_regular_file(folder));
  EXPECT_EQ(book_.records().size(), 1U) << "once, not for every program";
  std::filesystem::remove(folder);
  cache.trim();
  expect_to_work(cache);
  EXPECT_EQ(entries().size(), 5U) << "the folder is made again";
}

TEST_F(FolderTrouble, TheFolderIsReplacedByASymlinkWhileInUse) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  Cache cache(backend_, options());
  expect_to_work(cache);
  const auto theirs = folder_.path() / "theirs";
  std::filesystem::create_directory(theirs);
  ASSERT_EQ(chown(theirs.c_str(), 12345, 12345), 0);
  std::filesystem::remove_all(cache.folder());
  std::filesystem::create_directory_symlink(theirs, cache.folder());
  cache.trim();
  expect_to_work(cache);
  EXPECT_TRUE(std::filesystem::is_empty(theirs)) << "nothing is written into another user's folder";
}

TEST_F(FolderTrouble, AClockThatIsTenYearsOffCostsNothing) {
  for (const int years : {-10, 10}) {
    {
      Cache cache(backend_, options());
      expect_to_work(cache);
    }
    const auto then = std::filesystem::file_time_type::clock::now() + std::chrono::hours(24 * 365 * years);
    for (const auto& item : std::filesystem::recursive_directory_iterator(directory()))
      std::filesystem::last_write_time(item.path(), then);
    const int before = backend_->compiles;
    {
      Cache cache(backend_, options());
      expect_to_work(cache);
      EXPECT_EQ(backend_->compiles, before) << years;
      // Used a moment ago, or in the future: not old.
      EXPECT_EQ(cache.prune({.max_age = std::chrono::hours(1)}).value().removed, 0U) << years;
    }
    EXPECT_EQ(entries().size(), 5U) << years;
    prune(directory(), {.max_bytes = 0}).value();
    EXPECT_TRUE(entries().empty()) << years;
  }
  EXPECT_TRUE(book_.records().empty());
}

TEST_F(FolderTrouble, WhatStandsAtAnEntrysPathMayChangeAtAnyMoment) {
  const std::string secret = "a secret of somebody's";
  const auto secret_file = folder_.path() / "secret";
  std::ofstream(secret_file) << secret;
  std::filesystem::path entry;
  std::string good;
  {
    Cache cache(backend_, options());
    cache.get(request(0)).value();
    cache.flush();
    entry = entries().at(0);
    good = fakes::read_file(entry);
  }
  std::atomic<bool> ends{false};
  std::thread hostile([&] {
    const auto beside = entry.parent_path() / "beside";
    for (int turn = 0; !ends; ++turn) {
      std::error_code ignored;
      switch (turn % 6) {
        case 0: std::ofstream(beside) << good; break;
        case 1: std::filesystem::create_symlink(secret_file, beside, ignored); break;
        case 2: static_cast<void>(mkfifo(beside.c_str(), 0600)); break;
        case 3: std::ofstream(beside) << good.substr(0, good.size() / 2); break;
        case 4: std::filesystem::create_symlink("/dev/zero", beside, ignored); break;
        default: std::filesystem::create_directory(beside, ignored); break;
      }
      if (turn % 6 == 5) std::filesystem::remove(entry, ignored);
      std::filesystem::rename(beside, entry, ignored);
      std::filesystem::remove(beside, ignored);
    }
  });
  CacheOptions options = this->options();
  options.log = {};
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  int gets = 0;
  for (; std::chrono::steady_clock::now() < until; ++gets) {
    Cache cache(backend_, options);
    EXPECT_EQ(text(cache.get(request(0)).value()), "source of program 0");
  }
  ends = true;
  hostile.join();
  EXPECT_GT(gets, 10);
  EXPECT_EQ(fakes::read_file(secret_file), secret);
}

TEST_F(FolderTrouble, TheFolderIsRemovedWhileInUse) {
  Cache cache(backend_, options());
  expect_to_work(cache);
  std::filesystem::remove_all(directory());
  expect_to_work(cache);
  static_cast<void>(cache.get(request(7)).value());
  cache.flush();
  EXPECT_EQ(entries().size(), 1U) << "the folder is made again";
  Cache second(backend_, options());
  EXPECT_EQ(second.get(request(7)).value().origin(), Origin::disk);
}

TEST_F(FolderTrouble, TheFolderIsEmptiedWhileInUse) {
  Cache cache(backend_, options());
  expect_to_work(cache);
  for (const auto& file : std::filesystem::directory_iterator(cache.folder())) std::filesystem::remove(file);
  cache.trim();
  expect_to_work(cache);
  EXPECT_EQ(entries().size(), 5U);
  EXPECT_EQ(backend_->compiles, 10);
}

TEST_F(FolderTrouble, NamesCannotLeaveTheFolder) {
  Cache cache(backend_, options());
  const std::vector<std::string> names = {"../../escape",
                                          "/etc/escape",
                                          "..",
                                          ".",
                                          "",
                                          std::string(300, 'x'),
                                          "a/b/c",
                                          "kernel \xF0\x9F\x94\xA5",
                                          std::string("nul\0nul", 7),
                                          ".hidden",
                                          "-rf"};
  for (const std::string& name : names) {
    const Program program = cache.get(Request({.name = name, .source = "source of " + name.substr(0, 3)})).value();
    EXPECT_EQ(program.name(), name);
  }
  cache.flush();
  EXPECT_EQ(entries().size(), names.size());
  for (const auto& file : entries()) EXPECT_EQ(file.parent_path(), cache.folder()) << file;
  Cache second(backend_, options());
  for (const std::string& name : names)
    EXPECT_EQ(second.get(Request({.name = name, .source = "source of " + name.substr(0, 3)})).value().origin(),
              Origin::disk);
}

}  // namespace
}  // namespace kiln
