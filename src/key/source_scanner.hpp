#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <kiln/request.hpp>

/// Scanning of source text, and properties of the source languages.
namespace kiln::key {

constexpr bool is_glsl(Language language) noexcept {
  return language == Language::glsl || language == Language::vulkan_glsl;
}

/// Whether programs of the language are compiled already, and have neither includes nor defines.
constexpr bool is_compiled(Language language) noexcept {
  switch (language) {
    case Language::glsl:
    case Language::vulkan_glsl:
    case Language::opencl:
    case Language::cuda:
    case Language::hip: return false;
    case Language::spirv:
    case Language::ptx:
    case Language::cubin:
    case Language::fatbin:
    case Language::code_object: return true;
  }
  return false;
}

constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

/// Whether an identifier can contain the character.
constexpr bool is_word(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_';
}

/// Whether the text is an identifier.
constexpr bool is_name(std::string_view text) noexcept {
  return !text.empty() && !is_digit(text[0]) && std::all_of(text.begin(), text.end(), is_word);
}

/// Whether a text without its final newline ends in a line continuation.
constexpr bool is_continued(std::string_view text) noexcept {
  return text.ends_with('\\') || text.ends_with("\\\r");
}

/// Finds the preprocessor directives of C-like source; skips comments and string literals.
class SourceScanner {
 public:
  /// A directive, for example `#include "file"`.
  struct Directive {
    std::string_view name;
    /// The text between the name and the end of the line.
    std::string_view rest;
    /// Offsets of the '#' and of `rest` in the text.
    std::size_t begin = 0;
    std::size_t rest_begin = 0;
    /// The line of the '#', counted from 1.
    std::size_t line = 1;
  };

  explicit SourceScanner(std::string_view text) : text_(text) {}

  /// Finds the next directive and moves behind its name; nothing at the end of the text.
  std::optional<Directive> next();

  /// Moves behind the end of the current line, including continued lines and comments, and returns the new
  /// position.
  std::size_t next_line();
  /// The current line, counted from 1.
  std::size_t line() const noexcept { return line_; }

  /// The construct that is open at the end of the text, for example "a comment"; empty if there is none.
  std::string_view unfinished() const noexcept { return unfinished_; }

  /// Continues at `position` as if it were the beginning of a line; the line number stays.
  void skip_to(std::size_t position) {
    position_ = position;
    line_is_blank_ = true;
  }

 private:
  char at(std::size_t position) const { return position < text_.size() ? text_[position] : '\0'; }
  bool starts(std::string_view what) const { return text_.substr(position_).starts_with(what); }
  /// The length of a line continuation (backslash and newline) at the current position; 0 if there is none.
  std::size_t continuation() const;
  /// Moves over one token or character that is neither a newline nor a directive.
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
