#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace kiln {

/// How important a message is, in ascending order. `off` is for thresholds only: no message has it.
enum class LogLevel { debug, info, warning, error, off };

/// One message, as a sink receives it.
struct LogRecord {
  LogLevel level = LogLevel::info;
  /// The thread that logged: its name and its number in the operating system, as in "kiln-writer/4711".
  std::string thread = {};
  std::string message = {};
};

/// The destination of messages, passed to devices, caches, executors and tuners, which copy it. A value: copies are
/// cheap and share the sink. All functions may be called from any thread.
class Log {
 public:
  /// Receives one message. Called from any number of threads at once.
  using Sink = std::function<void(const LogRecord&)>;

  /// Writes to standard error, one message at a time, if it is at least as important as `$KILN_LOG` says: debug,
  /// info, warning (the default), error or off. The variable is read once, here.
  Log();
  /// Passes every message of at least `level` to `sink`, on the thread that logs it. The sink must not call Kiln,
  /// because locks may be held. Its exceptions are ignored. It lives as long as a copy of this log; a null one
  /// drops all messages.
  Log(LogLevel level, Sink sink);

  /// Whether a message of this level would reach the sink.
  bool enabled(LogLevel level) const noexcept;
  /// Passes a message to the sink if its level is enabled, together with the name of this thread.
  void write(LogLevel level, std::string message) const;

  /// write() with a level.
  void debug(std::string message) const { write(LogLevel::debug, std::move(message)); }
  void info(std::string message) const { write(LogLevel::info, std::move(message)); }
  void warning(std::string message) const { write(LogLevel::warning, std::move(message)); }
  void error(std::string message) const { write(LogLevel::error, std::move(message)); }

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace kiln
