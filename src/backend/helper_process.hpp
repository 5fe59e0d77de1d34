#pragma once

#include <chrono>
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
};

/// The output of a kiln-helper process, and how it ended.
struct HelperAnswer {
  /// The line after the greeting; nullopt if the process wrote no complete line.
  std::optional<std::string> line = {};
  bool timed_out = false;
  /// nullopt if unknown: the application ignores SIGCHLD or has waited for the process itself, or the process hangs
  /// in the kernel.
  std::optional<ProcessEnd> end = {};
};

/// A running kiln-helper process, which answers one query. It is started with posix_spawn, not fork, so it inherits
/// no lock that another thread holds. It inherits no descriptor of the application except standard error, and no
/// signal that the application blocks or ignores. It ends with the thread that started it.
class HelperProcess {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  /// Starts the program `helper`. The error says why it cannot be started.
  static Result<HelperProcess> start(const std::string& helper, const std::vector<std::string>& arguments);

  HelperProcess(HelperProcess&& other) noexcept;
  HelperProcess& operator=(HelperProcess&&) = delete;
  /// Kills the process if it still runs.
  ~HelperProcess();

  /// Waits for the answer, then kills the process. Fails if the output does not begin with the greeting of this
  /// version of Kiln.
  Result<HelperAnswer> answer(Deadline deadline);

 private:
  struct Reading;

  HelperProcess(std::string helper, base::FileHandle reading, pid_t process);
  Reading read(Deadline deadline) const;
  std::optional<ProcessEnd> end() noexcept;

  std::string helper_;
  base::FileHandle reading_;
  /// A pidfd: it identifies the process even if the application has waited for the process and the pid has been
  /// reused. Not open before Linux 5.3.
  base::FileHandle handle_;
  /// Negative once end() has been called.
  pid_t process_ = -1;
};

}  // namespace kiln::backend
