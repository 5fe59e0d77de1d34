#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.hpp"
#include "fakes/child.hpp"

namespace kiln::fakes {

inline constexpr const char* set_uid_variable = "KILN_TEST_SET_UID";
inline constexpr const char* seen_in_set_uid_program = "as expected";
enum SetUidStatus { set_uid_as_expected = 10, set_uid_otherwise = 11, set_uid_ordinary = 12 };

/// Whether this process is the program that run_in_set_uid_program() has started.
inline bool is_set_uid_program() {
  if (std::getenv(set_uid_variable) == nullptr) return false;
  if (!base::has_more_rights_than_its_caller()) ::_exit(set_uid_ordinary);
  return true;
}

/// Ends that program with what the test found.
[[noreturn]] inline void end_set_uid_program(bool is_as_expected) {
  ::_exit(is_as_expected ? set_uid_as_expected : set_uid_otherwise);
}

/// Runs the current test again, in a set-uid program of another user, with these environment variables. The program
/// is a copy of this one in `folder`. Returns `seen_in_set_uid_program`, "skipped: " and why, or what else
/// happened.
inline std::string run_in_set_uid_program(const std::filesystem::path& folder,
                                          const std::vector<std::pair<std::string, std::string>>& variables = {}) {
  if (!is_root()) return "skipped: only root can give a program to another user";
  const auto program = folder / "program";
  std::filesystem::copy_file("/proc/self/exe", program);
  if (chmod(folder.c_str(), 0755) != 0 || chown(program.c_str(), other_user, other_user) != 0 ||
      chmod(program.c_str(), 04755) != 0)
    return "the program could not be given to another user";
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  const std::string filter = std::string("--gtest_filter=") + test->test_suite_name() + "." + test->name();
  const pid_t child = fork();
  if (child == 0) {
    setenv(set_uid_variable, "1", 1);
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    execl(program.c_str(), program.c_str(), filter.c_str(), "--gtest_brief=1", nullptr);
    ::_exit(1);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return "it did not exit";
  if (WEXITSTATUS(status) == set_uid_ordinary) return "skipped: set-uid programs have no rights of their own here";
  if (WEXITSTATUS(status) == set_uid_as_expected) return seen_in_set_uid_program;
  return "it exited with " + std::to_string(WEXITSTATUS(status));
}

}  // namespace kiln::fakes
