#pragma once

#include "context.hpp"

/// The subcommands, a file each. Every function adds one to the App; it runs when the command line is parsed.
namespace kiln::cli {

void add_devices(CLI::App& app, Context& context);
void add_emit(CLI::App& app, Context& context);
void add_ls(CLI::App& app, Context& context);
void add_show(CLI::App& app, Context& context);
void add_stats(CLI::App& app, Context& context);
void add_verify(CLI::App& app, Context& context);
void add_warm(CLI::App& app, Context& context);
void add_prune(CLI::App& app, Context& context);
void add_clear(CLI::App& app, Context& context);
void add_tune(CLI::App& app, Context& context);
void add_why(CLI::App& app, Context& context);
void add_completions(CLI::App& app, Context& context);

}  // namespace kiln::cli
