#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <benchmark/benchmark.h>

namespace kiln::bench {

/// The middle of some numbers, the mean of the two where there are two; 0 of none.
double median(std::vector<double> values);

/// Shows one line a benchmark (the median of its repetitions) in the order they were registered, whatever the
/// order they ran in, and keeps what was measured for those who compute with it.
class Measured final : public benchmark::BenchmarkReporter {
 public:
  Measured();

  bool ReportContext(const Context& context) override;
  void ReportRuns(const std::vector<Run>& runs) override;
  void Finalize() override;

  bool empty() const noexcept { return samples_.empty(); }
  /// Medians over the repetitions of a benchmark, in nanoseconds for one iteration; nothing where it did not
  /// run. `benchmark` is the name it was registered under, with its thread count where it has one.
  std::optional<double> cpu_ns(std::string_view benchmark) const;
  std::optional<double> real_ns(std::string_view benchmark) const;
  /// The median of a counter of the benchmark's own, such as that of IterationTimes.
  std::optional<double> counter(std::string_view benchmark, std::string_view name) const;

 private:
  struct Samples {
    std::vector<double> cpu_ns = {};
    std::vector<double> real_ns = {};
    std::map<std::string, std::vector<double>, std::less<>> counters = {};
  };

  std::unique_ptr<benchmark::BenchmarkReporter> display_;
  std::vector<Run> shown_;
  std::map<std::string, Samples, std::less<>> samples_;
};

/// Times iterations one by one. A busy machine interrupts some of them, which a mean would show: the counter
/// `median_us` is the median of one repetition's.
class IterationTimes {
 public:
  using Clock = std::chrono::steady_clock;

  explicit IterationTimes(benchmark::State& state) : state_(state) {}
  ~IterationTimes() { state_.counters["median_us"] = 1e6 * median(std::move(seconds_)); }
  IterationTimes(const IterationTimes&) = delete;
  IterationTimes& operator=(const IterationTimes&) = delete;

  /// Notes the time of this iteration: that since `start`.
  void add_since(Clock::time_point start) { add(std::chrono::duration<double>(Clock::now() - start).count()); }
  void add(double seconds) {
    state_.SetIterationTime(seconds);
    seconds_.push_back(seconds);
  }

 private:
  benchmark::State& state_;
  std::vector<double> seconds_;
};

/// What is asked of a figure.
struct Target {
  enum class Kind { at_most, at_least, below } kind;
  double limit;
};
constexpr Target at_most(double limit) { return {Target::Kind::at_most, limit}; }
constexpr Target at_least(double limit) { return {Target::Kind::at_least, limit}; }
constexpr Target below(double limit) { return {Target::Kind::below, limit}; }

/// The figures a program ends with, and what was asked of them. A figure that could not be measured is shown as
/// such and is not in the JSON object.
class Figures {
 public:
  /// Begins a block of the table.
  void section(std::string title);
  /// `name` is its name in the JSON object, `text` what people read.
  void add(std::string name, std::string text, std::optional<double> value, std::string unit,
           std::optional<Target> target = {});

  /// A table for people: each figure, its target, met or missed. Sections of which nothing was measured are left
  /// out.
  std::string table() const;
  /// One JSON object, name to value.
  std::string json() const;

 private:
  struct Line {
    std::string section;
    std::string name;
    std::string text;
    std::optional<double> value;
    std::string unit;
    std::optional<Target> target;
  };

  std::string section_;
  std::vector<Line> lines_;
};

/// a / b where both are there.
std::optional<double> ratio(std::optional<double> a, std::optional<double> b);
/// a - b where both are there.
std::optional<double> difference(std::optional<double> a, std::optional<double> b);

/// How often a case runs in all: `instances`, such as its thread counts, each repeated as often as the command line
/// says or `repetitions` times.
struct Runs {
  int instances = 1;
  int repetitions = 0;
};

/// Counts the runs of all cases and prints to stderr which one is under way, once a second at most.
class Progress {
 public:
  static void expect(const Runs& runs);
  /// To be called by a case before it measures.
  static void note(const std::string& name, const benchmark::State& state);
};

/// Registers a case that reports its progress.
template <class Function>
benchmark::internal::Benchmark* add_case(const std::string& name, Function function, const Runs& runs = {}) {
  Progress::expect(runs);
  return benchmark::RegisterBenchmark(name.c_str(), [name, function](benchmark::State& state) {
    Progress::note(name, state);
    function(state);
  });
}

/// The command line of a benchmark program: the benchmark library's flags, `--kiln_json=FILE`, which writes
/// the figures as a JSON object, and `--long`, which measures for longer than a minute where that gives more.
/// Unless the flags say otherwise every benchmark is repeated, interleaved with the others, so that what else the
/// machine does is spread over all of them.
class CommandLine {
 public:
  /// `repetitions` and `min_time` are what flags can change; `long_repetitions`, if not 0, are those of `--long`.
  /// Ends the process where a flag is wrong.
  CommandLine(int argc, char** argv, int repetitions, double min_time, int long_repetitions = 0);

  bool is_long() const noexcept { return is_long_; }

  /// Runs what was registered, lets `conclude` compute the figures, prints and writes them. What main returns:
  /// a missed target is no failure.
  int run(const std::function<void(const Measured&, Figures&)>& conclude);

 private:
  std::string json_file_;
  bool is_long_ = false;
  /// Whether standard output is for a program to read, so that the table goes elsewhere.
  bool output_for_programs_ = false;
};

/// Runs what is all of main: an exception becomes a sentence and an exit status.
int guarded(int (*run)(int, char**), int argc, char** argv) noexcept;

}  // namespace kiln::bench
