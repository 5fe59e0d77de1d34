#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <string_view>

#include "fuzz/input.hpp"
#include "key/source_scanner.hpp"

namespace kiln::fuzz {

/// Calls `visit` with each line of a source, and the number and the origin that #line directives before it give it.
template <class Visit>
void for_each_numbered_line(std::string_view text, Visit visit) {
  constexpr std::string_view directive = "#line ";
  std::size_t number = 1;
  std::string_view origin;
  bool continued = false;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    expect(!continued || !line.starts_with(directive), "no #line is a part of the line before it");
    continued = key::is_continued(line);
    if (!line.starts_with(directive)) {
      visit(line, number++, origin);
      continue;
    }
    line.remove_prefix(directive.size());
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
    line.remove_prefix(static_cast<std::size_t>(end - line.data()));
    origin = line.substr(std::min<std::size_t>(1, line.size()));
  }
}

/// A line of a text by its number, counted from 1; empty where there is none.
inline std::string_view line_of(std::string_view text, std::size_t number) {
  for (; number > 1 && !text.empty(); --number) text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  return text.substr(0, text.find('\n'));
}

}  // namespace kiln::fuzz
