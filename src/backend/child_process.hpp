#pragma once

#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include <kiln/result.hpp>

#include "base/file.hpp"

namespace kiln::backend {

/// How a process ended.
struct ProcessEnd {
  /// The signal that killed it; 0 if it exited.
  int signal = 0;
  int exit_status = 0;

  /// Whether the process itself caused its end, by a crash.
  bool is_crash() const noexcept;
};

/// Takes ownership of a new descriptor. If the application has closed a standard stream and the descriptor got its
/// number, duplicates it to a number above the standard streams.
base::FileHandle past_standard_streams(int descriptor);

/// strerror() translates its text and may block on a thread that is inside setlocale().
std::string reason(int error);

/// A child process. It is started with posix_spawn, not fork, so it inherits no lock that another thread holds. It
/// inherits no descriptor of the application except those given and standard error, and no signal that the
/// application blocks or ignores.
class ChildProcess {
 public:
  /// The descriptors of the standard streams. Negative: /dev/null for input, otherwise that of the application.
  struct Streams {
    int input = -1;
    int output = -1;
    int error = -1;
  };

  /// Starts `program`, a path. The error says why it cannot be started.
  static Result<ChildProcess> start(const std::string& program, const std::vector<std::string>& arguments,
                                    const Streams& streams);

  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  /// Kills the process if it still runs.
  ~ChildProcess() { end(); }

  /// Readable once the process has ended; -1 before Linux 5.3.
  int handle() const noexcept { return handle_.get(); }
  /// Kills the process and waits for its end. If it was already exiting, returns its own exit status. Nothing if
  /// that is unknown: the application ignores SIGCHLD or has waited for the process itself, or the process hangs in
  /// the kernel.
  std::optional<ProcessEnd> end() noexcept;
  /// In a forked child: the process is the parent's.
  void leave_to_parent() noexcept;

 private:
  explicit ChildProcess(pid_t process);

  /// A pidfd: it identifies the process even if the application has waited for the process and the pid has been
  /// reused. Not open before Linux 5.3.
  base::FileHandle handle_;
  /// Negative once end() has been called.
  pid_t process_ = -1;
};

}  // namespace kiln::backend
