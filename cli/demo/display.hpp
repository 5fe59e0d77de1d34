#pragma once

#include <cstddef>
#include <string>

#include "../terminal.hpp"
#include "report.hpp"

namespace kiln::cli::demo {

/// Shows the progress of the demo: a table that is redrawn in place if the terminal is large enough, else lines.
class Display {
 public:
  explicit Display(const Terminal& terminal) : terminal_(terminal) {}

  void update(const Runs& runs);
  /// Draws the final state. Other output may follow.
  void finish(const Runs& runs);

 private:
  void begin(const Runs& runs);
  void redraw(const Runs& runs, const std::string& footer);
  void print_new_lines(const Runs& runs);

  Terminal terminal_;
  bool begun_ = false;
  bool in_place_ = false;
  std::size_t drawn_lines_ = 0;
  std::size_t processes_printed_ = 0;
  std::size_t programs_printed_ = 0;
};

}  // namespace kiln::cli::demo
