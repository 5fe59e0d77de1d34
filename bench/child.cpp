#include "child.hpp"

#include <array>
#include <filesystem>

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace kiln::bench {

Result<std::string> run_child(std::vector<std::string> command) {
  std::array<int, 2> ends = {};
  if (pipe(ends.data()) != 0) return Error(ErrorCode::io, "cannot make a pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  posix_spawn_file_actions_addclose(&actions, ends[1]);
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int spawned = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string output;
  std::array<char, 256> part = {};
  for (ssize_t got = 0; (got = read(ends[0], part.data(), part.size())) > 0;)
    output.append(part.data(), static_cast<std::size_t>(got));
  close(ends[0]);
  if (spawned != 0) return Error(ErrorCode::io, fmt::format("cannot start {}", command[0]));
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) return Error(ErrorCode::device_failed, output.empty() ? command[0] + " failed" : output);
  return output;
}

std::string this_program() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

}  // namespace kiln::bench
