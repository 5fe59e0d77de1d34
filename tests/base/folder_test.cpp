#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.hpp"
#include "fakes/child.hpp"
#include "fakes/files.hpp"
#include "fakes/temporary_folder.hpp"

namespace kiln::base {
namespace {

unsigned mode_of(const std::filesystem::path& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 ? status.st_mode & 0777U : 0;
}

/// Why a folder is refused.
std::string refusal(const std::filesystem::path& path, bool create = false) {
  auto folder = Folder::open(path, create);
  if (folder) return "it is not refused";
  return folder.error().code() == ErrorCode::io ? folder.error().message() : "it has another code";
}

TEST(Folder, IsMadeWithItsParentsForThisUserAlone) {
  const fakes::TemporaryFolder place;
  const auto folder = Folder::open(place.path() / "a" / "b" / "c", true);
  ASSERT_TRUE(folder) << folder.error().message();
  EXPECT_EQ(folder->path(), place.path() / "a" / "b" / "c");
  for (const char* name : {"a", "a/b", "a/b/c"}) EXPECT_EQ(mode_of(place.path() / name), 0700U) << name;
}

TEST(Folder, IsMadeWithASlashAtItsEndAndDotsInItsMiddle) {
  const fakes::TemporaryFolder place;
  EXPECT_TRUE(Folder::open(place.path() / "a/./b/../b/", true));
  EXPECT_TRUE(std::filesystem::is_directory(place.path() / "a/b"));
}

TEST(Folder, ThatIsThereKeepsItsModeAndItsFiles) {
  const fakes::TemporaryFolder place;
  fakes::write_file(place.path() / "file", "x");
  ASSERT_EQ(chmod(place.path().c_str(), 0755), 0);
  EXPECT_TRUE(Folder::open(place.path(), true));
  EXPECT_EQ(mode_of(place.path()), 0755U);
  EXPECT_EQ(fakes::read_file(place.path() / "file"), "x");
}

TEST(Folder, ThatIsMissingIsNotMadeUnasked) {
  const fakes::TemporaryFolder place;
  const auto missing = place.path() / "missing";
  EXPECT_NE(refusal(missing).find(missing.string()), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(missing));
}

TEST(Folder, WithoutANameIsRefused) {
  EXPECT_NE(refusal("").find("cannot open the folder"), std::string::npos);
  EXPECT_NE(refusal("", true).find("cannot open the folder"), std::string::npos);
}

TEST(Folder, ThatIsAFileIsRefused) {
  const fakes::TemporaryFolder place;
  fakes::write_file(place.path() / "file", "precious");
  EXPECT_NE(refusal(place.path() / "file", true).find("Not a directory"), std::string::npos);
  EXPECT_EQ(fakes::read_file(place.path() / "file"), "precious");
}

TEST(Folder, UnderAFileIsRefused) {
  const fakes::TemporaryFolder place;
  fakes::write_file(place.path() / "file", "precious");
  const std::string why = refusal(place.path() / "file" / "sub", true);
  EXPECT_NE(why.find("cannot create the folder"), std::string::npos) << why;
  EXPECT_NE(why.find((place.path() / "file" / "sub").string()), std::string::npos) << why;
  EXPECT_EQ(fakes::read_file(place.path() / "file"), "precious");
}

TEST(Folder, ThatOthersCanWriteIsRefusedWithTheWayOut) {
  const fakes::TemporaryFolder place;
  for (const mode_t mode : {mode_t{0770}, mode_t{0720}, mode_t{0702}, mode_t{01777}}) {
    ASSERT_EQ(chmod(place.path().c_str(), mode), 0);
    EXPECT_NE(refusal(place.path()).find("chmod go-w"), std::string::npos) << mode;
    EXPECT_NE(refusal(place.path(), true).find(place.path().string()), std::string::npos) << mode;
  }
  ASSERT_EQ(chmod(place.path().c_str(), 0755), 0);
  EXPECT_TRUE(Folder::open(place.path(), false));
}

TEST(Folder, OfAnotherUserIsRefused) {
  if (!fakes::is_root()) GTEST_SKIP() << "only root can give a folder to another user";
  const fakes::TemporaryFolder place;
  ASSERT_EQ(chown(place.path().c_str(), fakes::other_user, fakes::other_user), 0);
  const std::string why = refusal(place.path());
  EXPECT_NE(why.find("another user"), std::string::npos) << why;
  EXPECT_NE(why.find("12345"), std::string::npos) << why;
}

TEST(Folder, OfRootIsGoodForEveryoneToReadFrom) {
  if (!fakes::is_root()) GTEST_SKIP() << "only root can make a folder of root's";
  const fakes::TemporaryFolder place;
  fakes::write_file(place.path() / "shared" / "file", "x");
  ASSERT_EQ(chmod((place.path() / "shared").c_str(), 0755), 0);
  ASSERT_EQ(chmod(place.path().c_str(), 0755), 0);
  const std::string answer = fakes::in_child([&]() -> std::string {
    if (setgid(fakes::other_user) != 0 || setuid(fakes::other_user) != 0) return "it cannot become another user";
    auto folder = Folder::open(place.path() / "shared", true);
    if (!folder) return folder.error().message();
    auto file = folder->read("file", 10);
    return file && *file ? "read" : "not read";
  });
  EXPECT_EQ(answer, "read");
}

TEST(Folder, IsFoundThroughASymlink) {
  const fakes::TemporaryFolder place;
  std::filesystem::create_directory(place.path() / "real");
  std::filesystem::create_symlink("real", place.path() / "link");
  EXPECT_TRUE(Folder::open(place.path() / "link" / "sub", true));
  EXPECT_TRUE(std::filesystem::is_directory(place.path() / "real" / "sub"));
}

TEST(Folder, BehindADanglingOrEndlessSymlinkIsRefused) {
  const fakes::TemporaryFolder place;
  std::filesystem::create_symlink("nowhere", place.path() / "dangling");
  std::filesystem::create_symlink("loop", place.path() / "loop");
  EXPECT_NE(refusal(place.path() / "dangling", true).find("cannot"), std::string::npos);
  EXPECT_NE(refusal(place.path() / "loop", true).find("cannot"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(place.path() / "nowhere"));
}

TEST(Folder, WhoseParentTakesNoFoldersIsRefusedWithTheReason) {
  const fakes::TemporaryFolder place;
  const std::string why = fakes::in_ordinary_child(place.path(), [&]() -> std::string {
    if (chmod(place.path().c_str(), 0500) != 0) return "no chmod";
    return refusal(place.path() / "sub", true);
  });
  EXPECT_NE(why.find("Permission denied"), std::string::npos) << why;
  ASSERT_EQ(chmod(place.path().c_str(), 0700), 0);
}

TEST(Folder, ThatIsThereInsideAFolderNotToBeWrittenIsGood) {
  const fakes::TemporaryFolder place;
  std::filesystem::create_directory(place.path() / "sub");
  ASSERT_EQ(chmod((place.path() / "sub").c_str(), 0700), 0);
  const std::string answer = fakes::in_ordinary_child(place.path(), [&]() -> std::string {
    if (chmod(place.path().c_str(), 0500) != 0) return "no chmod";
    return refusal(place.path() / "sub", true);
  });
  EXPECT_EQ(answer, "it is not refused");
  ASSERT_EQ(chmod(place.path().c_str(), 0700), 0);
}

TEST(Folder, KnowsItsOwnTemporaryFiles) {
  EXPECT_TRUE(Folder::is_temporary(".tmp-00112233445566778899aabbccddeeff"));
  EXPECT_FALSE(Folder::is_temporary(".tmp-00112233445566778899aabbccddeefg"));
  EXPECT_FALSE(Folder::is_temporary(".tmp-1-2-3"));
  EXPECT_FALSE(Folder::is_temporary(".tmp-notes"));
  EXPECT_FALSE(Folder::is_temporary("conv-0123.bin"));
  EXPECT_FALSE(Folder::is_temporary(".lock"));
  EXPECT_FALSE(Folder::is_temporary(""));
}

}  // namespace
}  // namespace kiln::base
