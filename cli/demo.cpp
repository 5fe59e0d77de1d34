#include "demo.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "demo/child.hpp"
#include "demo/display.hpp"
#include "demo/process.hpp"
#include "quantity.hpp"

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;
using namespace demo;

/// A new folder that is gone, with all in it, after destruction.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "kiln-demo-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr)
      throw Failure(Error(ErrorCode::io, fmt::format("cannot make a folder like {}", pattern)));
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const fs::path& path() const noexcept { return path_; }

 private:
  fs::path path_;
};

struct Options {
  unsigned runs = 3;
  std::optional<int> child = {};
};

std::chrono::nanoseconds duration(double ms) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double, std::milli>(ms));
}

/// Runs all processes, one after the other.
Runs run_processes(const Context& context, unsigned warm_runs) {
  const Interruption interruption;
  const TemporaryFolder scratch;
  const fs::path directory =
      context.directory_option.empty() ? scratch.path() / "cache" : fs::path(context.directory_option);

  Runs runs{.planned = std::size_t{warm_runs} + 1};
  Terminal terminal = context.terminal();
  // A log would run across a table that is redrawn in place.
  if (context.verbose || std::getenv("KILN_LOG") != nullptr) terminal.out = false;
  Display display(terminal);
  for (std::size_t i = 0; i < runs.planned; ++i) {
    // A driver's own cache would let a cold process find what an earlier one compiled. Mesa's is not turned off but
    // moved: without it, Mesa gives no binaries out. PoCL's is both: what it does not keep it still writes.
    const TemporaryFolder driver_cache;
    ProcessOptions options{.title = i == 0 ? "the cold process" : "a warm process",
                           .arguments = {"demo", "--dir=" + directory.string()},
                           .environment = {{"MESA_SHADER_CACHE_DIR", driver_cache.path().string()},
                                           {"__GL_SHADER_DISK_CACHE", "0"},
                                           {"POCL_CACHE_DIR", driver_cache.path().string()},
                                           {"POCL_KERNEL_CACHE", "0"},
                                           {"CUDA_CACHE_DISABLE", "1"},
                                           // What a process that is killed leaves behind goes with the folder.
                                           {"TMPDIR", driver_cache.path().string()}}};
    if (!context.device.empty()) options.arguments.push_back("--device=" + context.device);
    if (context.verbose) options.arguments.push_back("--verbose");

    runs.processes.emplace_back();
    run_process(options, interruption, [&](const ProcessReport& report) {
      runs.processes.back() = report;
      if (!context.json) display.update(runs);
    });
  }
  if (!context.json) display.finish(runs);
  return runs;
}

std::uint64_t most_warm_compiles(const Runs& runs) {
  std::uint64_t most = 0;
  for (const ProcessReport& process : runs.warm()) most = std::max(most, process.compiles);
  return most;
}

/// To a tenth of a microsecond: the digits after it are noise.
double rounded(double ms) { return std::round(ms * 1e4) / 1e4; }

Json json_of(const Runs& runs) {
  const ProcessReport& cold = runs.cold();
  std::size_t failed = 0;
  Json programs = Json::array();
  for (std::size_t i = 0; i < cold.names.size(); ++i) {
    const auto has_problem = [i](const ProcessReport& process) { return !process.programs[i].problem.empty(); };
    const bool ok = std::none_of(runs.processes.begin(), runs.processes.end(), has_problem);
    if (!ok) ++failed;
    programs.push_back(
        {{"name", cold.names[i]},
         {"cold", {{"origin", cold.programs[i].origin}, {"get_ms", rounded(cold.programs[i].get_ms)}}},
         {"warm", {{"origin", runs.warm().back().programs[i].origin}, {"get_ms", rounded(runs.warm_get_ms(i))}}},
         {"ok", ok}});
  }
  return {{"device", cold.device},
          {"programs", cold.names.size()},
          {"cold", {{"compiles", cold.compiles}, {"get_ms", rounded(cold.get_ms())}}},
          {"warm", {{"compiles", most_warm_compiles(runs)}, {"get_ms", rounded(runs.warm_get_ms())}}},
          {"ratio", rounded(cold.get_ms() / runs.warm_get_ms())},
          {"saved_ms", rounded(runs.warm().back().saved_ms)},
          {"runs", runs.warm().size()},
          {"driver", cold.driver},
          {"binaries", cold.binaries},
          {"checked", cold.names.size() - failed},
          {"failed", failed},
          {"per_program", programs}};
}

/// What the runs come to, in two lines.
std::string summary_of(const Runs& runs, const Terminal& terminal) {
  const ProcessReport& cold = runs.cold();
  const std::string programs = human_count(cold.names.size(), "program");
  if (!cold.binaries)
    return fmt::format(
        "{}, all compiled again: this driver gives no program binaries out, so nothing can be kept.\n", programs);
  const ProcessReport& last = runs.warm().back();
  const std::uint64_t compiles = most_warm_compiles(runs);
  const std::string headline = fmt::format("{}, {} compiled, {} of compiling saved", programs, compiles,
                                           human_duration(duration(last.saved_ms)));
  const std::string of_what =
      runs.warm().size() == 1 ? "" : fmt::format(" (median of {} processes)", runs.warm().size());
  const bool comparable = compiles == 0 && cold.compiles == cold.names.size();
  const std::string faster =
      !comparable ? "" : fmt::format(": {:.0f} times faster", cold.get_ms() / runs.warm_get_ms());
  return fmt::format("{}\ncold {:.1f} ms, warm {:.2f} ms{}{}\n",
                     paint(headline, compiles == 0 ? Ink::good : Ink::bad, terminal.colors), cold.get_ms(),
                     runs.warm_get_ms(), of_what, faster);
}

/// Tells what went wrong, if anything did, and whether it did.
bool complain_of(const Runs& runs) {
  std::set<std::string> warnings;
  for (const ProcessReport& process : runs.processes)
    warnings.insert(process.warnings.begin(), process.warnings.end());
  // That nothing can be kept was said already.
  if (!runs.cold().binaries) warnings.clear();
  for (const std::string& warning : warnings) complain(printable(warning));

  bool wrong = false;
  for (const ProcessReport& process : runs.processes)
    for (const ProgramReport& program : process.programs) {
      if (program.problem.empty()) continue;
      wrong = true;
      complain(
          fmt::format("{}, {}: {}", program.name, &process == &runs.cold() ? "cold" : "warm", program.problem));
    }
  if (const std::uint64_t compiles = most_warm_compiles(runs); runs.cold().binaries && compiles != 0) {
    wrong = true;
    complain(fmt::format("a warm process compiled {} again that should have been on disk",
                         human_count(compiles, "program")));
  }
  return wrong;
}

void run(Context& context, const Options& options) {
  const Runs runs = run_processes(context, options.runs);
  if (context.json)
    print_json(json_of(runs));
  else
    print(summary_of(runs, context.terminal()));
  const bool wrong = complain_of(runs);
  context.status = wrong ? exit_status::failed : exit_status::ok;
  if (wrong) return;
  if (runs.cold().compiles < runs.cold().names.size())
    remark(context, "The directory held programs of the demo before, so the first process was not cold.");
  if (!context.directory_option.empty() && runs.cold().binaries)
    remark(context,
           fmt::format("The programs are kept; see them with: kiln ls --dir {}", context.directory_option));
}

}  // namespace

void add_demo(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("demo", "Show what the cache does: real programs, cold and warm, checked");
  const auto options = std::make_shared<Options>();
  context.add_device_option(*command);
  command->add_option("--runs", options->runs, "How many processes run warm after the cold one")
      ->check(CLI::Range(1, 100))
      ->capture_default_str()
      ->type_name("N");
  // What this command starts itself with, for every process.
  command->add_option("--child", options->child)->group("");
  command->footer(
      "Gets compute kernels in a fresh process with an empty cache, which compiles them, then in further fresh\n"
      "processes, which find them on disk. Every program runs, and its result is compared with the CPU's. The\n"
      "cache is a temporary one unless --dir names a directory to keep.\n"
      "Exits with 1 where a result is wrong or a warm process had to compile.\n\n"
      "Examples:\n"
      "  kiln demo\n"
      "  kiln demo --device opencl\n"
      "  kiln demo --dir ./demo_cache && kiln ls --dir ./demo_cache\n"
      "  kiln demo --json --runs 5");
  command->callback([&context, options] {
    try {
      if (options->child)
        context.status = run_child(context, *options->child);
      else
        run(context, *options);
    } catch (const Interrupted& interrupted) {
      // As the signal would have ended this process, had it not had folders to remove first.
      ::signal(interrupted.signal, SIG_DFL);
      ::raise(interrupted.signal);
    }
  });
}

}  // namespace kiln::cli
