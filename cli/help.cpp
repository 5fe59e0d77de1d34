#include <sstream>

#include "commands.hpp"

namespace kiln::cli {
namespace {

constexpr std::size_t columns = 80;
constexpr std::size_t names_width = 28;

std::string fill(const std::string& text, std::size_t width) {
  std::string filled;
  for (const std::string& line : wrap(text, width, LongWords::keep)) filled += (filled.empty() ? "" : "\n") + line;
  return filled;
}

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() {
    column_width(names_width);
    label("SUBCOMMAND", "COMMAND");
    label("Positionals", "Arguments");
    label("REQUIRED", "(required)");
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    return fill(option->get_description(), columns - names_width);
  }

  std::string make_subcommand(const CLI::App* command) const override {
    std::ostringstream line;
    CLI::detail::format_help(line, command->get_name(), fill(command->get_description(), columns - names_width),
                             names_width);
    return line.str();
  }

  std::string make_description(const CLI::App* command) const override {
    return fill(command->get_description(), columns) + "\n";
  }

  /// Fills paragraphs; keeps indented lines, such as examples, as they are.
  std::string make_footer(const CLI::App* command) const override {
    std::istringstream lines(command->get_footer());
    std::string footer;
    std::string paragraph;
    const auto end_paragraph = [&] {
      if (!paragraph.empty()) footer += fill(paragraph, columns) + "\n";
      paragraph.clear();
    };
    for (std::string line; std::getline(lines, line);) {
      if (!line.empty() && line[0] != ' ') {
        paragraph += (paragraph.empty() ? "" : " ") + line;
        continue;
      }
      end_paragraph();
      footer += line + "\n";
    }
    end_paragraph();
    return footer;
  }
};

}  // namespace

std::shared_ptr<CLI::FormatterBase> help_formatter() { return std::make_shared<HelpFormatter>(); }

}  // namespace kiln::cli
