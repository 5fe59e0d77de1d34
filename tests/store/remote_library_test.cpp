#include "store/remote_library.hpp"

#include <cstdlib>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "base/process.hpp"
#include "fakes/child.hpp"
#include "fakes/set_uid.hpp"
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
  if (fakes::is_set_uid_program()) {
    const auto store = open_remote_store(parse_store_url(server).value());
    fakes::end_set_uid_program(!store && store.error().code() == ErrorCode::unsupported &&
                               store.error().message().find("set-uid") != std::string::npos &&
                               store.error().message().find("hunter") == std::string::npos);
  }
  const fakes::TemporaryFolder folder;
  const std::string result = fakes::run_in_set_uid_program(folder.path());
  if (result.starts_with("skipped")) GTEST_SKIP() << result;
  EXPECT_EQ(result, fakes::seen_in_set_uid_program);
}

}  // namespace
}  // namespace kiln::store
