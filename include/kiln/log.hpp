#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace kiln {

/// How much a message matters.
enum class LogLevel { debug, info, warning, error, off };

/// One message, as a sink gets it.
struct LogRecord {
  LogLevel level = LogLevel::info;
  /// The thread that logged: its name and its number in the operating system, as in "kiln-writer/4711".
  std::string thread = {};
  std::string message = {};
};

/// Where messages go: a cheap value that is handed to a device and to a cache, safe from any thread.
/// Made without arguments it writes to standard error what `KILN_LOG` asks for: debug, info, warning (the
/// default), error or off.
class Log {
 public:
  using Sink = std::function<void(const LogRecord&)>;

  Log();
  /// Passes every message of at least `level` to `sink`, on the thread that logs it. The sink must not call Kiln,
  /// since locks may be held. Exceptions from it are ignored.
  Log(LogLevel level, Sink sink);

  bool enabled(LogLevel level) const noexcept;
  void write(LogLevel level, std::string message) const;

  void debug(std::string message) const { write(LogLevel::debug, std::move(message)); }
  void info(std::string message) const { write(LogLevel::info, std::move(message)); }
  void warning(std::string message) const { write(LogLevel::warning, std::move(message)); }
  void error(std::string message) const { write(LogLevel::error, std::move(message)); }

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace kiln
