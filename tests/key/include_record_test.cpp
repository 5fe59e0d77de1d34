#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <sys/stat.h>

#include <gtest/gtest.h>

#include "fakes/child.hpp"
#include "fakes/files.hpp"
#include "fakes/temporary_folder.hpp"
#include "key/include_graph.hpp"
#include "key/include_record.hpp"

namespace kiln::key {
namespace {

using std::chrono::system_clock;
using Refreshed = IncludeRecord::Refreshed;

constexpr auto copy_all = std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks;

class Record : public testing::Test {
 protected:
  Record() {
    fakes::write_file(folder_ / "a.h",
                      "#include \"b.h\"\n#include <missing.h>\n#if __has_include(<c.h>)\n#endif\n");
    fakes::write_file(folder_ / "b.h", "int b;\n");
    fakes::write_file(folder_ / "c.h", "int c;\n");
    std::filesystem::create_symlink("nowhere.h", folder_ / "link.h");
  }

  /// The record of a source that includes a.h, as it would be after the files had rested for a minute.
  IncludeRecord record() const {
    IncludeGraph graph(search_, none_);
    EXPECT_TRUE(graph.build("#include <a.h>\n#include <link.h>\n"));
    auto observations = graph.take_observations();
    observations.time = system_clock::now() + std::chrono::minutes(1);
    return IncludeRecord(graph.dependencies(), observations);
  }

  fakes::TemporaryFolder place_;
  const std::filesystem::path folder_ = place_.path() / "folder";
  const std::map<std::string, std::string> none_;
  const std::vector<std::filesystem::path> folders_ = {folder_};
  const IncludeSearch search_{none_, folders_};
};

TEST_F(Record, IsCurrentAsLongAsNothingChanges) {
  IncludeRecord made = record();
  EXPECT_TRUE(made.is_current());
  EXPECT_NE(made.refresh(), Refreshed::stale);
  EXPECT_EQ(made.dependencies().files.size(), 2U);
  EXPECT_EQ(made.dependencies().missing, (std::vector<std::string>{"link.h", "missing.h"}));
}

TEST_F(Record, OfATouchedFileIsRightAfterReadingIt) {
  IncludeRecord made = record();
  fakes::set_age(folder_ / "b.h", std::chrono::hours(1));
  EXPECT_FALSE(made.is_current());
  EXPECT_NE(made.refresh(), Refreshed::stale);
}

TEST_F(Record, OfAFolderWithOtherFilesIsRightAfterLooking) {
  IncludeRecord made = record();
  fakes::write_file(folder_ / "other.h", "");
  EXPECT_FALSE(made.is_current());
  EXPECT_NE(made.refresh(), Refreshed::stale);
}

TEST_F(Record, OfAChangeIsStale) {
  const std::vector<std::pair<const char*, std::function<void()>>> changes = {
      {"an edited file", [&] { fakes::write_file(folder_ / "b.h", "int d;\n"); }},
      {"a removed file", [&] { std::filesystem::remove(folder_ / "b.h"); }},
      {"a file that was missing", [&] { fakes::write_file(folder_ / "missing.h", ""); }},
      {"the target of a link", [&] { fakes::write_file(folder_ / "nowhere.h", ""); }},
      {"a file whose existence is tested", [&] { std::filesystem::remove(folder_ / "c.h"); }},
      {"another file in place of one",
       [&] {
         std::filesystem::copy(folder_ / "b.h", folder_ / "copy.h");
         std::filesystem::rename(folder_ / "copy.h", folder_ / "b.h");
       }},
      {"another folder",
       [&] {
         std::filesystem::rename(folder_, place_.path() / "moved");
         std::filesystem::copy(place_.path() / "moved", folder_, copy_all);
       }},
  };
  const auto keep = place_.path() / "kept";
  std::filesystem::copy(folder_, keep, copy_all);
  for (const auto& [what, change] : changes) {
    IncludeRecord made = record();
    change();
    EXPECT_FALSE(made.is_current()) << what;
    EXPECT_EQ(made.refresh(), Refreshed::stale) << what;
    std::filesystem::remove_all(folder_);
    std::filesystem::remove_all(place_.path() / "moved");
    std::filesystem::copy(keep, folder_, copy_all);
  }
}

TEST_F(Record, OfFilesThatJustChangedIsNotTrusted) {
  IncludeGraph graph(search_, none_);
  ASSERT_TRUE(graph.build("#include <a.h>\n"));
  const auto observations = graph.take_observations();
  IncludeRecord made(graph.dependencies(), observations);
  EXPECT_FALSE(made.is_current()) << "the files were written a moment ago";
  EXPECT_NE(made.refresh(), Refreshed::stale) << "but they are the same";
}

TEST_F(Record, SurvivesItsBytes) {
  const IncludeRecord made = record();
  const auto bytes = made.to_bytes();
  const auto read = IncludeRecord::from_bytes(bytes);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->to_bytes(), bytes);
  EXPECT_EQ(read->dependencies().digest, made.dependencies().digest);
  EXPECT_TRUE(read->is_current());
}

TEST_F(Record, ThatIsDamagedIsNone) {
  const auto bytes = record().to_bytes();
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(IncludeRecord::from_bytes(std::span(bytes).first(size))) << size;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    auto damaged = bytes;
    damaged[i] ^= std::byte{1};
    EXPECT_FALSE(IncludeRecord::from_bytes(damaged)) << i;
  }
}

TEST(Signature, IsSettledTwoSecondsAfterTheLastChange) {
  const auto now = system_clock::now();
  const auto at = [&](std::chrono::milliseconds ago) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>((now - ago).time_since_epoch()).count();
  };
  using std::chrono::milliseconds;
  const FileSignature old{.modified = at(milliseconds(2001)), .status_changed = at(milliseconds(2001))};
  EXPECT_TRUE(old.was_settled(now));
  EXPECT_FALSE(
      (FileSignature{.modified = at(milliseconds(1999)), .status_changed = old.status_changed}.was_settled(now)));
  EXPECT_FALSE(
      (FileSignature{.modified = old.modified, .status_changed = at(milliseconds(1999))}.was_settled(now)));
  EXPECT_FALSE(
      (FileSignature{.modified = at(milliseconds(-5000)), .status_changed = old.status_changed}.was_settled(now)))
      << "the clock of a server may be ahead";
}

/// Records of large sources, which are kept on disk.
class Records : public Record {
 protected:
  Records() {
    std::string all;
    for (int i = 0; i < 40; ++i) {
      fakes::write_file(folder_ / (std::to_string(i) + ".h"), "int x;\n");
      all += "#include \"" + std::to_string(i) + ".h\"\n";
    }
    fakes::write_file(folder_ / "a.h", all);
  }

  /// Runs with a cache directory of its own.
  template <class Work>
  std::string in_process(Work work) {
    return fakes::in_child([&]() -> std::string {
      setenv("KILN_CACHE_DIR", (place_.path() / "cache").c_str(), 1);
      return work();
    });
  }
  std::filesystem::path stored() const { return place_.path() / "cache/includes"; }

  const Digest search_digest_ = {};
};

TEST_F(Records, AreFoundByTheNextProcess) {
  EXPECT_EQ(in_process([&] {
              IncludeRecords().add(search_digest_, record());
              IncludeRecords others;
              const auto found = others.find(search_digest_);
              return std::string(found && found->files.size() == 41 ? "found" : "none");
            }),
            "found");
  EXPECT_EQ(fakes::names_in(stored()), std::vector<std::string>{search_digest_.hex()});
}

TEST_F(Records, ThatAreStaleOrDamagedAreNotFound) {
  EXPECT_EQ(in_process([&]() -> std::string {
              IncludeRecords().add(search_digest_, record());
              fakes::write_file(folder_ / "7.h", "int y;\n");
              if (IncludeRecords().find(search_digest_)) return "a stale one was found";
              IncludeRecords().add(search_digest_, record());
              const std::string bytes = fakes::read_file(stored() / search_digest_.hex());
              fakes::write_file(stored() / search_digest_.hex(), bytes.substr(0, bytes.size() / 2));
              return IncludeRecords().find(search_digest_) ? "a damaged one was found" : "none";
            }),
            "none");
}

TEST_F(Records, OfSmallSourcesAreNotWritten) {
  fakes::write_file(folder_ / "a.h", "int a;\n");
  EXPECT_EQ(in_process([&]() -> std::string {
              IncludeRecords records;
              records.add(search_digest_, record());
              return records.find(search_digest_) ? "found" : "none";
            }),
            "found");
  EXPECT_FALSE(std::filesystem::exists(stored()));
}

TEST_F(Records, WorkWithoutADirectory) {
  for (const char* directory : {"", "/dev/null/kiln", "/proc/kiln"})
    EXPECT_EQ(fakes::in_child([&]() -> std::string {
                unsetenv("HOME");
                unsetenv("XDG_CACHE_HOME");
                setenv("KILN_CACHE_DIR", directory, 1);
                IncludeRecords records;
                records.add(search_digest_, record());
                return records.find(search_digest_) ? "found" : "none";
              }),
              "found")
        << directory;
}

TEST_F(Records, OfFilesFromTheFutureAreNotWrittenAgain) {
  // A file with a time in the future never settles.
  fakes::set_age(folder_ / "7.h", std::chrono::hours(-1));
  EXPECT_EQ(in_process([&]() -> std::string {
              IncludeRecords records;
              records.add(search_digest_, record());
              struct stat before {};
              struct stat after {};
              stat((stored() / search_digest_.hex()).c_str(), &before);
              for (int i = 0; i < 3; ++i)
                if (!records.find(search_digest_)) return "not found";
              stat((stored() / search_digest_.hex()).c_str(), &after);
              return before.st_ino == after.st_ino ? "kept" : "written again";
            }),
            "kept");
}

TEST_F(Records, AreBoundedInNumber) {
  fakes::write_file(stored() / "notes.txt", "of the user");
  fakes::set_age(stored() / "notes.txt", std::chrono::hours(1000));
  std::filesystem::permissions(stored(), std::filesystem::perms::owner_all);
  EXPECT_EQ(in_process([&]() -> std::string {
              const IncludeRecord made = record();
              IncludeRecords records;
              for (std::uint16_t i = 0; i < 1500; ++i) {
                Digest search_digest;
                search_digest.bytes[0] = static_cast<std::byte>(i & 0xff);
                search_digest.bytes[1] = static_cast<std::byte>(i >> 8);
                records.add(search_digest, made);
              }
              return "done";
            }),
            "done");
  EXPECT_LE(fakes::names_in(stored()).size(), 1100U);
  EXPECT_TRUE(std::filesystem::exists(stored() / "notes.txt"));
}

}  // namespace
}  // namespace kiln::key
