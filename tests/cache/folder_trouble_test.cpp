#include <gtest/gtest.h>

#include <fstream>

#include <sys/stat.h>
#include <unistd.h>

#include "fakes/cache_fixture.hpp"
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
  const fakes::MountedDisk disk(directory(), "64k", false);
  if (!disk.mounted()) GTEST_SKIP() << "a file system cannot be mounted here";
  {
    Cache cache(backend_, options());
    expect_to_work(cache, 60);
    const Stats stats = cache.stats();
    EXPECT_GT(stats.saves, 0U);
    EXPECT_GT(stats.save_failures, 0U);
    EXPECT_EQ(stats.saves + stats.save_failures, 60U);
  }
  Cache cache(backend_, options());
  const int before = backend_->compiles;
  expect_to_work(cache, 60);
  EXPECT_LT(backend_->compiles - before, 60) << "what did fit is used";
  EXPECT_EQ(cache.stats().replaced, 0U) << "nothing half written is found";
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
