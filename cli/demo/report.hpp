#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../context.hpp"

namespace kiln::cli::demo {

/// The report of a process about one program.
struct ProgramReport {
  std::string name = {};
  /// As in to_string(Origin); empty if the get failed.
  std::string origin = {};
  /// The time of Cache::get; after Cache::preload, the time from its begin until the program was ready.
  double get_ms = 0;
  /// Whether the program has run and its result was compared.
  bool checked = false;
  /// The problem, as a sentence; empty if there is none.
  std::string problem = {};
};

/// The report of a process.
struct ProcessReport {
  std::string device = {};
  std::string driver = {};
  /// Whether the driver returns program binaries, so that Kiln can store them.
  bool binaries = false;
  /// Whether the process preloads the programs.
  bool preloads = false;
  /// The names of all programs.
  std::vector<std::string> names = {};
  /// The programs that the process has got, in the order of `names`.
  std::vector<ProgramReport> programs = {};
  std::uint64_t compiles = 0;
  double saved_ms = 0;
  /// Warnings of the library.
  std::vector<std::string> warnings = {};
  bool finished = false;

  /// The time until all programs were ready.
  double get_ms() const;
  /// The number of programs that have run.
  std::size_t checked() const;
};

/// The processes of a demo that have started, at least one. The first one starts with an empty cache.
struct Runs {
  std::size_t planned = 0;
  std::vector<ProcessReport> processes = {};

  const ProcessReport& cold() const { return processes.front(); }
  std::span<const ProcessReport> warm() const { return std::span(processes).subspan(1); }
  /// The median time of a program in the warm processes; 0 if none has got it yet.
  double warm_get_ms(std::size_t program) const;
  /// The median of the total times of the warm processes.
  double warm_get_ms() const;
};

/// The messages of a process, one per line, in this order: a hello, one for each program got, one for each program
/// checked, a goodbye. A failure message may replace any of them and is the last.
Json hello_message(const ProcessReport& report);
Json program_message(const ProgramReport& report);
Json check_message(std::string_view problem);
Json goodbye_message(const ProcessReport& report);
Json failure_message(std::string_view sentence);

/// Adds a message to the report; throws Failure for a failure_message.
ProcessReport with_message(ProcessReport report, const Json& message);

}  // namespace kiln::cli::demo
