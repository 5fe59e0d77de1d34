#pragma once

#include "context.hpp"

/// The subcommands, one per file. Each function adds a subcommand to the App; parsing the command line runs it.
namespace kiln::cli {

void add_bake(CLI::App& app, Context& context);
void add_bundle(CLI::App& app, Context& context);
void add_clear(CLI::App& app, Context& context);
void add_compile(CLI::App& app, Context& context);
void add_completions(CLI::App& app, Context& context);
void add_config(CLI::App& app, Context& context);
void add_demo(CLI::App& app, Context& context);
void add_devices(CLI::App& app, Context& context);
void add_emit(CLI::App& app, Context& context);
void add_key(CLI::App& app, Context& context);
void add_ls(CLI::App& app, Context& context);
void add_prune(CLI::App& app, Context& context);
void add_pull(CLI::App& app, Context& context);
void add_push(CLI::App& app, Context& context);
void add_record(CLI::App& app, Context& context);
void add_show(CLI::App& app, Context& context);
void add_sign(CLI::App& app, Context& context);
void add_stats(CLI::App& app, Context& context);
void add_tune(CLI::App& app, Context& context);
void add_verify(CLI::App& app, Context& context);
void add_warm(CLI::App& app, Context& context);
void add_why(CLI::App& app, Context& context);

/// Formats the help of all commands in lines of at most 80 columns.
std::shared_ptr<CLI::FormatterBase> help_formatter();

}  // namespace kiln::cli
