#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <kiln/result.hpp>

#include "backend/child_process.hpp"
#include "base/file.hpp"

namespace kiln::backend {

/// The output of a kiln-helper process, and how it ended.
struct HelperAnswer {
  /// The line after the greeting; nullopt if the process wrote no complete line.
  std::optional<std::string> line = {};
  bool timed_out = false;
  /// As ChildProcess::end().
  std::optional<ProcessEnd> end = {};
};

/// A running kiln-helper process, which answers one query. It ends with the thread that started it.
class HelperProcess {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  /// Starts the program `helper`. The error says why it cannot be started.
  static Result<HelperProcess> start(const std::string& helper, const std::vector<std::string>& arguments);

  /// Waits for the answer, then kills the process. Fails if the output does not begin with the greeting of this
  /// version of Kiln.
  Result<HelperAnswer> answer(Deadline deadline);

 private:
  struct Reading;

  HelperProcess(std::string helper, base::FileHandle reading, ChildProcess process)
      : helper_(std::move(helper)), reading_(std::move(reading)), process_(std::move(process)) {}
  Reading read(Deadline deadline) const;

  std::string helper_;
  base::FileHandle reading_;
  ChildProcess process_;
};

}  // namespace kiln::backend
