#pragma once

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>

#include <grp.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace kiln::fakes {

/// A user id that is neither root nor the user who runs the tests.
inline constexpr unsigned other_user = 12345;

inline bool is_root() { return geteuid() == 0; }

/// A forked process that can send lines of text to this one; killed when this process ends.
class Child {
 public:
  using Report = std::function<void(const std::string&)>;

  /// Runs `body` in the child, which exits afterwards.
  explicit Child(const std::function<void(const Report&)>& body) {
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    process_ = fork();
    if (process_ < 0) std::abort();
    if (process_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      close(ends[0]);
      const auto report = [end = ends[1]](const std::string& text) {
        const std::string line = text + '\n';
        if (write(end, line.data(), line.size()) != static_cast<ssize_t>(line.size())) _exit(1);
      };
      try {
        body(report);
      } catch (const std::exception& error) {
        report(std::string("it threw: ") + error.what());
      }
      _exit(0);
    }
    close(ends[1]);
    reports_ = ends[0];
  }
  ~Child() {
    kill();
    close(reports_);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// Waits for the next report. If the child ends without one, returns its exit status as text.
  std::string report() {
    std::string text;
    for (char c = 0;;) {
      const ssize_t got = read(reports_, &c, 1);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return text + "it ended with " + std::to_string(wait());
      if (c == '\n') return text;
      text += c;
    }
  }

  /// Kills the child and waits for its end.
  void kill() {
    if (process_ > 0) ::kill(process_, SIGKILL);
    wait();
  }

  void send(int signal) const { ::kill(process_, signal); }

  /// Waits for the child's end; returns its exit status, or 128 plus the signal.
  int wait() {
    if (process_ > 0) {
      int status = 0;
      while (waitpid(process_, &status, 0) < 0 && errno == EINTR) {
      }
      process_ = -1;
      result_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    return result_;
  }

 private:
  pid_t process_ = -1;
  int reports_ = -1;
  int result_ = 0;
};

/// Runs `body` in a child and returns its result, or a text with the child's exit status.
inline std::string in_child(const std::function<std::string()>& body) {
  Child child([&body](const Child::Report& report) { report(body()); });
  return child.report();
}

/// The same as a user who is subject to file permissions and owns `folder` with its contents. If this process is
/// root, the child becomes `other_user`.
inline std::string in_ordinary_child(const std::filesystem::path& folder,
                                     const std::function<std::string()>& body) {
  if (is_root()) {
    if (lchown(folder.c_str(), other_user, other_user) != 0) std::abort();
    for (const auto& item : std::filesystem::recursive_directory_iterator(folder))
      if (lchown(item.path().c_str(), other_user, other_user) != 0) std::abort();
  }
  return in_child([&body]() -> std::string {
    if (is_root() && (setgroups(0, nullptr) != 0 || setgid(other_user) != 0 || setuid(other_user) != 0))
      return "it cannot become another user";
    return body();
  });
}

}  // namespace kiln::fakes
