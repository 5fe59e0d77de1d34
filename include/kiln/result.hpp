#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace kiln {

/// What kind of failure an Error is; the part of it a program branches on.
enum class ErrorCode {
  invalid_request,    ///< the request itself cannot be honoured (empty source, wrong entry point, …)
  include_not_found,  ///< a file named by #include is in no header and no include folder
  include_cycle,      ///< a file includes itself, directly or through others
  compile_failed,     ///< the compiler refused the source; Error::log() is its log
  load_failed,        ///< the driver refused a binary
  damaged,            ///< stored bytes are not what was stored
  no_device,          ///< no such device, or no driver for it
  device_failed,      ///< the driver reported an error
  out_of_memory,      ///< the device has no memory left
  unsupported,        ///< the driver or the device lacks what is needed
  io,                 ///< a file or folder could not be read or written
  cancelled,          ///< it was cancelled before it was done
  timed_out,          ///< its time limit was exceeded
  callback_failed,    ///< a callback threw an exception
};

/// The name of a code, as in "compile_failed".
std::string_view to_string(ErrorCode code) noexcept;

/// A failure: a code, a sentence for people that names what it happened to, and the compiler's log if any.
class Error {
 public:
  Error(ErrorCode code, std::string message, std::string log = {})
      : code_(code), message_(std::move(message)), log_(std::move(log)) {}

  ErrorCode code() const noexcept { return code_; }
  const std::string& message() const noexcept { return message_; }
  /// The compiler's log in full; empty unless a compiler ran.
  const std::string& log() const noexcept { return log_; }
  /// The message, and the log below it.
  std::string describe() const;

 private:
  ErrorCode code_;
  std::string message_;
  std::string log_;
};

/// Thrown by Result::value() on a failure; what() is Error::describe().
class Failure : public std::runtime_error {
 public:
  explicit Failure(Error error) : std::runtime_error(error.describe()), error_(std::move(error)) {}
  const Error& error() const noexcept { return error_; }

 private:
  Error error_;
};

/// A value or the Error that stands in its place. Absence is not an error: see Result<std::optional<T>>.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

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

/// Success, or the Error that stands in its place.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : state_(std::move(error)) {}

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
