#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include <kiln/result.hpp>

#include "backend/child_process.hpp"
#include "base/file.hpp"

namespace kiln::backend {

/// Messages between Kiln and a compile worker: a size, then as many bytes.
using MessageSize = std::uint64_t;
inline constexpr MessageSize max_message = MessageSize{1} << 30U;

/// A kiln-helper process that compiles one program at a time. It ends when the socket to it is closed, and when the
/// process that started it has ended. Used by one thread at a time.
class CompileWorker {
 public:
  using Deadline = std::optional<std::chrono::steady_clock::time_point>;

  /// Starts `helper` with a compiler, such as "nvrtc", in the file `library`.
  static Result<std::unique_ptr<CompileWorker>> start(const std::string& helper, const std::string& compiler,
                                                      const std::string& library);

  /// Why there is no answer. The process has been killed, and cannot be used any more.
  struct Failed {
    bool timed_out = false;
    /// The process is not the helper of this version of Kiln.
    bool is_foreign = false;
    std::optional<ProcessEnd> end = {};
    /// The end of what the compiler wrote to its standard streams.
    std::string output = {};
  };
  /// Sends a call and returns the answer.
  std::variant<std::string, Failed> compile(const std::string& call, Deadline deadline);

  /// In a forked child: the process is the parent's.
  void leave_to_parent() noexcept;

  CompileWorker(ChildProcess process, base::FileHandle socket, base::FileHandle output)
      : process_(std::move(process)), socket_(std::move(socket)), output_(std::move(output)) {}

 private:
  Failed fail(Failed how);
  std::string last_output() const;

  ChildProcess process_;
  base::FileHandle socket_;
  /// A file in memory with what the compiler writes to its standard streams.
  base::FileHandle output_;
  bool greeted_ = false;
};

}  // namespace kiln::backend
