#include "base/file.hpp"

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "fakes/child.hpp"
#include "fakes/files.hpp"
#include "fakes/temporary_folder.hpp"

namespace kiln::base {
namespace {

using fakes::bytes_of;
using fakes::text_of;

constexpr std::uint64_t plenty = 1 << 20;

/// An open folder of the test's own.
class FolderFile : public testing::Test {
 protected:
  const std::filesystem::path& path() const { return place_.path(); }
  std::string read(const std::string& name) const {
    auto file = folder_.read(name, plenty);
    if (!file) return "error: " + file.error().message();
    return *file ? text_of((*file)->bytes) : "nothing";
  }
  /// What reading `name` is refused with.
  Error refusal(const std::string& name, std::uint64_t max_bytes = plenty) const {
    auto file = folder_.read(name, max_bytes);
    return file ? Error(ErrorCode::invalid_request, "it was read") : file.error();
  }

  fakes::TemporaryFolder place_;
  Folder folder_ = Folder::open(place_.path(), false).value();
};

TEST_F(FolderFile, ReadsWhatWasWritten) {
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  ASSERT_TRUE(folder_.replace("file", bytes_of(all)));
  EXPECT_EQ(read("file"), all);
  ASSERT_TRUE(folder_.replace("file", bytes_of("short")));
  EXPECT_EQ(read("file"), "short");
  ASSERT_TRUE(folder_.replace("file", {}));
  EXPECT_EQ(read("file"), "");
}

TEST_F(FolderFile, AMissingFileIsNoError) { EXPECT_EQ(read("nothing_here"), "nothing"); }

TEST_F(FolderFile, TellsWhenAFileWasChanged) {
  fakes::write_file(path() / "file", "x");
  const timespec times[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, (path() / "file").c_str(), times, 0), 0);
  EXPECT_EQ((*folder_.read("file", plenty))->changed, 1'000'000'000);
}

TEST_F(FolderFile, IsReadUpToTheBoundAndNotBeyond) {
  fakes::write_file(path() / "file", "12345678");
  EXPECT_TRUE(folder_.read("file", 8));
  EXPECT_EQ(refusal("file", 7).code(), ErrorCode::damaged);
  EXPECT_NE(refusal("file", 7).message().find("8 bytes"), std::string::npos);
}

TEST_F(FolderFile, AFileOfATerabyteIsRefusedUnread) {
  fakes::write_file(path() / "file", "");
  if (truncate((path() / "file").c_str(), off_t{1} << 40) != 0)
    GTEST_SKIP() << "this file system has no such files";
  EXPECT_EQ(refusal("file").code(), ErrorCode::damaged);
}

TEST_F(FolderFile, ASymlinkIsNotFollowed) {
  fakes::write_file(path() / "target", "secret");
  std::filesystem::create_symlink("target", path() / "link");
  EXPECT_NE(refusal("link").message().find((path() / "link").string()), std::string::npos);
  EXPECT_NE(refusal("link").code(), ErrorCode::invalid_request);
}

TEST_F(FolderFile, AFifoIsRefusedWithoutWaitingForAWriter) {
  ASSERT_EQ(mkfifo((path() / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(refusal("fifo").code(), ErrorCode::damaged);
}

TEST_F(FolderFile, AFolderIsRefused) {
  std::filesystem::create_directory(path() / "folder");
  EXPECT_EQ(refusal("folder").code(), ErrorCode::damaged);
}

TEST_F(FolderFile, ASocketIsRefused) {
  const FileHandle listener(socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const std::string name = (path() / "socket").string();
  ASSERT_LT(name.size(), sizeof address.sun_path);
  std::memcpy(address.sun_path, name.c_str(), name.size());
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_NE(refusal("socket").code(), ErrorCode::invalid_request);
}

TEST_F(FolderFile, AnotherUsersFileIsRefused) {
  if (!fakes::is_root()) GTEST_SKIP() << "only root can give a file to another user";
  fakes::write_file(path() / "file", "planted");
  ASSERT_EQ(chown((path() / "file").c_str(), fakes::other_user, fakes::other_user), 0);
  EXPECT_EQ(refusal("file").code(), ErrorCode::damaged);
  EXPECT_NE(refusal("file").message().find("another user"), std::string::npos);
}

TEST_F(FolderFile, ThatMayNotBeReadIsAnErrorWithItsReason) {
  fakes::write_file(path() / "file", "x");
  const std::string answer = fakes::in_ordinary_child(path(), [this] {
    if (chmod((path() / "file").c_str(), 0) != 0) return std::string("no chmod");
    return Folder::open(path(), false).value().read("file", plenty).error().message();
  });
  EXPECT_NE(answer.find("Permission denied"), std::string::npos) << answer;
}

TEST_F(FolderFile, IsWrittenForThisUserAlone) {
  ASSERT_TRUE(folder_.replace("file", bytes_of("x")));
  EXPECT_EQ(folder_.status("file")->st_mode & 0777U, 0600U);
}

TEST_F(FolderFile, ReplacingLeavesNothingElseBehind) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(folder_.replace("file", bytes_of(std::to_string(i))));
  EXPECT_EQ(fakes::names_in(path()), std::vector<std::string>{"file"});
}

TEST_F(FolderFile, ReplacingASymlinkLeavesItsTargetAlone) {
  fakes::write_file(path() / "target", "precious");
  std::filesystem::create_symlink("target", path() / "file");
  ASSERT_TRUE(folder_.replace("file", bytes_of("new")));
  EXPECT_EQ(fakes::read_file(path() / "target"), "precious");
  EXPECT_EQ(read("file"), "new");
}

TEST_F(FolderFile, ReplacingAFolderFailsAndLeavesNoTemporaryFile) {
  std::filesystem::create_directory(path() / "file");
  const auto written = folder_.replace("file", bytes_of("x"));
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code(), ErrorCode::io);
  EXPECT_NE(written.error().message().find((path() / "file").string()), std::string::npos);
  EXPECT_EQ(fakes::names_in(path()), std::vector<std::string>{"file"});
}

TEST_F(FolderFile, ThatFindsNoRoomLeavesTheOldOneAndNoTemporaryFile) {
  ASSERT_TRUE(folder_.replace("file", bytes_of("old")));
  const std::string answer = fakes::in_child([this]() -> std::string {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{4096, 4096};
    if (setrlimit(RLIMIT_FSIZE, &small) != 0) return "no limit to be had";
    const auto written = folder_.replace("file", std::vector<std::byte>(10'000));
    return written ? "written" : std::string(to_string(written.error().code()));
  });
  EXPECT_EQ(answer, "io");
  EXPECT_EQ(read("file"), "old");
  EXPECT_EQ(fakes::names_in(path()), std::vector<std::string>{"file"});
}

TEST_F(FolderFile, IsNotWrittenIntoAFolderThatWasRemoved) {
  std::filesystem::create_directory(path() / "sub");
  const Folder sub = Folder::open(path() / "sub", false).value();
  EXPECT_TRUE(sub.exists());
  std::filesystem::remove(path() / "sub");
  EXPECT_FALSE(sub.exists());
  EXPECT_FALSE(sub.replace("file", bytes_of("x")));
  EXPECT_TRUE(fakes::names_in(path()).empty());
}

TEST_F(FolderFile, IsReachedByTheHandleWhateverStandsAtThePath) {
  std::filesystem::create_directory(path() / "sub");
  const Folder sub = Folder::open(path() / "sub", false).value();
  ASSERT_TRUE(sub.replace("file", bytes_of("mine")));
  std::filesystem::rename(path() / "sub", path() / "moved");
  fakes::write_file(path() / "sub" / "file", "planted");
  EXPECT_EQ(text_of((*sub.read("file", plenty))->bytes), "mine");
}

TEST_F(FolderFile, IsSeenWholeWhileThreadsReplaceIt) {
  ASSERT_TRUE(folder_.replace("file", std::vector<std::byte>(5000, std::byte{0})));
  std::atomic<int> left = 3;
  std::vector<std::thread> writers;
  for (unsigned char mark = 1; mark <= 3; ++mark) {
    writers.emplace_back([this, mark, &left] {
      for (int i = 0; i < 100; ++i) {
        EXPECT_TRUE(folder_.replace("file", std::vector<std::byte>(1000U * mark, std::byte{mark})));
      }
      --left;
    });
  }
  while (left > 0) {
    auto file = folder_.read("file", plenty);
    if (!file || !*file) {
      ADD_FAILURE() << "the file was away";
      break;
    }
    const auto& bytes = (*file)->bytes;
    const auto mark = std::to_integer<std::size_t>(bytes.at(0));
    EXPECT_EQ(bytes, std::vector<std::byte>(mark == 0 ? 5000 : 1000 * mark, bytes[0]));
  }
  for (auto& writer : writers) writer.join();
  EXPECT_EQ(fakes::names_in(path()), std::vector<std::string>{"file"});
}

TEST_F(FolderFile, RemovingTellsWhetherThereWasOne) {
  fakes::write_file(path() / "file", "x");
  EXPECT_TRUE(folder_.remove("file").value());
  EXPECT_FALSE(folder_.remove("file").value());
  std::filesystem::create_directory(path() / "folder");
  EXPECT_FALSE(folder_.remove("folder").ok());
}

TEST_F(FolderFile, StatusTellsOfTheSymlinkItself) {
  fakes::write_file(path() / "target", "x");
  std::filesystem::create_symlink("target", path() / "link");
  EXPECT_TRUE(S_ISLNK(folder_.status("link")->st_mode));
  EXPECT_FALSE(folder_.status("nothing_here"));
}

TEST_F(FolderFile, TouchingMakesItNew) {
  fakes::write_file(path() / "file", "x");
  fakes::set_age(path() / "file", std::chrono::hours(5));
  ASSERT_TRUE(folder_.touch("file"));
  EXPECT_LT(fakes::age_of(path() / "file"), std::chrono::hours(1));
  EXPECT_FALSE(folder_.touch("nothing_here"));
}

TEST_F(FolderFile, TouchingASymlinkLeavesItsTargetAlone) {
  fakes::write_file(path() / "target", "x");
  fakes::set_age(path() / "target", std::chrono::hours(5));
  std::filesystem::create_symlink("target", path() / "link");
  ASSERT_TRUE(folder_.touch("link"));
  EXPECT_GE(fakes::age_of(path() / "target"), std::chrono::hours(5));
}

TEST_F(FolderFile, NamesAreThoseOfEverythingInIt) {
  fakes::write_file(path() / ".hidden", "");
  fakes::write_file(path() / "plain", "");
  std::filesystem::create_directory(path() / "folder");
  auto names = folder_.names().value();
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{".hidden", "folder", "plain"}));
}

TEST_F(FolderFile, TheLockFileIsMadeForThisUserAlone) {
  ASSERT_TRUE(folder_.open_lock_file(".lock"));
  EXPECT_EQ(folder_.status(".lock")->st_mode & 0777U, 0600U);
  EXPECT_TRUE(folder_.open_lock_file(".lock"));
}

TEST_F(FolderFile, TheLockFileIsNoSymlinkAndNoFolder) {
  std::filesystem::create_symlink("elsewhere", path() / "link");
  EXPECT_FALSE(folder_.open_lock_file("link").ok());
  EXPECT_FALSE(std::filesystem::exists(path() / "elsewhere"));
  std::filesystem::create_directory(path() / "folder");
  EXPECT_FALSE(folder_.open_lock_file("folder").ok());
}

TEST_F(FolderFile, AFifoInTheLockFilesPlaceDoesNotBlock) {
  ASSERT_EQ(mkfifo((path() / ".lock").c_str(), 0600), 0);
  static_cast<void>(folder_.open_lock_file(".lock"));
}

TEST(FileHandle, ClosesWithItsOwnerAlone) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const FileHandle reader(ends[0]);
  char byte = 0;
  {
    FileHandle first(ends[1]);
    FileHandle second(std::move(first));
    EXPECT_FALSE(first);
    EXPECT_EQ(write(second.get(), "x", 1), 1);
    EXPECT_EQ(read(reader.get(), &byte, 1), 1);
    FileHandle third;
    third = std::move(second);
    EXPECT_EQ(third.get(), ends[1]);
  }
  // The end of the pipe is seen once its last writer is closed.
  EXPECT_EQ(read(reader.get(), &byte, 1), 0);
}

TEST(Scratch, IsAbsoluteAndHasNoCharactersThatOptionsQuote) {
  const fakes::TemporaryFolder place;
  std::filesystem::create_directory(place.path() / "my files");
  const auto folder_above = [&](const std::string& variable) {
    return fakes::in_child([&]() -> std::string {
      if (chdir(place.path().c_str()) != 0) return "no chdir";
      std::filesystem::create_directory("below");
      setenv("TMPDIR", variable.c_str(), 1);
      auto made = ScratchFolder::create();
      return made ? made->path().parent_path().string() : made.error().message();
    });
  };
  EXPECT_EQ(folder_above(place.path()), place.path().string());
  EXPECT_EQ(folder_above("below"), (place.path() / "below").string());
  EXPECT_EQ(folder_above(place.path() / "my files"), "/tmp");
  EXPECT_EQ(folder_above(""), "/tmp");
}

}  // namespace
}  // namespace kiln::base
