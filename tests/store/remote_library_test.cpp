#include "store/remote_library.hpp"

#include <cstdlib>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.hpp"
#include "fakes/child.hpp"
#include "fakes/temporary_folder.hpp"

namespace kiln::store {
namespace {

const char* const server = "redis://wilhelmina:hunter-2@localhost:1/0";

TEST(RemoteLibrary, OfAnotherBuildIsNotUsed) {
  // In a child, because a process opens the library once.
  const std::string outcome = fakes::in_child([]() -> std::string {
    setenv("KILN_REMOTE", KILN_OTHER_REMOTE_LIBRARY, 1);
    const auto store = open_remote_store(parse_store_url(server).value());
    return store ? "opened" : std::string(to_string(store.error().code())) + ": " + store.error().message();
  });
  EXPECT_TRUE(outcome.starts_with("unsupported: " KILN_OTHER_REMOTE_LIBRARY " belongs to another build of Kiln"))
      << outcome;
}

TEST(RemoteLibrary, IsNotUsedInASetUidProgram) {
  enum Seen { refused = 10, something = 11, ordinary = 12 };
  if (std::getenv("KILN_TEST_SET_UID") != nullptr) {
    // This is the program of another user; see below.
    if (!base::has_more_rights_than_its_caller()) ::_exit(ordinary);
    const auto store = open_remote_store(parse_store_url(server).value());
    const bool is_refused = !store && store.error().code() == ErrorCode::unsupported &&
                            store.error().message().find("set-uid") != std::string::npos &&
                            store.error().message().find("hunter") == std::string::npos;
    ::_exit(is_refused ? refused : something);
  }
  if (!fakes::is_root()) GTEST_SKIP() << "only root can give a program to another user";
  const fakes::TemporaryFolder folder;
  const auto program = folder.path() / "program";
  std::filesystem::copy_file("/proc/self/exe", program);
  ASSERT_EQ(chown(program.c_str(), fakes::other_user, fakes::other_user), 0);
  ASSERT_EQ(chmod(program.c_str(), 04755), 0);
  ASSERT_EQ(chmod(folder.path().c_str(), 0755), 0);
  const pid_t child = fork();
  if (child == 0) {
    setenv("KILN_TEST_SET_UID", "1", 1);
    execl(program.c_str(), program.c_str(), "--gtest_filter=RemoteLibrary.IsNotUsedInASetUidProgram",
          "--gtest_brief=1", nullptr);
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == ordinary) GTEST_SKIP() << "set-uid programs have no rights of their own here";
  EXPECT_EQ(WEXITSTATUS(status), refused);
}

}  // namespace
}  // namespace kiln::store
