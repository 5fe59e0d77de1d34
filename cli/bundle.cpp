#include "commands.hpp"

namespace kiln::cli {

void add_bundle(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("bundle", "Copy bundles of programs that were compiled ahead of time");
  command->require_subcommand(1);
  add_bundle_push(*command, context);
  add_bundle_pull(*command, context);
  for (auto* part : command->get_subcommands([](CLI::App*) { return true; })) context.add_common_options(*part);
}

}  // namespace kiln::cli
