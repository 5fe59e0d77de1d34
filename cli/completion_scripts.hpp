#pragma once

#include <string_view>

namespace kiln::cli {

/// The scripts of the folder completions/, which the build puts into the command.
std::string_view bash_completion();
std::string_view zsh_completion();
std::string_view fish_completion();

}  // namespace kiln::cli
