#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../context.hpp"

namespace kiln::cli::demo {

/// What a process of the demo tells of one program.
struct ProgramReport {
  std::string name = {};
  /// As in to_string(Origin); empty where there was no program.
  std::string origin = {};
  /// What Cache::get took.
  double get_ms = 0;
  /// Whether it has run, so that its result could be checked.
  bool checked = false;
  /// What went wrong, as a sentence; empty where nothing did so far.
  std::string problem = {};
};

/// What a process of the demo tells.
struct ProcessReport {
  std::string device = {};
  std::string driver = {};
  /// Whether the driver gives programs out, so that they can be kept.
  bool binaries = false;
  /// All programs it will get.
  std::vector<std::string> names = {};
  /// Those it has got so far, in the order of `names`.
  std::vector<ProgramReport> programs = {};
  std::uint64_t compiles = 0;
  double saved_ms = 0;
  /// What the library warned of.
  std::vector<std::string> warnings = {};
  bool finished = false;

  double get_ms() const;
  /// How many of the programs have run.
  std::size_t checked() const;
};

/// The processes of a demo so far, of which there is at least one: the first found an empty cache.
struct Runs {
  std::size_t planned = 0;
  std::vector<ProcessReport> processes = {};

  const ProcessReport& cold() const { return processes.front(); }
  std::span<const ProcessReport> warm() const { return std::span(processes).subspan(1); }
  /// The median of a program's times in the warm processes that have got it; 0 where none has.
  double warm_get_ms(std::size_t program) const;
  /// The median of the warm processes' sums.
  double warm_get_ms() const;
};

/// The messages of a process, a line each, in the order they come: a hello, one for each program got, one for each
/// program checked, a goodbye. In place of any of them stands what made it give up.
Json hello_message(const ProcessReport& report);
Json program_message(const ProgramReport& report);
Json check_message(std::string_view problem);
Json goodbye_message(const ProcessReport& report);
Json failure_message(std::string_view sentence);

/// The report with a message added; throws Failure with the sentence of a failure_message.
ProcessReport with_message(ProcessReport report, const Json& message);

}  // namespace kiln::cli::demo
