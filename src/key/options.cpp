#include "key/options.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "key/source_scanner.hpp"

namespace kiln::key {
namespace {

/// What an option with a value does. The folders are listed in the order in which compilers search them.
enum class Meaning { define, undefine, folder, system_folder, last_folder };

/// An option with a value, as in "-Iname", "--include-path=name", or "-I" and "name".
struct OptionName {
  std::string_view text;
  Meaning meaning;
};

constexpr std::array moved_options = {
    OptionName{"--include-path", Meaning::folder},
    OptionName{"--include-directory", Meaning::folder},
    OptionName{"--include-directory-after", Meaning::last_folder},
    OptionName{"--define-macro", Meaning::define},
    OptionName{"--undefine-macro", Meaning::undefine},
    OptionName{"-isystem-after", Meaning::last_folder},
    OptionName{"-isystem", Meaning::system_folder},
    OptionName{"-iquote", Meaning::folder},
    OptionName{"-idirafter", Meaning::last_folder},
    OptionName{"-I", Meaning::folder},
    OptionName{"-D", Meaning::define},
    OptionName{"-U", Meaning::undefine},
};

/// The option with which a word begins; null if there is none. A value follows "--name" after '='.
const OptionName* moved_option(std::string_view word) {
  const auto* found = std::ranges::find_if(moved_options, [&](const OptionName& option) {
    const bool is_long = option.text.starts_with("--");
    return word == option.text || (word.starts_with(option.text) && (!is_long || word[option.text.size()] == '='));
  });
  return found != moved_options.end() ? found : nullptr;
}

/// Whether the option hands the next one to a part of the compiler.
bool hands_on(std::string_view option) { return option == "-Xclang" || option == "-Xpreprocessor"; }

bool is_quote(char c) { return c == '"' || c == '\''; }

/// The words of an OpenCL option string, as clBuildProgram takes it. Quotes stay: the driver reads them too.
std::vector<std::string> split_options(const std::vector<std::string>& options) {
  std::vector<std::string> words;
  for (const std::string& text : options) {
    std::string word;
    char quote = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if (c == '\\' && i + 1 < text.size() && is_quote(text[i + 1])) {
        word.append(text, i++, 2);
        continue;
      }
      if (quote == 0 && (c == ' ' || c == '\t' || c == '\n' || c == '\r')) {
        if (!word.empty()) words.push_back(std::exchange(word, {}));
        continue;
      }
      if (c == quote)
        quote = 0;
      else if (quote == 0 && is_quote(c))
        quote = c;
      word += c;
    }
    if (!word.empty()) words.push_back(std::move(word));
  }
  return words;
}

/// A word of an option string without the quotes around it or its parts. A quote behind a backslash stays, as in
/// -DNAME=\"file.h\".
std::string without_quotes(std::string_view word) {
  std::string text;
  char quote = 0;
  for (std::size_t i = 0; i < word.size(); ++i) {
    const char c = word[i];
    if (c == '\\' && i + 1 < word.size() && is_quote(word[i + 1]))
      text += word[++i];
    else if (quote == 0 && is_quote(c))
      quote = c;
    else if (c == quote)
      quote = 0;
    else
      text += c;
  }
  return text;
}

}  // namespace

void move_options(Request::Fields& fields) {
  if (is_glsl(fields.language) || is_compiled(fields.language)) return;
  // OpenCL has one string of options, which Kiln joins from these; other compilers take each as one argument.
  const bool is_string = fields.language == Language::opencl;
  if (is_string) fields.options = split_options(fields.options);
  std::vector<std::string> kept;
  std::array<std::vector<std::filesystem::path>, 3> folders;
  for (std::size_t i = 0; i < fields.options.size(); ++i) {
    const std::string option = is_string ? without_quotes(fields.options[i]) : fields.options[i];
    const OptionName* name = moved_option(option);
    if (name == nullptr) {
      kept.push_back(fields.options[i]);
      if (hands_on(option) && i + 1 < fields.options.size()) kept.push_back(fields.options[++i]);
      continue;
    }
    std::string value = option.substr(name->text.size());
    const bool is_apart = value.empty() && i + 1 < fields.options.size();
    if (is_apart) value = is_string ? without_quotes(fields.options[i + 1]) : fields.options[i + 1];
    if (!is_apart && value.starts_with('=')) value.erase(0, 1);
    const std::size_t equals = value.find('=');
    switch (name->meaning) {
      case Meaning::define:
        fields.defines.insert_or_assign(value.substr(0, equals),
                                        equals == std::string::npos ? "1" : value.substr(equals + 1));
        break;
      case Meaning::undefine:
        // It may also name a macro of the compiler's own, so the compiler gets it too.
        std::erase_if(fields.defines, [&](const auto& define) {
          return define.first == value || define.first.starts_with(value + '(');
        });
        kept.push_back((name->text.starts_with("--") ? fmt::format("{}=", name->text) : "-U") + value);
        break;
      case Meaning::folder: folders[0].emplace_back(value); break;
      case Meaning::system_folder: folders[1].emplace_back(value); break;
      case Meaning::last_folder: folders[2].emplace_back(value); break;
    }
    if (is_apart) ++i;
  }
  for (auto& list : folders) std::ranges::move(list, std::back_inserter(fields.include_folders));
  fields.options = std::move(kept);
}

std::optional<std::string_view> option_that_reads(const Request::Fields& fields) {
  static constexpr std::array<std::string_view, 25> starts = {
      "-include", "--include", "--pre-include", "-imacros", "--imacros", "-use-pch",          "--use-pch",
      "-pch",     "--pch",     "-create-pch",   "-iprefix", "-isysroot", "--create-pch",      "--sysroot",
      "-iwith",   "-ivfs",     "-fmodule",      "-fplugin", "-cxx-isys", "-stdlib++-isystem", "-iframework",
      "-F",       "-Wp,",      "--config",      "@"};
  if (is_glsl(fields.language)) return std::nullopt;
  for (std::size_t i = 0; i < fields.options.size(); ++i) {
    const std::string option = without_quotes(fields.options[i]);
    if (std::ranges::any_of(starts, [&](std::string_view start) { return option.starts_with(start); }))
      return fields.options[i];
    // What an option hands on was not moved to the fields.
    if (i > 0 && hands_on(without_quotes(fields.options[i - 1])) && moved_option(option) != nullptr)
      return fields.options[i];
  }
  return std::nullopt;
}

}  // namespace kiln::key
