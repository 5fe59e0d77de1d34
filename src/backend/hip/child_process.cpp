#include "backend/hip/child_process.hpp"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

namespace kiln::hip {
namespace {

/// What posix_spawn takes for a child that prints to a file and starts with no signal blocked.
class SpawnSettings {
 public:
  explicit SpawnSettings(const std::filesystem::path& output) {
    posix_spawn_file_actions_init(&files_);
    posix_spawn_file_actions_addopen(&files_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files_, STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&files_, STDOUT_FILENO, STDERR_FILENO);
    posix_spawnattr_init(&attributes_);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK);
  }
  ~SpawnSettings() {
    posix_spawnattr_destroy(&attributes_);
    posix_spawn_file_actions_destroy(&files_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  const posix_spawn_file_actions_t* files() const noexcept { return &files_; }
  const posix_spawnattr_t* attributes() const noexcept { return &attributes_; }

 private:
  posix_spawn_file_actions_t files_;
  posix_spawnattr_t attributes_;
};

std::vector<std::string> environment_with(const std::map<std::string, std::string>& changes) {
  std::vector<std::string> all;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    if (!changes.contains(text.substr(0, text.find('=')))) all.push_back(text);
  }
  for (const auto& [name, value] : changes) all.push_back(fmt::format("{}={}", name, value));
  return all;
}

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> all;
  // posix_spawn does not write to them, whatever its signature says.
  for (const std::string& word : words) all.push_back(const_cast<char*>(word.c_str()));
  all.push_back(nullptr);
  return all;
}

}  // namespace

Result<ScratchFolder> ScratchFolder::create() {
  std::error_code error;
  const auto parent = std::filesystem::temp_directory_path(error);
  std::string name = (error ? std::filesystem::path("/tmp") : parent) / "kiln-XXXXXX";
  if (mkdtemp(name.data()) == nullptr)
    return Error(ErrorCode::io, fmt::format("cannot make the folder {}: {}", name, std::strerror(errno)));
  return ScratchFolder(std::filesystem::path(name));
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

Result<int> run_process(const std::vector<std::string>& words,
                        const std::map<std::string, std::string>& environment,
                        const std::filesystem::path& output) {
  const SpawnSettings settings(output);
  const auto variables = environment_with(environment);
  pid_t process = 0;
  const int failed = posix_spawnp(&process, words.front().c_str(), settings.files(), settings.attributes(),
                                  pointers(words).data(), pointers(variables).data());
  if (failed != 0)
    return Error(failed == ENOENT ? ErrorCode::unsupported : ErrorCode::io,
                 fmt::format("cannot run {}: {}", words.front(), std::strerror(failed)));
  int status = 0;
  while (waitpid(process, &status, 0) < 0) {
    if (errno == EINTR) continue;
    // Where this program ignores the ends of its children, what the child left behind must tell.
    return 0;
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace kiln::hip
