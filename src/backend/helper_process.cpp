#include "backend/helper_process.hpp"

#include <algorithm>
#include <array>
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

#include "backend/probe.hpp"

namespace kiln::backend {
namespace {

/// Larger than any list of devices.
constexpr std::size_t max_answer = std::size_t{1} << 20;

/// How long to wait for a killed process. It ends at once unless its driver hangs in the kernel; then it is not
/// reaped.
constexpr int milliseconds_to_die = 1000;

/// strerror() translates its text and may block on a thread that is inside setlocale().
std::string reason(int error) {
  const char* text = strerrordesc_np(error);
  return text != nullptr ? text : fmt::format("error {}", error);
}

/// Takes ownership of a new descriptor. If the application has closed a standard stream and the descriptor got its
/// number, duplicates it to a number above the standard streams.
base::FileHandle past_standard_streams(int descriptor) {
  base::FileHandle given(descriptor);
  if (descriptor < 0 || descriptor > STDERR_FILENO) return given;
  return base::FileHandle(fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

/// posix_spawn settings for a helper that writes to `output`.
class SpawnSettings {
 public:
  explicit SpawnSettings(int output) {
    posix_spawn_file_actions_init(&files_);
    posix_spawn_file_actions_adddup2(&files_, output, STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&files_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
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

/// Appends the available bytes to `text`. Returns whether more may follow.
bool drain(int descriptor, std::string& text) {
  for (;;) {
    std::array<char, 4096> part;
    const ssize_t got = ::read(descriptor, part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return true;
    if (got <= 0) return false;
    text.append(part.data(), static_cast<std::size_t>(got));
    if (text.size() > max_answer) return false;
  }
}

/// The first line of a text, at most 60 printable characters, for an error message.
std::string first_line(std::string_view text) {
  std::string line(text.substr(0, std::min<std::size_t>(text.find('\n'), 60)));
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return line;
}

}  // namespace

/// The part of an answer that has been read.
struct HelperProcess::Reading {
  std::string text = {};
  bool timed_out = false;

  /// Whether the text matches the greeting as far as it has been read.
  bool may_be_greeted() const { return helper_greeting().starts_with(text.substr(0, helper_greeting().size())); }
  bool greeted() const { return text.starts_with(helper_greeting()); }
  std::optional<std::string> line() const {
    if (!greeted()) return std::nullopt;
    const std::size_t begin = helper_greeting().size();
    const std::size_t end = text.find('\n', begin);
    return end != std::string::npos ? std::optional(text.substr(begin, end - begin)) : std::nullopt;
  }
  bool complete() const { return !may_be_greeted() || line(); }
};

Result<HelperProcess> HelperProcess::start(const std::string& helper, const std::vector<std::string>& arguments) {
  const auto cannot = [&helper](int error) {
    return Error(ErrorCode::io, fmt::format("cannot start {}: {}", helper, reason(error)));
  };
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return cannot(errno);
  base::FileHandle reading = past_standard_streams(ends[0]);
  const base::FileHandle writing = past_standard_streams(ends[1]);
  if (!reading || !writing || fcntl(reading.get(), F_SETFL, O_NONBLOCK) != 0) return cannot(errno);

  const SpawnSettings settings(writing.get());
  std::vector<char*> words;
  // posix_spawn does not modify the strings, despite its signature.
  words.push_back(const_cast<char*>(helper.c_str()));
  for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  pid_t process = 0;
  const int failed =
      posix_spawn(&process, helper.c_str(), settings.files(), settings.attributes(), words.data(), environ);
  if (failed != 0) return cannot(failed);
  return HelperProcess(helper, std::move(reading), process);
}

HelperProcess::HelperProcess(std::string helper, base::FileHandle reading, pid_t process)
    : helper_(std::move(helper)),
      reading_(std::move(reading)),
      handle_(past_standard_streams(static_cast<int>(syscall(SYS_pidfd_open, process, 0)))),
      process_(process) {}

HelperProcess::HelperProcess(HelperProcess&& other) noexcept
    : helper_(std::move(other.helper_)),
      reading_(std::move(other.reading_)),
      handle_(std::move(other.handle_)),
      process_(std::exchange(other.process_, -1)) {}

HelperProcess::~HelperProcess() { end(); }

Result<HelperAnswer> HelperProcess::answer(Deadline deadline) {
  const Reading reading = read(deadline);
  const auto end = this->end();
  if (reading.greeted()) return HelperAnswer{.line = reading.line(), .timed_out = reading.timed_out, .end = end};
  if (reading.text.empty())
    return Error(
        ErrorCode::io,
        fmt::format("{} {}", helper_, reading.timed_out ? "did not answer in time" : "exited without an answer"));
  return Error(ErrorCode::io,
               fmt::format("{} is not the helper of this version of Kiln: it says \"{}\", not \"{}\"", helper_,
                           first_line(reading.text), first_line(helper_greeting())));
}

/// Reads until the answer is complete, the process has ended, or the deadline has passed.
HelperProcess::Reading HelperProcess::read(Deadline deadline) const {
  Reading reading;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    // Also poll the process: a child that another thread has forked may keep the pipe open.
    std::array<pollfd, 2> waiting = {{{reading_.get(), POLLIN, 0}, {handle_.get(), POLLIN, 0}}};
    const int ready =
        poll(waiting.data(), waiting.size(), static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      reading.timed_out = true;
      return reading;
    }
    const bool ended = waiting[1].revents != 0;
    const bool more = drain(reading_.get(), reading.text);
    if (reading.complete() || ended || !more) return reading;
  }
}

/// Kills the process and waits for its end. If it was already exiting, returns its own exit status.
std::optional<ProcessEnd> HelperProcess::end() noexcept {
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

}  // namespace kiln::backend
