#include "help.hpp"

#include <sstream>

#include "terminal.hpp"

namespace kiln::cli {
namespace {

constexpr std::size_t columns = 80;
constexpr std::size_t names_width = 28;

/// The words of a text in lines of at most `width` columns.
std::string fill(const std::string& text, std::size_t width) {
  std::istringstream words(text);
  std::string filled;
  std::size_t used = 0;
  for (std::string word; words >> word; used += display_width(word)) {
    if (used > 0 && used + 1 + display_width(word) > width) {
      filled += '\n';
      used = 0;
    } else if (used > 0) {
      filled += ' ';
      ++used;
    }
    filled += word;
  }
  return filled;
}

}  // namespace

HelpFormatter::HelpFormatter() { column_width(names_width); }

std::string HelpFormatter::make_option_desc(const CLI::Option* option) const {
  return fill(option->get_description(), columns - names_width);
}

std::string HelpFormatter::make_subcommand(const CLI::App* command) const {
  std::ostringstream line;
  CLI::detail::format_help(line, command->get_name(), fill(command->get_description(), columns - names_width),
                           names_width);
  return line.str();
}

std::string HelpFormatter::make_description(const CLI::App* command) const {
  return fill(command->get_description(), columns) + "\n";
}

std::string HelpFormatter::make_footer(const CLI::App* command) const {
  std::istringstream lines(command->get_footer());
  std::string footer;
  std::string paragraph;
  const auto end_paragraph = [&] {
    if (!paragraph.empty()) footer += fill(paragraph, columns) + "\n";
    paragraph.clear();
  };
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && line[0] != ' ') {
      paragraph += line + " ";
      continue;
    }
    end_paragraph();
    footer += line + "\n";
  }
  end_paragraph();
  return footer;
}

}  // namespace kiln::cli
