#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace kiln::base {

/// White space of ASCII, in any locale.
inline constexpr std::string_view blanks = " \t\r\n\v\f";

/// In ASCII, in any locale.
constexpr char to_lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
inline std::string to_lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = to_lower(c);
  return lower;
}

/// The text without the characters `around` at its ends.
constexpr std::string_view trimmed(std::string_view text, std::string_view around = blanks) noexcept {
  text.remove_prefix(std::min(text.find_first_not_of(around), text.size()));
  return text.substr(0, text.find_last_not_of(around) + 1);
}

}  // namespace kiln::base
