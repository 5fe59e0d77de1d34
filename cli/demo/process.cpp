#include "process.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

namespace kiln::cli::demo {
namespace {

constexpr int child_descriptor = 3;

Failure system_failure(std::string_view what, int number) {
  return Failure(Error(ErrorCode::io, fmt::format("{}: {}", what, std::strerror(number))));
}

/// A started process and the pipe it writes to. The destructor kills the process unless wait() was called.
class Child {
 public:
  Child(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
        const sigset_t& mask) {
    std::array<int, 2> ends;
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw system_failure("cannot create a pipe", errno);
    pipe_ = ends[0];

    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    // Output of a driver must not get into the table or the JSON of this process.
    posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, ends[1], child_descriptor);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &mask);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    const int failed = ::posix_spawn(&process_, "/proc/self/exe", &files, &attributes, pointers(arguments).data(),
                                     pointers(environment).data());
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    ::close(ends[1]);
    if (failed != 0) {
      ::close(pipe_);
      throw system_failure("cannot start another kiln process", failed);
    }
  }
  ~Child() {
    ::close(pipe_);
    if (process_ == 0) return;
    ::kill(process_, SIGKILL);
    wait();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  int pipe() const noexcept { return pipe_; }

  /// Waits for the end of the process and returns its status, as waitpid() does.
  int wait() noexcept {
    int status = 0;
    while (::waitpid(process_, &status, 0) < 0 && errno == EINTR) continue;
    process_ = 0;
    return status;
  }

 private:
  static std::vector<char*> pointers(const std::vector<std::string>& words) {
    std::vector<char*> all;
    // posix_spawn does not change the strings, although its signature would allow it.
    for (const std::string& word : words) all.push_back(const_cast<char*>(word.c_str()));
    all.push_back(nullptr);
    return all;
  }

  int pipe_ = -1;
  pid_t process_ = 0;
};

std::vector<std::string> environment_with(const std::map<std::string, std::string>& changes) {
  std::vector<std::string> all;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (!changes.contains(std::string(text.substr(0, text.find('='))))) all.emplace_back(text);
  }
  for (const auto& [name, value] : changes) all.push_back(name + "=" + value);
  return all;
}

/// Waits for data in the pipe and returns it; nothing at the end of the pipe.
std::optional<std::string> read_some(int pipe, const Interruption& interruption) {
  while (true) {
    std::array<pollfd, 2> waiting = {{{interruption.descriptor(), POLLIN, 0}, {pipe, POLLIN, 0}}};
    if (::poll(waiting.data(), waiting.size(), -1) < 0 && errno != EINTR)
      throw system_failure("cannot wait for a process", errno);
    if ((waiting[0].revents & POLLIN) != 0) {
      signalfd_siginfo info = {};
      if (::read(interruption.descriptor(), &info, sizeof info) == static_cast<ssize_t>(sizeof info))
        throw Interrupted{static_cast<int>(info.ssi_signo)};
    }
    if (waiting[1].revents == 0) continue;
    std::array<char, 4096> bytes;
    const ssize_t size = ::read(pipe, bytes.data(), bytes.size());
    if (size > 0) return std::string(bytes.data(), static_cast<std::size_t>(size));
    if (size == 0) return {};
    if (errno != EINTR) throw system_failure("cannot read from a process", errno);
  }
}

std::string cause_of_death(int status) {
  if (WIFSIGNALED(status))
    return fmt::format("was killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  return fmt::format("ended with exit status {}", WEXITSTATUS(status));
}

std::string last_deed(const ProcessReport& report) {
  if (report.names.empty()) return "while it opened the device";
  if (report.programs.size() < report.names.size()) return "while it got " + report.names[report.programs.size()];
  if (report.checked() < report.names.size()) return "while it ran " + report.names[report.checked()];
  return "after the last program";
}

}  // namespace

Interruption::Interruption() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE}) {
    // Ignored signals, such as SIGHUP under nohup, stay ignored: blocked ones would be delivered to signalfd.
    struct sigaction before {};
    const bool ignored = ::sigaction(signal, nullptr, &before) == 0 && before.sa_handler == SIG_IGN;
    if (!ignored) sigaddset(&signals, signal);
  }
  descriptor_ = ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (descriptor_ < 0) throw system_failure("cannot wait for signals", errno);
  ::pthread_sigmask(SIG_BLOCK, &signals, &mask_before_);
}

Interruption::~Interruption() {
  ::pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
  ::close(descriptor_);
}

ProcessReport run_process(const ProcessOptions& options, const Interruption& interruption,
                          const std::function<void(const ProcessReport&)>& progress) {
  std::vector<std::string> arguments = {"kiln"};
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  arguments.push_back(fmt::format("--child={}", child_descriptor));
  Child child(arguments, environment_with(options.environment), interruption.mask_before());

  ProcessReport report;
  std::string unread;
  while (const auto some = read_some(child.pipe(), interruption)) {
    unread += *some;
    for (std::size_t end = unread.find('\n'); end != std::string::npos; end = unread.find('\n')) {
      report = with_message(std::move(report), Json::parse(unread.substr(0, end)));
      unread.erase(0, end + 1);
      progress(report);
    }
  }
  const int status = child.wait();
  if (status != 0 || !report.finished)
    throw Failure(Error(ErrorCode::device_failed,
                        fmt::format("{} {} {}", options.title, cause_of_death(status), last_deed(report))));
  return report;
}

}  // namespace kiln::cli::demo
