#include "base/process.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kiln/log.hpp>

#include "fakes/child.hpp"
#include "fakes/temporary_folder.hpp"

namespace kiln::base {
namespace {

constexpr const char* variable_name = "KILN_TEST_ENVIRONMENT";

TEST(Environment, IsThatOfTheProcess) {
  setenv(variable_name, "here", 1);
  EXPECT_STREQ(environment(variable_name), "here");
  unsetenv(variable_name);
  EXPECT_EQ(environment(variable_name), nullptr);
  EXPECT_FALSE(has_more_rights_than_its_caller());
}

TEST(Environment, OfASetUidProgramIsNotRead) {
  enum Seen { nothing = 10, something = 11, ordinary = 12 };
  if (std::getenv(variable_name) != nullptr) {
    // This is the program of another user's; see below.
    if (!has_more_rights_than_its_caller()) ::_exit(ordinary);
    ::_exit(environment(variable_name) == nullptr ? nothing : something);
  }
  if (!fakes::is_root()) GTEST_SKIP() << "only root can give a program to another user";
  const fakes::TemporaryFolder folder;
  const auto program = folder.path() / "program";
  std::filesystem::copy_file("/proc/self/exe", program);
  ASSERT_EQ(chown(program.c_str(), fakes::other_user, fakes::other_user), 0);
  ASSERT_EQ(chmod(program.c_str(), 04755), 0);
  const pid_t child = fork();
  if (child == 0) {
    setenv(variable_name, "not to be trusted", 1);
    execl(program.c_str(), program.c_str(), "--gtest_filter=Environment.OfASetUidProgramIsNotRead", nullptr);
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == ordinary) GTEST_SKIP() << "set-uid programs have no rights of their own here";
  EXPECT_EQ(WEXITSTATUS(status), nothing);
}

}  // namespace
}  // namespace kiln::base
