#include "display.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "../quantity.hpp"

namespace kiln::cli::demo {
namespace {

std::string milliseconds(double ms) { return fmt::format("{:.2f} ms", ms); }

Ink ink_of(const std::string& origin) { return origin == "compiled" ? Ink::warning : Ink::good; }

Table::Cell verdict(const ProgramReport& program) {
  if (!program.problem.empty()) return {program.origin.empty() ? "failed" : "wrong", Ink::bad};
  return program.checked ? Table::Cell("ok", Ink::good) : Table::Cell("");
}

/// An empty cell with the width of its later text, so that the table keeps its widths.
Table::Cell blank(std::string_view later, std::string_view now = "") {
  return {std::string(now) + std::string(later.size() - display_width(now), ' '), Ink::faint};
}

/// The cells of one process: the origin of the program, and the time of the get.
std::array<Table::Cell, 2> process_cells(const ProcessReport& process, std::size_t program, double get_ms,
                                         std::array<std::string_view, 2> later) {
  if (program < process.programs.size()) {
    const std::string& origin = process.programs[program].origin;
    return {Table::Cell(origin.empty() ? "-" : origin, ink_of(origin)), milliseconds(get_ms)};
  }
  const bool next = !process.names.empty() && program == process.programs.size();
  return {blank(later[0], next ? "…" : ""), blank(later[1])};
}

/// The check result of a program: the worst of all processes.
Table::Cell check_cell(const Runs& runs, std::size_t program) {
  const ProcessReport& current = runs.processes.back();
  const bool all_got = !current.names.empty() && current.programs.size() == current.names.size();
  if (all_got && program == current.checked()) return {"…", Ink::faint};
  Table::Cell check = "";
  for (const ProcessReport& process : runs.processes) {
    if (program >= process.programs.size() || check.ink == Ink::bad) continue;
    if (const Table::Cell later = verdict(process.programs[program]); !later.text.empty()) check = later;
  }
  return check;
}

Table table_of(const Runs& runs) {
  using enum Table::Align;
  const char* const time = runs.cold().preloads ? "READY AFTER" : "TIME";
  Table table({{"PROGRAM", left, Table::Overflow::cut},
               {"COLD"},
               {time, right},
               {"WARM"},
               {time, right},
               {"FASTER", right},
               {"CHECK"}});
  const ProcessReport& cold = runs.cold();
  for (std::size_t i = 0; i < cold.names.size(); ++i) {
    const auto has_it = [i](const ProcessReport& process) { return i < process.programs.size(); };
    const double cold_ms = has_it(cold) ? cold.programs[i].get_ms : 0;
    const double warm_ms = runs.warm_get_ms(i);
    // Shows the result of an earlier process until the current one gets this program.
    ProcessReport warm;
    for (const ProcessReport& process : runs.warm())
      if (has_it(process) || warm.names.empty()) warm = process;

    const auto [cold_origin, cold_time] = process_cells(cold, i, cold_ms, {"compiled", "10.00 ms"});
    const auto [warm_origin, warm_time] = process_cells(warm, i, warm_ms, {"disk", "0.10 ms"});
    table.add({cold.names[i], cold_origin, cold_time, warm_origin, warm_time,
               has_it(warm) ? fmt::format("{:.0f}x", cold_ms / warm_ms) : "", check_cell(runs, i)});
  }
  return table;
}

std::string title_of(const Runs& runs) {
  if (runs.warm().empty()) return "cold: a new process with an empty cache";
  return fmt::format("warm: new process {} of {} with the same cache", runs.warm().size(), runs.planned - 1);
}

std::string sum_of(const ProcessReport& process) {
  return fmt::format("{} in {}, {} compiled", human_count(process.programs.size(), "program"),
                     milliseconds(process.get_ms()), process.compiles);
}

std::size_t terminal_lines() {
  winsize size = {};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_row : 0;
}

bool can_redraw(const Terminal& terminal, const std::string& table) {
  const char* kind = std::getenv("TERM");
  if (!terminal.out || kind == nullptr || std::string_view(kind) == "dumb") return false;
  const auto lines = static_cast<std::size_t>(std::count(table.begin(), table.end(), '\n'));
  // Lines that have scrolled away or that wrap cannot be redrawn.
  return terminal_lines() >= lines + 3 && terminal.columns >= 80;
}

}  // namespace

void Display::begin(const Runs& runs) {
  begun_ = true;
  in_place_ = can_redraw(terminal_, table_of(runs).format(terminal_));
  print(paint(fmt::format("{} on {}", human_count(runs.cold().names.size(), "compute program"),
                          printable(runs.cold().device)),
              Ink::heading, terminal_.colors));
  print(
      "\nA first process starts with an empty cache and compiles the programs. The next\n"
      "processes load them from disk. Each result is compared with a result of the CPU.\n");
  if (runs.cold().preloads)
    print(
        "A process requests all programs at once. The time of a program is the time from\n"
        "this request until the program was ready.\n");
  print("\n");
}

void Display::update(const Runs& runs) {
  if (!begun_) begin(runs);
  if (in_place_) {
    const ProcessReport& current = runs.processes.back();
    redraw(runs, fmt::format("{}: {} of {} loaded, {} checked", title_of(runs), current.programs.size(),
                             runs.cold().names.size(), current.checked()));
  } else {
    print_new_lines(runs);
  }
  std::fflush(stdout);
}

void Display::finish(const Runs& runs) {
  if (in_place_) redraw(runs, "");
  std::fflush(stdout);
}

void Display::redraw(const Runs& runs, const std::string& footer) {
  std::string text = table_of(runs).format(terminal_) + "\n";
  if (!footer.empty()) text += paint(footer, Ink::faint, terminal_.colors) + "\n";
  const auto lines = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  // Clears each line as it is written: clearing all lines first would flicker.
  for (std::size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 4))
    text.insert(at, "\x1b[K");
  if (drawn_lines_ != 0) print(fmt::format("\x1b[{}A", drawn_lines_));
  print(text + "\x1b[J");
  drawn_lines_ = lines;
}

void Display::print_new_lines(const Runs& runs) {
  const ProcessReport& current = runs.processes.back();
  if (processes_printed_ < runs.processes.size()) {
    print(paint(title_of(runs), Ink::heading, terminal_.colors) + "\n");
    ++processes_printed_;
    programs_printed_ = 0;
  }
  for (; programs_printed_ < current.checked(); ++programs_printed_) {
    const ProgramReport& program = current.programs[programs_printed_];
    // Hits are printed for the first warm process only.
    if (processes_printed_ > 2 && program.problem.empty() && program.origin != "compiled") continue;
    const Table::Cell check = verdict(program);
    print(fmt::format("  {:<26}{} {:>10}   {}\n", program.name,
                      paint(fmt::format("{:<8}", program.origin), ink_of(program.origin), terminal_.colors),
                      milliseconds(program.get_ms), paint(check.text, check.ink, terminal_.colors)));
  }
  if (current.finished) print(fmt::format("  {}\n\n", sum_of(current)));
}

}  // namespace kiln::cli::demo
