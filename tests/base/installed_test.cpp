#include "base/installed.hpp"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fakes/child.hpp"
#include "fakes/files.hpp"
#include "fakes/temporary_folder.hpp"

namespace kiln::base {
namespace {

constexpr const char* library_name = "libkiln_of_a_test.so.0";
constexpr const char* override_variable = "KILN_OF_A_TEST";
/// Where the copy of this program in the folder of a test writes what it finds.
constexpr const char* answer_variable = "KILN_TEST_ANSWER";

/// A folder with a copy of this program, which searches for a library.
class OwnLibrary : public testing::Test {
 protected:
  OwnLibrary() {
    fakes::write_file(library_, "code");
    std::filesystem::copy_file("/proc/self/exe", program_);
    std::filesystem::permissions(folder_.path(), std::filesystem::perms(0755));
  }

  /// The library that the copy of this program finds; empty if it finds none.
  std::string found() const {
    const pid_t child = fork();
    if (child == 0) {
      setenv(answer_variable, answer_.c_str(), 1);
      execl(program_.c_str(), program_.c_str(), "--gtest_filter=OwnLibrary.IsFoundBesideTheProgram",
            "--gtest_brief=1", nullptr);
      ::_exit(1);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0) return "the program failed";
    return fakes::read_file(answer_);
  }
  static void give(const std::filesystem::path& path, uid_t user, gid_t group) {
    ASSERT_EQ(chown(path.c_str(), user, group), 0);
  }
  static void set_mode(const std::filesystem::path& path, mode_t mode) { ASSERT_EQ(chmod(path.c_str(), mode), 0); }

  const fakes::TemporaryFolder folder_;
  const fakes::TemporaryFolder answers_;
  const std::filesystem::path program_ = folder_.path() / "program";
  const std::filesystem::path library_ = folder_.path() / library_name;
  const std::filesystem::path answer_ = answers_.path() / "answer";
};

TEST_F(OwnLibrary, IsFoundBesideTheProgram) {
  if (const char* answer = std::getenv(answer_variable)) {
    // This is the copy; see found().
    const auto path = find_own_library(library_name, override_variable);
    return fakes::write_file(answer, path ? path->string() : "");
  }
  EXPECT_EQ(found(), library_);
}

TEST_F(OwnLibrary, IsTakenAsItIsFromTheEnvironment) {
  const std::filesystem::path other = folder_.path() / "other.so";
  fakes::write_file(other, "code");
  set_mode(other, 0666);
  setenv(override_variable, other.c_str(), 1);
  EXPECT_EQ(found(), other);
  unsetenv(override_variable);
}

TEST_F(OwnLibrary, IsSkippedIfEveryoneCanWriteToItOrItsFolder) {
  for (const auto& [path, mode] : {std::pair{library_, mode_t{0646}}, std::pair{folder_.path(), mode_t{0757}},
                                   std::pair{folder_.path(), mode_t{01777}}}) {
    set_mode(path, mode);
    EXPECT_EQ(found(), "") << path << " " << mode;
    set_mode(path, 0755);
  }
  EXPECT_EQ(found(), library_);
}

TEST_F(OwnLibrary, IsFoundInABuildFolderThatTheOwnGroupOfTheUserCanWriteTo) {
  for (const auto& path : {library_, folder_.path()}) {
    give(path, geteuid(), getgid());
    set_mode(path, 0775);
  }
  EXPECT_EQ(found(), library_);
}

TEST_F(OwnLibrary, IsSkippedIfAnotherGroupCanWriteToItOrItsFolder) {
  if (!fakes::is_root()) GTEST_SKIP() << "only root can give a file to another group";
  for (const auto& path : {library_, folder_.path()}) {
    give(path, 0, fakes::other_user);
    set_mode(path, 0775);
    EXPECT_EQ(found(), "") << path;
    set_mode(path, 0755);
    EXPECT_EQ(found(), library_) << path;
  }
}

TEST_F(OwnLibrary, IsSkippedIfItOrItsFolderBelongsToAnotherUser) {
  if (!fakes::is_root()) GTEST_SKIP() << "only root can give a file to another user";
  for (const auto& path : {library_, folder_.path()}) {
    give(path, fakes::other_user, 0);
    EXPECT_EQ(found(), "") << path;
    give(path, 0, 0);
  }
  EXPECT_EQ(found(), library_);
}

TEST_F(OwnLibrary, IsFoundIfItBelongsToTheOwnerOfTheProgram) {
  if (!fakes::is_root()) GTEST_SKIP() << "only root can give a file to another user";
  for (const auto& path : {program_, library_, folder_.path()}) give(path, fakes::other_user, fakes::other_user);
  EXPECT_EQ(found(), library_) << "a user of a container, or one who installs software for others";
  set_mode(folder_.path(), 0775);
  EXPECT_EQ(found(), "") << "its group can write there";
}

}  // namespace
}  // namespace kiln::base
