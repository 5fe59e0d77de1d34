#include "terminal.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/format.h>
#include <utf8proc.h>

#include "quantity.hpp"

namespace kiln::cli {
namespace {

struct Character {
  /// U+FFFD for a byte that is not valid UTF-8.
  char32_t code;
  std::size_t bytes;
};

/// The first character of a text that is not empty.
Character decode(std::string_view text) {
  utf8proc_int32_t code = 0;
  const utf8proc_ssize_t bytes = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                                  static_cast<utf8proc_ssize_t>(text.size()), &code);
  if (bytes <= 0) return {0xFFFD, 1};
  return {static_cast<char32_t>(code), static_cast<std::size_t>(bytes)};
}

/// wcwidth() would need a UTF-8 locale, which containers and build machines often lack.
std::size_t width_of(char32_t code) {
  return static_cast<std::size_t>(std::max(utf8proc_charwidth(static_cast<utf8proc_int32_t>(code)), 0));
}

/// Control characters, and characters that reorder the text around them.
bool steers_terminal(char32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || (code >= 0x202A && code <= 0x202E) ||
         (code >= 0x2066 && code <= 0x2069);
}

constexpr std::string_view ellipsis = "…";
/// Spaces between two columns of a table.
constexpr std::size_t gap = 2;

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
    // Line ends separate values; a line end within a string is already escaped.
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

std::vector<std::string> wrap(std::string_view text, std::size_t width, LongWords long_words) {
  if (display_width(text) <= width) return {std::string(text)};
  std::vector<std::string> lines;
  std::size_t used = 0;
  const auto append = [&](std::string_view part, std::size_t part_width) {
    if (lines.empty()) lines.emplace_back();
    lines.back() += part;
    used += part_width;
  };
  const auto append_word = [&](std::string_view word) {
    const std::size_t word_width = display_width(word);
    if (used > 0 && used + 1 + word_width <= width) {
      append(" ", 1);
    } else if (used > 0) {
      lines.emplace_back();
      used = 0;
    }
    if (word_width <= width || long_words == LongWords::keep) return append(word, word_width);
    while (!word.empty()) {
      const Character next = decode(word);
      if (used > 0 && used + width_of(next.code) > width) {
        lines.emplace_back();
        used = 0;
      }
      append(word.substr(0, next.bytes), width_of(next.code));
      word.remove_prefix(next.bytes);
    }
  };
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    if (end > 0) append_word(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

Table::Cell::Cell(const std::string& words, Ink color) : text(printable(words)), ink(color) {}

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

void Table::add(std::vector<Cell> cells) { rows_.push_back(std::move(cells)); }

std::vector<std::size_t> Table::widths(std::size_t limit) const {
  std::vector<std::size_t> widths;
  std::size_t total = gap * (columns_.size() - 1);
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::size_t width = display_width(columns_[i].title);
    for (const auto& row : rows_) width = std::max(width, display_width(row[i].text));
    widths.push_back(width);
    total += width;
  }
  // On a terminal that is too narrow even for this, long lines are easier to read than narrower columns.
  constexpr std::size_t least = 10;
  for (; total > limit; --total) {
    std::size_t widest = columns_.size();
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (columns_[i].overflow == Overflow::keep || widths[i] <= least) continue;
      if (widest == columns_.size() || widths[i] > widths[widest]) widest = i;
    }
    if (widest == columns_.size()) break;
    --widths[widest];
  }
  return widths;
}

std::vector<std::string> Table::lines_of(const std::string& text, std::size_t column, std::size_t width) const {
  switch (columns_[column].overflow) {
    case Overflow::keep: break;
    case Overflow::cut: return {fit(text, width)};
    case Overflow::wrap: return wrap(text, width, LongWords::split);
    case Overflow::wrap_words: return wrap(text, width, LongWords::keep);
  }
  return {text};
}

std::string Table::format(const Terminal& terminal) const {
  const std::vector<std::size_t> widths = this->widths(terminal.columns);
  std::string text;
  const auto add_row = [&](const std::vector<Cell>& row) {
    std::vector<std::vector<std::string>> cells;
    std::size_t height = 1;
    for (std::size_t i = 0; i < row.size(); ++i) {
      cells.push_back(lines_of(row[i].text, i, widths[i]));
      height = std::max(height, cells.back().size());
    }
    for (std::size_t line = 0; line < height; ++line) {
      for (std::size_t i = 0; i < row.size(); ++i) {
        const std::string shown = line < cells[i].size() ? cells[i][line] : "";
        const std::size_t width = display_width(shown);
        const std::string padding(widths[i] > width ? widths[i] - width : 0, ' ');
        if (columns_[i].align == Align::right) text += padding;
        text += paint(shown, row[i].ink, terminal.colors);
        if (columns_[i].align == Align::left) text += padding;
        text += std::string(gap, ' ');
      }
      while (text.ends_with(' ')) text.pop_back();
      text += '\n';
    }
  };
  std::vector<Cell> titles;
  for (const auto& column : columns_) titles.emplace_back(column.title, Ink::heading);
  if (std::any_of(titles.begin(), titles.end(), [](const Cell& title) { return !title.text.empty(); }))
    add_row(titles);
  for (const auto& row : rows_) add_row(row);
  return text;
}

ProgressBar::ProgressBar(const Terminal& terminal, std::string_view label)
    : shown_(terminal.error), label_(printable(label)) {}

ProgressBar::~ProgressBar() {
  if (shown_) std::fputs("\r\x1b[K", stderr);
}

void ProgressBar::show(std::string_view what) {
  if (!shown_) return;
  fmt::print(stderr, "\r\x1b[K{}", fit(printable(what), 79));
  std::fflush(stderr);
}

void ProgressBar::update(std::size_t done, std::size_t total, std::string_view what,
                         std::optional<std::chrono::nanoseconds> remaining) {
  if (!shown_ || total == 0) return;
  constexpr std::size_t width = 20;
  const std::size_t full = std::min(done, total) * width / total;
  std::string bar;
  for (std::size_t i = 0; i < width; ++i) bar += i < full ? "█" : "░";
  // Shorter than 80 columns: a line that wraps cannot be erased.
  const std::string left = remaining && *remaining >= std::chrono::seconds(1)
                               ? fmt::format(" {} left,", human_duration(*remaining))
                               : std::string();
  const std::string count = fmt::format("{}/{}{}", done, total, left);
  const std::size_t used = std::min<std::size_t>(label_.size() + width + count.size() + 3, 70);
  fmt::print(stderr, "\r\x1b[K{} {} {} {}", label_, bar, count,
             fit(printable(what), std::min<std::size_t>(79 - used, 24)));
  std::fflush(stderr);
}

}  // namespace kiln::cli
