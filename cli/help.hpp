#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace kiln::cli {

/// The help of the command, in lines that fit a terminal of 80 columns.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter();

  std::string make_option_desc(const CLI::Option* option) const override;
  std::string make_subcommand(const CLI::App* command) const override;
  std::string make_description(const CLI::App* command) const override;
  /// Lines that are not indented are filled anew; those that are, such as examples, stay as they are.
  std::string make_footer(const CLI::App* command) const override;
};

}  // namespace kiln::cli
