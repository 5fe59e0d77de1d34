#include "backend/child_process.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

namespace kiln::backend {
namespace {

/// How long to wait for a killed process. It ends at once unless its driver hangs in the kernel; then it is not
/// reaped.
constexpr int milliseconds_to_die = 1000;

/// posix_spawn settings for a process with these streams.
class SpawnSettings {
 public:
  explicit SpawnSettings(const ChildProcess::Streams& streams) {
    posix_spawn_file_actions_init(&files_);
    // The given descriptors are above the standard streams, so none replaces another before it is duplicated.
    if (streams.input >= 0)
      posix_spawn_file_actions_adddup2(&files_, streams.input, STDIN_FILENO);
    else
      posix_spawn_file_actions_addopen(&files_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (streams.output >= 0) posix_spawn_file_actions_adddup2(&files_, streams.output, STDOUT_FILENO);
    if (streams.error >= 0) posix_spawn_file_actions_adddup2(&files_, streams.error, STDERR_FILENO);
    posix_spawn_file_actions_addclosefrom_np(&files_, STDERR_FILENO + 1);
    posix_spawnattr_init(&attributes_);
    sigset_t signals;
    sigemptyset(&signals);
    posix_spawnattr_setsigmask(&attributes_, &signals);
    sigfillset(&signals);
    posix_spawnattr_setsigdefault(&attributes_, &signals);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
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

}  // namespace

bool ProcessEnd::is_crash() const noexcept {
  switch (signal) {
    case SIGSEGV:
    case SIGBUS:
    case SIGILL:
    case SIGFPE:
    case SIGABRT:
    case SIGTRAP:
    case SIGSYS: return true;
    default: return false;
  }
}

base::FileHandle past_standard_streams(int descriptor) {
  base::FileHandle given(descriptor);
  if (descriptor < 0 || descriptor > STDERR_FILENO) return given;
  return base::FileHandle(fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

std::string reason(int error) {
  const char* text = strerrordesc_np(error);
  return text != nullptr ? text : fmt::format("error {}", error);
}

Result<ChildProcess> ChildProcess::start(const std::string& program, const std::vector<std::string>& arguments,
                                         const Streams& streams) {
  const SpawnSettings settings(streams);
  std::vector<char*> words;
  // posix_spawn does not modify the strings, despite its signature.
  words.push_back(const_cast<char*>(program.c_str()));
  for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  pid_t process = 0;
  const int failed =
      posix_spawn(&process, program.c_str(), settings.files(), settings.attributes(), words.data(), environ);
  if (failed != 0) return Error(ErrorCode::io, fmt::format("cannot start {}: {}", program, reason(failed)));
  return ChildProcess(process);
}

ChildProcess::ChildProcess(pid_t process)
    : handle_(past_standard_streams(static_cast<int>(syscall(SYS_pidfd_open, process, 0)))), process_(process) {}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : handle_(std::move(other.handle_)), process_(std::exchange(other.process_, -1)) {}

std::optional<ProcessEnd> ChildProcess::end() noexcept {
  const pid_t process = std::exchange(process_, -1);
  if (process < 0) return std::nullopt;
  siginfo_t info = {};
  int waited = 0;
  if (handle_) {
    syscall(SYS_pidfd_send_signal, handle_.get(), SIGKILL, nullptr, 0);
    pollfd waiting = {handle_.get(), POLLIN, 0};
    while (poll(&waiting, 1, milliseconds_to_die) < 0 && errno == EINTR) continue;
    waited = waitid(P_PIDFD, static_cast<id_t>(handle_.get()), &info, WEXITED | WNOHANG);
  } else {
    kill(process, SIGKILL);
    while ((waited = waitid(P_PID, static_cast<id_t>(process), &info, WEXITED)) < 0 && errno == EINTR) continue;
  }
  if (waited != 0 || info.si_pid == 0) return std::nullopt;
  return info.si_code == CLD_EXITED ? ProcessEnd{.exit_status = info.si_status}
                                    : ProcessEnd{.signal = info.si_status};
}

void ChildProcess::leave_to_parent() noexcept {
  process_ = -1;
  handle_.close();
}

}  // namespace kiln::backend
