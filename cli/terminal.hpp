#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::cli {

/// When to write colours: on a terminal unless NO_COLOR is set, or as the user insists.
enum class Color { automatic, always, never };

/// What standard input, output and error are connected to.
struct Terminal {
  bool in = false;
  bool out = false;
  bool error = false;
  bool colors = false;
  /// How wide the terminal on standard output is; 0 where there is none, and lines may be of any length.
  std::size_t columns = 0;

  static Terminal detect(Color color);
};

/// What a piece of text means, and so how it looks where colours are on.
enum class Ink { plain, heading, good, bad, warning, faint };

/// `text` in the colour of `ink`; as it is where `colors` is false.
std::string paint(std::string_view text, Ink ink, bool colors);

/// The columns a terminal takes for a UTF-8 text.
std::size_t display_width(std::string_view text);

/// The text with control characters and invalid UTF-8 replaced: names come from files, and must not be able to
/// steer the terminal.
std::string printable(std::string_view text);

/// The same for a message of several lines: line ends and tabs stay. Lines after the first are indented, so that a
/// name with a line end in it cannot pass for another message.
std::string printable_lines(std::string_view text);

/// A JSON text with escapes for the characters that printable() replaces; it stands for the same value.
std::string printable_json(std::string_view json);

/// The text cut to `width` columns, with an ellipsis where something was cut.
std::string fit(std::string_view text, std::size_t width);

/// Rows of text under headings, aligned. Texts may be UTF-8; they are made printable().
class Table {
 public:
  enum class Align { left, right };
  struct Column {
    std::string title;
    Align align = Align::left;
  };
  struct Cell {
    Cell(const std::string& words, Ink color = Ink::plain);
    Cell(const char* words) : Cell(std::string(words)) {}

    std::string text;
    Ink ink;
  };

  explicit Table(std::vector<Column> columns);

  /// Adds a row; it has as many cells as there are columns.
  void add(std::vector<Cell> cells);
  /// The whole table. Its last column is cut where the terminal is too narrow.
  std::string format(const Terminal& terminal) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

/// A line on standard error that shows how far long work has come; nothing unless that is a terminal. The line
/// is gone after destruction.
class ProgressBar {
 public:
  ProgressBar(const Terminal& terminal, std::string_view label);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  bool shown() const noexcept { return shown_; }
  void update(std::size_t done, std::size_t total, std::string_view what);

 private:
  bool shown_;
  std::string label_;
};

}  // namespace kiln::cli
