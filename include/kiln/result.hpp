#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace kiln {

/// The kind of an Error: the part that programs branch on.
enum class ErrorCode {
  invalid_request,    ///< the arguments are wrong (empty source, a buffer of another device, …)
  include_not_found,  ///< a file named by #include is in no header and no include folder
  include_cycle,      ///< a file includes itself, directly or through others
  compile_failed,     ///< the compiler refused the source, or it lacks the entry point; see Error::log()
  load_failed,        ///< the driver, or Kiln's check of the binary, refused it
  damaged,            ///< stored bytes are not what was stored
  no_device,          ///< the device or its driver was not found
  device_failed,      ///< the driver reported an error, or a backend threw an exception
  out_of_memory,      ///< the device, or the host, has no memory left
  unsupported,        ///< the driver or the device lacks what is needed
  io,                 ///< a file or folder could not be read or written
  outdated,           ///< a file changed since the request was made: make the request again
  cancelled,          ///< the work was cancelled before it began
  timed_out,          ///< a time limit was exceeded
  callback_failed,    ///< a callback threw an exception
  denied,             ///< a server refused access: wrong credentials, or no permission
  untrusted,          ///< a shared store or a bundle has no trusted signature, or is not private
  not_compiled,       ///< no level has the program, and the cache may not compile it, or not while the caller waits
};

/// The name of a code, as in "compile_failed". The text is static.
std::string_view to_string(ErrorCode code) noexcept;

/// A failure: a code, a message for people, which names the program, file or device, and the compiler's log if any.
/// A value.
class Error {
 public:
  Error(ErrorCode code, std::string message, std::string log = {})
      : code_(code), message_(std::move(message)), log_(std::move(log)) {}

  ErrorCode code() const noexcept { return code_; }
  const std::string& message() const noexcept { return message_; }
  /// The compiler's, or sometimes the driver's, log in full; empty if there is none.
  const std::string& log() const noexcept { return log_; }
  /// The message, and the log below it.
  std::string describe() const;

 private:
  ErrorCode code_;
  std::string message_;
  std::string log_;
};

/// Thrown by Result::value() if there is an error; what() is Error::describe().
class Failure : public std::runtime_error {
 public:
  explicit Failure(Error error) : std::runtime_error(error.describe()), error_(std::move(error)) {}
  const Error& error() const noexcept { return error_; }

 private:
  Error error_;
};

/// A value, or the Error in its place. Absence is not an error: functions that look for something return
/// Result<std::optional<T>>. Owns the value or the error. As thread-safe as T.
template <class T>
class [[nodiscard]] Result {
 public:
  /// Implicit, so that a function can return a T or an Error.
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  /// Whether there is a value.
  bool ok() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return ok(); }

  /// The value; throws Failure if there is none.
  T& value() & { return require(), *std::get_if<0>(&state_); }
  const T& value() const& { return require(), *std::get_if<0>(&state_); }
  T value() && {
    require();
    return std::move(*std::get_if<0>(&state_));
  }

  /// The value, unchecked: only if ok().
  T& operator*() & noexcept { return *std::get_if<0>(&state_); }
  const T& operator*() const& noexcept { return *std::get_if<0>(&state_); }
  T&& operator*() && noexcept { return std::move(*std::get_if<0>(&state_)); }
  T* operator->() noexcept { return std::get_if<0>(&state_); }
  const T* operator->() const noexcept { return std::get_if<0>(&state_); }

  /// The error, unchecked: only if !ok().
  const Error& error() const& noexcept { return *std::get_if<1>(&state_); }
  Error&& error() && noexcept { return std::move(*std::get_if<1>(&state_)); }

 private:
  void require() const {
    if (!ok()) throw Failure(*std::get_if<1>(&state_));
  }

  std::variant<T, Error> state_;
};

/// Success, or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  /// Success.
  Result() = default;
  Result(Error error) : state_(std::move(error)) {}

  /// Whether there is no error.
  bool ok() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return ok(); }

  /// Throws Failure if there is an error.
  void value() const {
    if (!ok()) throw Failure(error());
  }
  /// The error, unchecked: only if !ok().
  const Error& error() const& noexcept { return *std::get_if<1>(&state_); }
  Error&& error() && noexcept { return std::move(*std::get_if<1>(&state_)); }

 private:
  std::variant<std::monostate, Error> state_;
};

}  // namespace kiln
