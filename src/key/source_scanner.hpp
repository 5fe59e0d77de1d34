#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <kiln/request.hpp>

/// What Kiln knows of the languages of sources.
namespace kiln::key {

constexpr bool is_glsl(Language language) noexcept {
  return language == Language::glsl || language == Language::vulkan_glsl;
}

constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

/// Whether a character can stand in a name.
constexpr bool is_word(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_';
}

/// Whether a text is one name.
constexpr bool is_name(std::string_view text) noexcept {
  return !text.empty() && !is_digit(text[0]) && std::all_of(text.begin(), text.end(), is_word);
}

/// Whether the last line of a text, which is not ended yet, would take the next one in by a backslash.
constexpr bool is_continued(std::string_view text) noexcept {
  return text.ends_with('\\') || text.ends_with("\\\r");
}

/// Walks over C-like source and finds its preprocessor directives, passing over comments and string literals.
class SourceScanner {
 public:
  /// A directive such as `#include "file"`.
  struct Directive {
    std::string_view name;
    /// What stands after the name on its line, up to the line's end.
    std::string_view rest;
    /// Where the directive's '#' and its `rest` begin in the text.
    std::size_t begin = 0;
    std::size_t rest_begin = 0;
    /// The line of the '#', counted from 1.
    std::size_t line = 1;
  };

  explicit SourceScanner(std::string_view text) : text_(text) {}

  /// Moves to the next directive, and stands behind its name then; nothing at the end.
  std::optional<Directive> next();

  /// Moves behind the end of the line, comments and continued lines included, and tells where that is.
  std::size_t next_line();
  /// The line of where the scanner stands, counted from 1.
  std::size_t line() const noexcept { return line_; }

  /// What the text ended in the middle of, as in "a comment"; empty where it did not.
  std::string_view unfinished() const noexcept { return unfinished_; }

  /// Goes on from `position` as at the beginning of a line, which keeps its number.
  void skip_to(std::size_t position) {
    position_ = position;
    line_is_blank_ = true;
  }

 private:
  char at(std::size_t position) const { return position < text_.size() ? text_[position] : '\0'; }
  bool starts(std::string_view what) const { return text_.substr(position_).starts_with(what); }
  /// The length of a line end that a backslash at the position takes back; 0 where there is none.
  std::size_t continuation() const;
  /// Moves over whatever is no line's end and no directive.
  void pass();
  void pass_line_end();
  void pass_line_comment();
  void pass_block_comment();
  void pass_literal(char quote);
  void pass_raw_string();

  std::string_view text_;
  std::size_t position_ = 0;
  std::size_t line_ = 1;
  bool line_is_blank_ = true;
  std::string_view unfinished_;
};

}  // namespace kiln::key
