#include "commands.hpp"

namespace kiln::cli {

/// The scripts of the folder completions/. The build generates the definitions from completion_scripts.cpp.in.
std::string_view bash_completion();
std::string_view zsh_completion();
std::string_view fish_completion();

void add_completions(CLI::App& app, Context& context) {
  (void)context;
  auto* command = app.add_subcommand("completions", "Print the completion script for a shell");
  auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->type_name("")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}).description(""));
  command->footer(
      "Examples:\n"
      "  eval \"$(kiln completions bash)\"\n"
      "  kiln completions zsh > ~/.zfunc/_kiln\n"
      "  kiln completions fish > ~/.config/fish/completions/kiln.fish");
  command->callback([shell] {
    print(*shell == "bash" ? bash_completion() : *shell == "zsh" ? zsh_completion() : fish_completion());
  });
}

}  // namespace kiln::cli
