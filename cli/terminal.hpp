#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::cli {

/// The value of --color. `automatic` writes colours on a terminal unless NO_COLOR is set.
enum class Color { automatic, always, never };

/// Properties of standard input, output and error.
struct Terminal {
  /// Whether each stream is a terminal.
  bool in = false;
  bool out = false;
  bool error = false;
  bool colors = false;
  /// The longest line that tables and wrapped texts may have: the width of the terminal on standard output, or 80
  /// if it is not a terminal.
  std::size_t columns = 80;

  static Terminal detect(Color color);
};

/// The meaning of a piece of text; it selects the colour.
enum class Ink { plain, heading, good, bad, warning, faint };

/// `text` in the colour of `ink`, or unchanged if `colors` is false.
std::string paint(std::string_view text, Ink ink, bool colors);

/// The number of terminal columns that a UTF-8 text takes.
std::size_t display_width(std::string_view text);

/// Replaces control characters and invalid UTF-8, so that names from files cannot send commands to the terminal.
std::string printable(std::string_view text);

/// printable() for a message of several lines: keeps line ends and tabs. Indents all lines but the first, so that a
/// name with a line end in it cannot look like another message.
std::string printable_lines(std::string_view text);

/// A JSON text with escapes for the characters that printable() replaces. The JSON value stays the same.
std::string printable_json(std::string_view json);

/// The text cut to `width` columns; an ellipsis marks the cut.
std::string fit(std::string_view text, std::size_t width);

/// How wrap() treats a word that is longer than a line.
enum class LongWords { keep, split };

/// Breaks a text at its spaces into lines of at most `width` columns. With LongWords::keep, a word that is longer
/// gets a line of its own.
std::vector<std::string> wrap(std::string_view text, std::size_t width, LongWords long_words);

/// Aligned rows of text under headings. Texts may be UTF-8; the table makes them printable().
class Table {
 public:
  enum class Align { left, right };
  /// How a column gives way if the table is wider than the terminal: not at all, by cutting its texts, by wrapping
  /// them, or by wrapping them without splitting words, so that paths and digests can be copied.
  enum class Overflow { keep, cut, wrap, wrap_words };
  struct Column {
    std::string title;
    Align align = Align::left;
    Overflow overflow = Overflow::keep;
  };
  struct Cell {
    Cell(const std::string& words, Ink color = Ink::plain);
    Cell(const char* words) : Cell(std::string(words)) {}

    std::string text;
    Ink ink;
  };

  explicit Table(std::vector<Column> columns);
  /// A list of labels and values without headings.
  static Table of_fields() { return Table({{""}, {"", Align::left, Overflow::wrap_words}}); }

  /// Adds a row; it has as many cells as there are columns.
  void add(std::vector<Cell> cells);
  /// The whole table, in lines of at most Terminal::columns as far as the columns can give way.
  std::string format(const Terminal& terminal) const;

 private:
  std::vector<std::size_t> widths(std::size_t limit) const;
  std::vector<std::string> lines_of(const std::string& text, std::size_t column, std::size_t width) const;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

/// A progress line on standard error; shown only on a terminal. The destructor erases it.
class ProgressBar {
 public:
  ProgressBar(const Terminal& terminal, std::string_view label);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  bool shown() const noexcept { return shown_; }
  /// Shows what goes on while there is nothing to count.
  void show(std::string_view what);
  void update(std::size_t done, std::size_t total, std::string_view what,
              std::optional<std::chrono::nanoseconds> remaining = {});

 private:
  bool shown_;
  std::string label_;
};

}  // namespace kiln::cli
