#include "report.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <mutex>

#include <unistd.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace kiln::bench {
namespace {

constexpr std::string_view json_flag = "--kiln_json=";
constexpr std::string_view format_flag = "--benchmark_format=";
constexpr std::string_view repetitions_flag = "--benchmark_repetitions=";
constexpr std::string_view filter_flag = "--benchmark_filter=";
constexpr std::string_view long_flag = "--long";

/// What Progress has counted. Cases of several threads enter at once, so a mutex guards it.
struct Counted {
  std::mutex mutex;
  std::string program;
  /// Runs of a case that sets its own repetitions, and cases that leave them to the command line.
  int own_runs = 0;
  int cases = 0;
  int repetitions = 1;
  /// Whether a filter leaves out some of them, so that their number is not known.
  bool filtered = false;
  int done = 0;
  std::map<std::string, std::int64_t> iterations = {};
  std::chrono::steady_clock::time_point last = {};
};

Counted& counted() {
  static Counted counted;
  return counted;
}

bool met(double value, const Target& target) {
  switch (target.kind) {
    case Target::Kind::at_most: return value <= target.limit;
    case Target::Kind::at_least: return value >= target.limit;
    case Target::Kind::below: return value < target.limit;
  }
  return false;
}

std::string_view sign(Target::Kind kind) {
  switch (kind) {
    case Target::Kind::at_most: return "<=";
    case Target::Kind::at_least: return ">=";
    case Target::Kind::below: return "<";
  }
  return "";
}

/// Three digits are enough of a figure, but a large one keeps its whole number.
std::string shown(std::optional<double> value, const std::string& unit) {
  if (!value) return "not measured";
  return *value >= 1000 ? fmt::format("{:.0f} {}", *value, unit) : fmt::format("{:.3g} {}", *value, unit);
}

std::optional<double> median_of(const std::vector<double>& values) {
  if (values.empty()) return {};
  return median(values);
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Measured::Measured() : display_(benchmark::CreateDefaultDisplayReporter()) {}

bool Measured::ReportContext(const Context& context) { return display_->ReportContext(context); }

void Measured::ReportRuns(const std::vector<Run>& runs) {
  for (const Run& run : runs) {
    const bool aggregate = run.run_type == Run::RT_Aggregate;
    // An error is shown once, not once a repetition.
    const bool new_error = run.error_occurred && run.repetition_index <= 0;
    if (aggregate ? run.aggregate_name == "median" : run.repetitions <= 1 || new_error) shown_.push_back(run);
    if (aggregate || run.error_occurred) continue;
    std::string name = run.run_name.function_name;
    if (!run.run_name.args.empty()) name += "/" + run.run_name.args;
    if (!run.run_name.threads.empty()) name += "/" + run.run_name.threads;
    Samples& samples = samples_[name];
    const double unit = 1e9 / benchmark::GetTimeUnitMultiplier(run.time_unit);
    samples.cpu_ns.push_back(run.GetAdjustedCPUTime() * unit);
    samples.real_ns.push_back(run.GetAdjustedRealTime() * unit);
    for (const auto& [counter, value] : run.counters) samples.counters[counter].push_back(value.value);
  }
}

void Measured::Finalize() {
  std::stable_sort(shown_.begin(), shown_.end(), [](const Run& a, const Run& b) {
    return std::pair(a.family_index, a.per_family_instance_index) <
           std::pair(b.family_index, b.per_family_instance_index);
  });
  for (const Run& run : shown_) display_->ReportRuns({run});
  display_->Finalize();
}

std::optional<double> Measured::cpu_ns(std::string_view benchmark) const {
  const auto found = samples_.find(benchmark);
  return found == samples_.end() ? std::nullopt : median_of(found->second.cpu_ns);
}

std::optional<double> Measured::real_ns(std::string_view benchmark) const {
  const auto found = samples_.find(benchmark);
  return found == samples_.end() ? std::nullopt : median_of(found->second.real_ns);
}

std::optional<double> Measured::counter(std::string_view benchmark, std::string_view name) const {
  const auto found = samples_.find(benchmark);
  if (found == samples_.end()) return {};
  const auto counter = found->second.counters.find(name);
  return counter == found->second.counters.end() ? std::nullopt : median_of(counter->second);
}

void Figures::section(std::string title) { section_ = std::move(title); }

void Figures::add(std::string name, std::string text, std::optional<double> value, std::string unit,
                  std::optional<Target> target) {
  lines_.push_back({section_, std::move(name), std::move(text), value, std::move(unit), target});
}

std::string Figures::table() const {
  std::string table;
  std::string_view section;
  std::size_t reached = 0;
  std::size_t missed = 0;
  for (const Line& line : lines_) {
    const bool any = std::any_of(lines_.begin(), lines_.end(), [&line](const Line& other) {
      return other.section == line.section && other.value.has_value();
    });
    if (!any) continue;
    if (line.section != section) table += fmt::format("\n{}\n", line.section);
    section = line.section;
    table += fmt::format("  {:<62} {:>14}", line.text, shown(line.value, line.unit));
    if (line.target) {
      table += fmt::format("   target {:>2} {:<6g}", sign(line.target->kind), line.target->limit);
      if (line.value) {
        const bool good = met(*line.value, *line.target);
        ++(good ? reached : missed);
        table += good ? " met" : " NOT MET";
      }
    }
    table += '\n';
  }
  return table + fmt::format("\n{} of {} targets met\n", reached, reached + missed);
}

std::string Figures::json() const {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const Line& line : lines_)
    if (line.value) object[line.name] = *line.value;
  return object.dump(2);
}

std::optional<double> ratio(std::optional<double> a, std::optional<double> b) {
  if (!a || !b || *b == 0) return {};
  return *a / *b;
}

std::optional<double> difference(std::optional<double> a, std::optional<double> b) {
  if (!a || !b) return {};
  return *a - *b;
}

void Progress::expect(const Runs& runs) {
  Counted& all = counted();
  const std::lock_guard lock(all.mutex);
  (runs.repetitions > 0 ? all.own_runs : all.cases) += runs.instances * std::max(runs.repetitions, 1);
}

void Progress::note(const std::string& name, const benchmark::State& state) {
  if (state.thread_index() != 0) return;
  Counted& all = counted();
  const std::lock_guard lock(all.mutex);
  // Before its first run a case is tried with ever more iterations; a further run has as many as the one before.
  const auto iterations = static_cast<std::int64_t>(state.max_iterations);
  const std::string instance = fmt::format("{}/{}", name, state.threads());
  const auto [known, is_first] = all.iterations.try_emplace(instance, iterations);
  if (is_first || known->second == iterations) ++all.done;
  known->second = iterations;
  const auto now = std::chrono::steady_clock::now();
  const bool terminal = isatty(STDERR_FILENO) != 0;
  if (now - all.last < std::chrono::seconds(terminal ? 1 : 5)) return;
  all.last = now;
  const std::string total = all.filtered ? "" : fmt::format(" of {}", all.own_runs + all.cases * all.repetitions);
  const std::string threads = state.threads() > 1 ? fmt::format(", {} threads", state.threads()) : "";
  const std::string line = fmt::format("{}: run {}{}: {}{}", all.program, all.done, total, name, threads);
  fmt::print(stderr, "{}", terminal ? fmt::format("\r{:<100.100}\r", line) : line + "\n");
}

CommandLine::CommandLine(int argc, char** argv, int repetitions, double min_time, int long_repetitions) {
  const auto asks_for_long = [](const char* argument) { return argument == long_flag; };
  is_long_ = std::any_of(argv + 1, argv + argc, asks_for_long);
  Counted& all = counted();
  all.program = std::string_view(argv[0]).substr(std::string_view(argv[0]).rfind('/') + 1);
  all.repetitions = is_long_ && long_repetitions > 0 ? long_repetitions : repetitions;
  std::string default_repetitions = fmt::format("{}{}", repetitions_flag, all.repetitions);
  std::string min_time_flag = fmt::format("--benchmark_min_time={}", min_time);
  std::string interleaving_flag = "--benchmark_enable_random_interleaving=true";
  // Before the caller's own flags, which then have the last word.
  std::vector<char*> arguments = {argv[0], default_repetitions.data(), min_time_flag.data(),
                                  interleaving_flag.data()};
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with(json_flag)) {
      json_file_ = argument.substr(json_flag.size());
    } else if (argument != long_flag) {
      arguments.push_back(argv[i]);
    }
    if (argument.starts_with(filter_flag)) all.filtered = true;
    if (argument.starts_with(repetitions_flag))
      all.repetitions = std::max(std::atoi(argv[i] + repetitions_flag.size()), 1);
    if (argument.starts_with(format_flag)) output_for_programs_ = argument.substr(format_flag.size()) != "console";
  }
  int count = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) std::exit(2);
}

int CommandLine::run(const std::function<void(const Measured&, Figures&)>& conclude) {
  Measured measured;
  benchmark::RunSpecifiedBenchmarks(&measured);
  benchmark::Shutdown();
  // What they hold, devices among it, is not to end when drivers have: as the process does.
  benchmark::ClearRegisteredBenchmarks();
  // Nothing ran: the flags asked for a list, or for nothing there is.
  if (measured.empty()) return 0;
  Figures figures;
  conclude(measured, figures);
  fmt::print(output_for_programs_ ? stderr : stdout, "{}", figures.table());
  if (json_file_.empty()) return 0;
  std::ofstream file(json_file_);
  file << figures.json() << '\n';
  file.close();
  if (file) return 0;
  fmt::print(stderr, "cannot write {}\n", json_file_);
  return 1;
}

int guarded(int (*run)(int, char**), int argc, char** argv) noexcept {
  try {
    return run(argc, argv);
  } catch (const std::exception& failure) {
    std::fputs(failure.what(), stderr);
    std::fputs("\n", stderr);
    return 1;
  }
}

}  // namespace kiln::bench
