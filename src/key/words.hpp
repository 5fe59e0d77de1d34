#pragma once

#include <algorithm>
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

}  // namespace kiln::key
