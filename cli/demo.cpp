#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "commands.hpp"
#include "demo/display.hpp"
#include "demo/process.hpp"
#include "quantity.hpp"

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;
using namespace demo;

/// A temporary folder. The destructor removes it with its contents.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "kiln-demo-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr)
      throw Failure(Error(ErrorCode::io,
                          fmt::format("cannot create a temporary folder {}: {}; set TMPDIR to a writable folder",
                                      pattern, std::strerror(errno))));
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
  bool preloads = false;
  std::vector<std::string> bundles = {};
  std::optional<int> child = {};
};

std::chrono::nanoseconds duration(double ms) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double, std::milli>(ms));
}

/// Runs the processes one after the other.
Runs run_processes(const Context& context, const Options& settings) {
  const Interruption interruption;
  const TemporaryFolder scratch;
  const fs::path directory =
      context.directory_option.empty() ? scratch.path() / "cache" : fs::path(context.directory_option);

  Runs runs{.planned = std::size_t{settings.runs} + 1};
  Terminal terminal = context.terminal();
  // Log lines would break a table that is redrawn in place.
  if (context.verbose || std::getenv("KILN_LOG") != nullptr) terminal.out = false;
  Display display(terminal);
  for (std::size_t i = 0; i < runs.planned; ++i) {
    // The driver's own cache must be empty, or the cold process would not compile. Mesa's cache is moved but not
    // turned off, because without it Mesa returns no binaries. PoCL's is moved and turned off, because it writes
    // files even if it is off.
    const TemporaryFolder driver_cache;
    ProcessOptions options{.title = i == 0 ? "the cold process" : "a warm process",
                           .arguments = {"demo", "--dir=" + directory.string()},
                           .environment = {{"MESA_SHADER_CACHE_DIR", driver_cache.path().string()},
                                           {"__GL_SHADER_DISK_CACHE", "0"},
                                           {"POCL_CACHE_DIR", driver_cache.path().string()},
                                           {"POCL_KERNEL_CACHE", "0"},
                                           {"CUDA_CACHE_DISABLE", "1"},
                                           // The files of a process that is killed are removed with the folder.
                                           {"TMPDIR", driver_cache.path().string()}}};
    for (const std::string& url : context.shared_option) options.arguments.push_back("--shared=" + url);
    if (!context.device.empty()) options.arguments.push_back("--device=" + context.device);
    if (context.verbose) options.arguments.push_back("--verbose");
    for (const std::string& bundle : settings.bundles) options.arguments.push_back("--bundle=" + bundle);
    if (settings.preloads) options.arguments.push_back("--preload");

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

/// Rounds to a tenth of a microsecond; smaller digits are noise.
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
          {"preloaded", cold.preloads},
          {"driver", cold.driver},
          {"binaries", cold.binaries},
          {"checked", cold.names.size() - failed},
          {"failed", failed},
          {"per_program", programs}};
}

/// The result of the runs, in two lines.
std::string summary_of(const Runs& runs, const Terminal& terminal) {
  const ProcessReport& cold = runs.cold();
  const std::string programs = human_count(cold.names.size(), "program");
  if (!cold.binaries)
    return fmt::format(
        "{}, all compiled again.\nThis driver returns no program binaries, so Kiln cannot store them.\n", programs);
  const ProcessReport& last = runs.warm().back();
  const std::uint64_t compiles = most_warm_compiles(runs);
  const std::string headline = fmt::format("{}, {} compiled, {} of compile time saved", programs, compiles,
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

/// Prints warnings and errors; returns whether there were errors.
bool complain_of(const Runs& runs) {
  std::set<std::string> warnings;
  for (const ProcessReport& process : runs.processes)
    warnings.insert(process.warnings.begin(), process.warnings.end());
  // The summary says already that programs cannot be stored.
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
    complain(fmt::format("a warm process compiled {} again instead of loading from disk",
                         human_count(compiles, "program")));
  }
  return wrong;
}

void run(Context& context, const Options& options) {
  // Fails for an invalid URL before a process is started.
  static_cast<void>(context.stores());
  const Runs runs = run_processes(context, options);
  if (context.json)
    print_json(json_of(runs));
  else
    print(summary_of(runs, context.terminal()));
  const bool wrong = complain_of(runs);
  context.status = wrong ? exit_status::failed : exit_status::ok;
  if (wrong) return;
  if (runs.cold().compiles < runs.cold().names.size())
    remark(
        context,
        "The directory, a bundle or a shared store already held programs of the demo, so the cold process did not "
        "compile all of them.");
  if (!context.directory_option.empty() && runs.cold().binaries)
    remark(context,
           fmt::format("The programs are stored. To list them, run: kiln ls --dir {}", context.directory_option));
}

}  // namespace

void add_demo(CLI::App& app, Context& context) {
  auto* command =
      app.add_subcommand("demo", "Compile sample programs, load them from the cache, and compare the times");
  const auto options = std::make_shared<Options>();
  context.add_device_option(*command);
  command->add_option("--runs", options->runs, "Number of processes that run with a warm cache, 1 to 100 [3]")
      ->check(CLI::Range(1, 100).description(""))
      ->type_name("N");
  command->add_flag("--preload", options->preloads, "Get all programs at once, on all processors");
  command->add_option("--bundle", options->bundles, "Use the programs of this bundle; may be repeated")
      ->type_name("FILE");
  // For the processes that the demo starts: the descriptor that they report to.
  command->add_option("--child", options->child)->group("");
  command->footer(
      "A first process starts with an empty cache (cold) and compiles all programs. The next processes (warm)\n"
      "load them from disk. Each process runs every program and compares its result with a result of the CPU.\n"
      "The cache is temporary unless --dir names a directory. Shared stores and bundles are used only if --shared "
      "or --bundle names them.\n\n"
      "Without --preload, a process gets one program after the other, and their times are added.\n\n"
      "Exits with 1 if a result is wrong, or if a warm process compiles a program.\n\n"
      "Examples:\n"
      "  kiln demo\n"
      "  kiln demo --device opencl\n"
      "  kiln demo --preload\n"
      "  kiln demo --dir ./demo_cache && kiln ls --dir ./demo_cache\n"
      "  kiln demo --json --runs 5");
  command->callback([&context, options] {
    try {
      if (options->child)
        context.status = run_child(context, *options->child, options->preloads, options->bundles);
      else
        run(context, *options);
    } catch (const Interrupted& interrupted) {
      // The temporary folders are removed; now the signal ends this process as usual.
      ::signal(interrupted.signal, SIG_DFL);
      ::raise(interrupted.signal);
    }
  });
}

}  // namespace kiln::cli
