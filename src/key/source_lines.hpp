#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "key/source_scanner.hpp"

/// Reading of source text as the first phases of a preprocessor do: line continuations, comments, other spellings.
namespace kiln::key {

constexpr bool is_blank(char c) noexcept { return c == ' ' || c == '\t' || c == '\v' || c == '\f' || c == '\r'; }

/// Whether an identifier of CUDA, HIP or OpenCL C can contain the character. Compilers also allow '$' and letters
/// of other alphabets, each of which is several bytes in UTF-8.
constexpr bool is_identifier_char(char c) noexcept {
  return is_word(c) || c == '$' || static_cast<unsigned char>(c) >= 0x80;
}

/// The length of a line continuation at `at`: a backslash, blanks (clang and gcc allow them) and a newline; 0 if
/// there is none.
std::size_t continuation(std::string_view text, std::size_t at) noexcept;

/// The text with digraphs and trigraphs for '#' and '\' replaced and line continuations inside of words removed;
/// nothing if it has none. Not every compiler reads these spellings, so the text as it is counts too.
std::optional<std::string> other_spelling(std::string_view text);

/// Positions in a text. Remembers where the last comment ended, so that reading a text with many directives takes
/// linear time.
class SourceLines {
 public:
  explicit SourceLines(std::string_view text) : text_(text) {}

  std::string_view text() const noexcept { return text_; }
  std::size_t size() const noexcept { return text_.size(); }
  /// The character at `at`; 0 behind the end.
  char operator[](std::size_t at) const noexcept { return at < text_.size() ? text_[at] : '\0'; }
  std::string_view from(std::size_t at) const noexcept { return text_.substr(at < size() ? at : size()); }
  bool has(std::size_t at, std::string_view what) const noexcept { return from(at).starts_with(what); }

  /// Whether only blanks and comments can precede the position in its line. A carriage return ends a line of clang.
  bool starts_line(std::size_t at) const noexcept;
  /// The position behind the comment that begins at `at`.
  std::size_t comment_end(std::size_t at) noexcept;
  /// Skips blanks, line continuations and comments; stops at the end of the line.
  std::size_t skip_blanks(std::size_t at) noexcept;
  /// The identifier at `at`, which moves behind it; empty if there is none.
  std::string_view read_identifier(std::size_t& at) const noexcept;

  struct Line {
    std::string text = {};
    /// Whether the line is longer than max_line, and cut there.
    bool is_cut = false;
  };
  /// A longer line is not read to its end: the names of real files are far shorter.
  static constexpr std::size_t max_line = 1024;
  /// The rest of a directive's line: line continuations removed, each comment replaced by a space.
  Line rest_of_line(std::size_t at);

 private:
  std::string_view text_;
  /// The first end of a comment at or after `searched_from_`; there is none at or after `none_from_`.
  std::size_t searched_from_ = std::numeric_limits<std::size_t>::max();
  std::size_t found_ = 0;
  std::size_t none_from_ = std::numeric_limits<std::size_t>::max();
};

}  // namespace kiln::key
