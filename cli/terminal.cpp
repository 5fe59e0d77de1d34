#include "terminal.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/format.h>

namespace kiln::cli {
namespace {

struct Character {
  /// 0xFFFD for what is no UTF-8.
  char32_t code;
  std::size_t bytes;
};

Character decode(std::string_view text) {
  constexpr Character bad{0xFFFD, 1};
  const auto byte = [&text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {first, 1};
  const std::size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < size) return bad;
  char32_t code = first & (0x7FU >> size);
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) return bad;
    code = (code << 6U) | (byte(i) & 0x3FU);
  }
  constexpr std::array<char32_t, 5> smallest = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < smallest[size] || code > 0x10FFFF || surrogate) return bad;
  return {code, size};
}

using Range = std::pair<char32_t, char32_t>;

bool in_any(char32_t code, const auto& ranges) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [code](const Range& range) { return code >= range.first && code <= range.second; });
}

/// wcwidth() knows better, but only in a UTF-8 locale, which a build machine or a container seldom has.
std::size_t width_of(char32_t code) {
  constexpr std::array<Range, 7> joined = {{{0x0300, 0x036F},
                                            {0x1AB0, 0x1AFF},
                                            {0x200B, 0x200F},
                                            {0x2060, 0x2064},
                                            {0x20D0, 0x20FF},
                                            {0xFE00, 0xFE0F},
                                            {0xE0100, 0xE01EF}}};
  constexpr std::array<Range, 14> wide = {{{0x1100, 0x115F},
                                           {0x231A, 0x231B},
                                           {0x23E9, 0x23EC},
                                           {0x2E80, 0x303E},
                                           {0x3041, 0xA4CF},
                                           {0xA960, 0xA97C},
                                           {0xAC00, 0xD7A3},
                                           {0xF900, 0xFAFF},
                                           {0xFE30, 0xFE6F},
                                           {0xFF00, 0xFF60},
                                           {0xFFE0, 0xFFE6},
                                           {0x1F300, 0x1F64F},
                                           {0x1F680, 0x1F9FF},
                                           {0x20000, 0x3FFFD}}};
  if (code < 0x300) return 1;
  if (in_any(code, joined)) return 0;
  return in_any(code, wide) ? 2 : 1;
}

/// Besides the control characters, those that reorder the text around them.
bool steers_terminal(char32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || (code >= 0x202A && code <= 0x202E) ||
         (code >= 0x2066 && code <= 0x2069);
}

constexpr std::string_view ellipsis = "…";

std::size_t terminal_columns() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace

Terminal Terminal::detect(Color color) {
  Terminal terminal;
  terminal.in = isatty(STDIN_FILENO) != 0;
  terminal.out = isatty(STDOUT_FILENO) != 0;
  terminal.error = isatty(STDERR_FILENO) != 0;
  if (terminal.out) terminal.columns = terminal_columns();
  const char* no_color = std::getenv("NO_COLOR");
  const char* kind = std::getenv("TERM");
  const bool refused =
      (no_color != nullptr && *no_color != '\0') || (kind != nullptr && std::string_view(kind) == "dumb");
  terminal.colors = color == Color::always || (color == Color::automatic && terminal.out && !refused);
  return terminal;
}

std::string paint(std::string_view text, Ink ink, bool colors) {
  if (!colors || ink == Ink::plain || text.empty()) return std::string(text);
  const auto code = [ink] {
    switch (ink) {
      case Ink::heading: return "1";
      case Ink::good: return "32";
      case Ink::bad: return "31";
      case Ink::warning: return "33";
      case Ink::faint: return "2";
      case Ink::plain: break;
    }
    return "0";
  };
  return fmt::format("\x1b[{}m{}\x1b[0m", code(), text);
}

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  while (!text.empty()) {
    const Character next = decode(text);
    width += width_of(next.code);
    text.remove_prefix(next.bytes);
  }
  return width;
}

std::string printable(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  while (!text.empty()) {
    const Character next = decode(text);
    if (next.code == 0xFFFD || steers_terminal(next.code)) {
      clean += "\uFFFD";
    } else {
      clean += text.substr(0, next.bytes);
    }
    text.remove_prefix(next.bytes);
  }
  return clean;
}

std::string printable_lines(std::string_view text) {
  std::string clean;
  bool first = true;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    if (!first) clean += line.empty() || line[0] == ' ' ? "\n" : "\n  ";
    first = false;
    for (std::size_t begin = 0; begin <= line.size();) {
      const std::size_t tab = std::min(line.find('\t', begin), line.size());
      clean += printable(line.substr(begin, tab - begin));
      if (tab < line.size()) clean += '\t';
      begin = tab + 1;
    }
    at = end + 1;
  }
  return clean;
}

std::string printable_json(std::string_view json) {
  std::string clean;
  clean.reserve(json.size());
  while (!json.empty()) {
    const Character next = decode(json);
    // Line ends are between values: those in texts are escaped already.
    if (next.code != '\n' && steers_terminal(next.code)) {
      clean += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(next.code));
    } else {
      clean += json.substr(0, next.bytes);
    }
    json.remove_prefix(next.bytes);
  }
  return clean;
}

std::string fit(std::string_view text, std::size_t width) {
  if (display_width(text) <= width) return std::string(text);
  std::string cut;
  std::size_t used = 1;
  while (!text.empty()) {
    const Character next = decode(text);
    used += width_of(next.code);
    if (used > width) break;
    cut += text.substr(0, next.bytes);
    text.remove_prefix(next.bytes);
  }
  return width == 0 ? "" : cut + std::string(ellipsis);
}

Table::Cell::Cell(const std::string& words, Ink color) : text(printable(words)), ink(color) {}

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::add(std::vector<Cell> cells) { rows_.push_back(std::move(cells)); }

std::string Table::format(const Terminal& terminal) const {
  constexpr std::size_t gap = 2;
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::size_t width = display_width(columns_[i].title);
    for (const auto& row : rows_) width = std::max(width, display_width(row[i].text));
    widths.push_back(width);
  }
  if (terminal.columns != 0) {
    std::size_t before_last = 0;
    for (std::size_t i = 0; i + 1 < widths.size(); ++i) before_last += widths[i] + gap;
    const std::size_t room = terminal.columns > before_last ? terminal.columns - before_last : 0;
    // A column cut to a few letters helps nobody: then the terminal's own wrapping is better.
    if (room >= 8) widths.back() = std::min(widths.back(), room);
  }

  std::string text;
  const auto add_cell = [&](std::size_t i, const std::string& words, Ink ink) {
    const std::string shown = fit(words, widths[i]);
    const std::string padding(widths[i] - display_width(shown), ' ');
    const bool last = i + 1 == columns_.size();
    if (columns_[i].align == Align::right) text += padding;
    text += paint(shown, ink, terminal.colors);
    if (columns_[i].align == Align::left) text += padding;
    if (!last) {
      text += std::string(gap, ' ');
      return;
    }
    while (text.ends_with(' ')) text.pop_back();
    text += '\n';
  };
  const bool titled = std::any_of(columns_.begin(), columns_.end(), [](const auto& c) { return !c.title.empty(); });
  for (std::size_t i = 0; titled && i < columns_.size(); ++i) add_cell(i, columns_[i].title, Ink::heading);
  for (const auto& row : rows_)
    for (std::size_t i = 0; i < columns_.size(); ++i) add_cell(i, row[i].text, row[i].ink);
  return text;
}

ProgressBar::ProgressBar(const Terminal& terminal, std::string_view label)
    : shown_(terminal.error), label_(printable(label)) {}

ProgressBar::~ProgressBar() {
  if (shown_) std::fputs("\r\x1b[K", stderr);
}

void ProgressBar::update(std::size_t done, std::size_t total, std::string_view what) {
  if (!shown_ || total == 0) return;
  constexpr std::size_t width = 30;
  const std::size_t full = std::min(done, total) * width / total;
  std::string bar;
  for (std::size_t i = 0; i < width; ++i) bar += i < full ? "█" : "░";
  // Short enough for 80 columns: a line that wraps cannot be taken back.
  fmt::print(stderr, "\r\x1b[K{} {} {}/{} {}", label_, bar, done, total, fit(printable(what), 24));
  std::fflush(stderr);
}

}  // namespace kiln::cli
