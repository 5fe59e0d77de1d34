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
  /// The signal that ended it; 0 if it exited.
  int signal = 0;
  int exit_status = 0;
};

/// What a kiln-helper wrote, and how it ended.
struct HelperAnswer {
  /// The line after the greeting; nothing if it wrote no whole one.
  std::optional<std::string> line = {};
  bool timed_out = false;
  /// Nothing if this cannot be known: the application ignores SIGCHLD, or has waited for the process itself.
  std::optional<ProcessEnd> end = {};
};

/// A running kiln-helper, for one question. It is started with posix_spawn, never forked: it inherits no lock that
/// another thread holds, no descriptor but standard error, and no signal that the application blocks or ignores.
/// It ends with the thread that started it.
class HelperProcess {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  /// Starts the program `helper` with these arguments. The error says why it cannot be started.
  static Result<HelperProcess> start(const std::string& helper, const std::vector<std::string>& arguments);

  HelperProcess(HelperProcess&& other) noexcept;
  HelperProcess& operator=(HelperProcess&&) = delete;
  /// Kills it if it still runs.
  ~HelperProcess();

  /// Waits for its answer, then ends it. The error says what was wrong if it did not begin with the greeting of
  /// this version of Kiln.
  Result<HelperAnswer> answer(Deadline deadline);

 private:
  struct Reading;

  HelperProcess(std::string helper, base::FileHandle reading, pid_t process);
  Reading read(Deadline deadline) const;
  std::optional<ProcessEnd> end() noexcept;

  std::string helper_;
  base::FileHandle reading_;
  /// Names the process even after the application has waited for it and its number has been given to another. Not
  /// open before Linux 5.4.
  base::FileHandle handle_;
  /// Negative once it has been ended.
  pid_t process_ = -1;
};

}  // namespace kiln::backend
