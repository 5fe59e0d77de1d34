#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <kiln/result.hpp>

#include "store/object_store.hpp"

/// Version 2 of Redis's protocol, as far as the Redis store needs it. Kiln has a client of its own because Debian's
/// hiredis has no TLS and raises SIGPIPE.
namespace kiln::store {

/// A command in the form that servers read: an array of bulk strings.
std::string encode_resp_command(std::initializer_list<std::string_view> words);

/// An answer of the server. A value.
struct RespAnswer {
  enum class Kind { text, error, integer, bulk, null, array };

  Kind kind = Kind::null;
  /// Of a text or an error, as the server sent it: it may contain any byte except line ends.
  std::string text = {};
  std::int64_t integer = 0;
  std::vector<std::byte> bulk = {};
  /// Of an array.
  std::vector<RespAnswer> items = {};

  friend bool operator==(const RespAnswer&, const RespAnswer&) = default;
};

/// Reads one answer from bytes as they arrive. Memory grows with the bytes that arrived, not with the lengths that
/// the server announced.
class RespParser {
 public:
  static constexpr std::size_t max_line_bytes = std::size_t{64} << 10;
  /// Of arrays in arrays.
  static constexpr std::size_t max_depth = 4;
  /// Of all arrays of an answer together.
  static constexpr std::size_t max_items = 100'000;

  /// `max_bytes` is the most that the texts and bulk strings of an answer may have together.
  explicit RespParser(std::uint64_t max_bytes = max_object_bytes) noexcept : bytes_allowed_(max_bytes) {}

  /// Consumes the next bytes of the stream. Returns how many of them belong to the answer: all, unless the answer
  /// is complete. Fails with io if they are not a valid answer, and with unsupported if it is too long; the parser
  /// is unusable then. The message follows "the server sent".
  Result<std::size_t> consume(std::span<const std::byte> bytes);
  bool is_complete() const noexcept { return state_ == State::complete; }
  /// Only once, when it is complete.
  RespAnswer take() && noexcept { return std::move(answer_); }

 private:
  enum class State { line, bulk, complete };
  /// An array that is not complete.
  struct OpenArray {
    std::size_t missing;
    RespAnswer answer;
  };

  Result<std::size_t> consume_line(std::string_view text);
  Result<std::size_t> consume_bulk(std::span<const std::byte> bytes);
  Result<void> parse_line();
  Result<void> begin_bulk(std::int64_t size);
  Result<void> begin_array(std::int64_t size);
  /// Adds a complete value to the innermost array, and completes each array that has all of its items.
  void finish(RespAnswer value);

  std::uint64_t bytes_allowed_;
  std::size_t items_ = 0;
  State state_ = State::line;
  std::string line_;
  std::vector<std::byte> bulk_;
  /// Of the bulk string and the line end after it.
  std::size_t bulk_bytes_left_ = 0;
  /// The outermost first.
  std::vector<OpenArray> open_;
  RespAnswer answer_;
};

}  // namespace kiln::store
