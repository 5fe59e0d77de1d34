#include <cerrno>
#include <cstdio>
#include <new>
#include <sstream>
#include <stdexcept>

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "commands.hpp"
#include "demo.hpp"
#include "help.hpp"

namespace kiln::cli {
namespace {

void add_subcommands(CLI::App& app, Context& context) {
  add_demo(app, context);
  add_devices(app, context);
  add_emit(app, context);
  add_ls(app, context);
  add_show(app, context);
  add_stats(app, context);
  add_why(app, context);
  add_verify(app, context);
  add_warm(app, context);
  add_tune(app, context);
  add_prune(app, context);
  add_clear(app, context);
  add_completions(app, context);
  // Accepted before the subcommand and after it, and listed by the help of each.
  for (auto* command : app.get_subcommands([](CLI::App*) { return true; }))
    if (command->get_option_no_throw("--json") == nullptr) context.add_common_options(*command);
}

/// The subcommand the user was at, for the advice where to read on.
std::string advice(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return fmt::format("see `kiln {}--help`", chosen.empty() ? "" : chosen.front()->get_name() + " ");
}

int usage_error(const CLI::App& app, std::string_view message) {
  complain(fmt::format("{}; {}", message, advice(app)));
  return exit_status::usage;
}

/// Opens /dev/null for each standard stream that is closed: otherwise a file that a driver opens gets its number,
/// and what is printed goes into that file.
void open_missing_streams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream)
    if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF) static_cast<void>(::open("/dev/null", O_RDWR));
}

/// --device before the subcommand, if the subcommand has such an option. Hidden from the global help, since most
/// subcommands do not take it.
void add_early_device_option(CLI::App& app, Context& context) {
  const auto set = [&app, &context](const std::string& name) {
    const auto chosen = app.get_subcommands();
    if (!chosen.empty() && chosen.front()->get_option_no_throw("--device") == nullptr)
      throw UsageError(fmt::format("{} takes no --device", chosen.front()->get_name()));
    context.device = name;
  };
  app.add_option_function<std::string>("--device", set)->group("");
}

/// Runs the subcommand. Help and the version are output like any other, which may fail to be written.
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
  CLI::App app("Kiln keeps compiled GPU programs, so that each is compiled once.", "kiln");
  Context context;
  app.set_version_flag("--version", "kiln " KILN_VERSION, "Print the version and exit");
  app.formatter(std::make_shared<HelpFormatter>());
  app.require_subcommand(1);
  context.add_common_options(app);
  add_early_device_option(app, context);
  add_subcommands(app, context);
  app.footer(
      "The cache directory is $KILN_CACHE_DIR, else $XDG_CACHE_HOME/kiln, else ~/.cache/kiln.\n\n"
      "Exit status: 0 done; 1 failed or not found; 2 usage error.\n\n"
      "Examples:\n"
      "  kiln demo                          see programs compiled once and then loaded\n"
      "  kiln ls --sort size                what is stored, the largest first\n"
      "  kiln why conv2d.comp -D TILE=16    why this program would be found or compiled\n"
      "  kiln prune --max-age 30d           remove what nobody used for a month");
  try {
    if (argc <= 1) {
      fmt::print(stderr, "{}", app.help());
      return exit_status::usage;
    }
    parse_and_run(app, argc, argv);
    return context.status;
  } catch (const CLI::ParseError& error) {
    if (const auto words = app.remaining(); app.get_subcommands().empty() && !words.empty())
      return usage_error(app, fmt::format("there is no command or option \"{}\"", printable(words.front())));
    return usage_error(app, error.what());
  } catch (const UsageError& error) {
    return usage_error(app, error.what());
  } catch (const Failure& failure) {
    complain(failure.what());
  } catch (const std::bad_alloc&) {
    complain("there is not enough memory for that");
  } catch (const std::length_error&) {
    complain("there is not enough memory for that");
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
    // Standard error, too, refused to be written to.
    return kiln::cli::exit_status::failed;
  }
}
