#include <cerrno>
#include <cstdio>
#include <new>
#include <sstream>
#include <stdexcept>

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "commands.hpp"

namespace kiln::cli {
namespace {

void add_subcommands(CLI::App& app, Context& context) {
  struct Group {
    const char* title;
    std::vector<void (*)(CLI::App&, Context&)> commands;
  };
  const std::vector<Group> groups = {
      {"Inspect the cache", {add_ls, add_show, add_stats, add_why}},
      {"Maintain the cache", {add_compile, add_verify, add_warm, add_prune, add_clear}},
      {"Share programs", {add_record, add_bake, add_bundle, add_push, add_pull, add_key, add_sign}},
      {"Devices and kernels", {add_devices, add_tune, add_emit}},
      {"Other commands", {add_config, add_demo, add_completions}}};
  const auto any = [](CLI::App*) { return true; };
  for (const auto& [title, commands] : groups)
    for (const auto add : commands) {
      add(app, context);
      app.get_subcommands(any).back()->group(title);
    }
  // Each subcommand has the common options too, so that they are accepted after it and listed in its help.
  for (auto* command : app.get_subcommands(any))
    if (command->get_option_no_throw("--json") == nullptr) context.add_common_options(*command);
}

/// Names the help page of the chosen subcommand.
std::string advice(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return fmt::format("see `kiln {}--help`", chosen.empty() ? "" : chosen.front()->get_name() + " ");
}

int usage_error(const CLI::App& app, std::string_view message) {
  complain(fmt::format("{}; {}", message, advice(app)));
  return exit_status::usage;
}

/// Opens /dev/null for each closed standard stream. Otherwise a file that a driver opens would get the number of
/// the stream, and output would go into that file.
void open_missing_streams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream)
    if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF) static_cast<void>(::open("/dev/null", O_RDWR));
}

/// Accepts --device before the subcommand if the subcommand has this option. `kiln --help` does not list it,
/// because most subcommands do not have it.
void add_early_device_option(CLI::App& app, Context& context) {
  const auto set = [&app, &context](const std::string& name) {
    const auto chosen = app.get_subcommands();
    if (!chosen.empty() && chosen.front()->get_option_no_throw("--device") == nullptr)
      throw UsageError(fmt::format("the command {} has no option --device", chosen.front()->get_name()));
    context.device = name;
  };
  app.add_option_function<std::string>("--device", set)->group("");
}

/// Runs the subcommand. The help and the version go through print() too, so that a write error is reported.
void parse_and_run(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& wanted) {
    std::ostringstream text;
    app.exit(wanted, text, text);
    print(text.str());
  }
  finish_output();
}

int run(int argc, char** argv) {
  CLI::App app("Manage the cache of GPU programs that applications compile with the Kiln library.", "kiln");
  Context context;
  app.set_version_flag("--version", "kiln " KILN_VERSION, "Print the version and exit");
  app.formatter(help_formatter());
  app.require_subcommand(1);
  context.add_common_options(app);
  add_early_device_option(app, context);
  add_subcommands(app, context);
  app.footer(
      "`kiln COMMAND --help` describes a command and its options.\n\n"
      "The default cache directory is $KILN_CACHE_DIR, or $XDG_CACHE_HOME/kiln, or "
      "~/.cache/kiln; `kiln config` shows it.\n\n"
      "Exit status: 0 success, 1 failure or not found, 2 invalid command line, 130 interrupted.\n\n"
      "Examples:\n"
      "  kiln demo                          compile sample programs, then load them\n"
      "  kiln ls --sort size                list the stored programs, largest first\n"
      "  kiln compile *.cl -I include       compile source files and store them\n"
      "  kiln why conv2d.comp -D TILE=16    explain a hit or a miss of this program\n"
      "  kiln prune --max-age 30d           remove programs unused for 30 days");
  try {
    if (argc <= 1) {
      fmt::print(stderr, "{}", app.help());
      return exit_status::usage;
    }
    parse_and_run(app, argc, argv);
    return context.status;
  } catch (const CLI::ParseError& error) {
    if (const auto words = app.remaining(); app.get_subcommands().empty() && !words.empty())
      return usage_error(app, fmt::format("unknown command or option \"{}\"", printable(words.front())));
    return usage_error(app, error.what());
  } catch (const UsageError& error) {
    return usage_error(app, error.what());
  } catch (const Failure& failure) {
    complain(failure.what());
  } catch (const std::bad_alloc&) {
    complain("out of memory");
  } catch (const std::length_error&) {
    complain("out of memory");
  } catch (const std::exception& error) {
    complain(error.what());
  }
  return exit_status::failed;
}

}  // namespace
}  // namespace kiln::cli

int main(int argc, char** argv) {
  kiln::cli::open_missing_streams();
  try {
    return kiln::cli::run(argc, argv);
  } catch (...) {
    // Writing to standard error failed too.
    return kiln::cli::exit_status::failed;
  }
}
