#include "base/process.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include <kiln/log.hpp>

#include "fakes/child.hpp"
#include "fakes/set_uid.hpp"
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
  if (fakes::is_set_uid_program())
    fakes::end_set_uid_program(std::getenv(variable_name) != nullptr && environment(variable_name) == nullptr);
  const fakes::TemporaryFolder folder;
  const std::string result = fakes::run_in_set_uid_program(folder.path(), {{variable_name, "not to be trusted"}});
  if (result.starts_with("skipped")) GTEST_SKIP() << result;
  EXPECT_EQ(result, fakes::seen_in_set_uid_program);
}

}  // namespace
}  // namespace kiln::base
