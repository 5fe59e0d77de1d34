#include "key/directives.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "key/source_scanner.hpp"

namespace kiln::key {
namespace {

constexpr bool is_blank(char c) noexcept { return c == ' ' || c == '\t' || c == '\v' || c == '\f' || c == '\r'; }

/// The length of a line continuation at `at`: a backslash, blanks (clang and gcc allow them) and a newline; 0 if
/// there is none.
std::size_t continuation(std::string_view text, std::size_t at) noexcept {
  if (at >= text.size() || text[at] != '\\') return 0;
  std::size_t end = at + 1;
  while (end < text.size() && is_blank(text[end])) ++end;
  return end < text.size() && text[end] == '\n' ? end + 1 - at : 0;
}

/// Skips blanks, line continuations and comments; stops at the end of the line.
std::size_t skip_blanks(std::string_view text, std::size_t at) noexcept {
  for (;;) {
    if (at < text.size() && is_blank(text[at])) {
      ++at;
    } else if (const std::size_t length = continuation(text, at)) {
      at += length;
    } else if (text.substr(std::min(at, text.size())).starts_with("/*")) {
      at = std::min(text.find("*/", at + 2), text.size() - 2) + 2;
    } else {
      return at;
    }
  }
}

/// The identifier at `at`, which moves behind it; empty if there is none.
std::string_view read_word(std::string_view text, std::size_t& at) noexcept {
  const std::size_t begin = at;
  while (at < text.size() && is_word(text[at])) ++at;
  return text.substr(begin, at - begin);
}

/// The rest of a directive's line: line continuations removed, each comment replaced by a space.
std::string rest_of_line(std::string_view text, std::size_t at) {
  std::string line;
  char quote = 0;
  while (at < text.size() && text[at] != '\n') {
    if (const std::size_t length = continuation(text, at)) {
      at += length;
    } else if (quote == 0 && text.substr(at).starts_with("//")) {
      break;
    } else if (quote == 0 && text.substr(at).starts_with("/*")) {
      at = std::min(text.find("*/", at + 2), text.size() - 2) + 2;
      line += ' ';
    } else {
      const char c = text[at];
      if (quote != 0 && c == '\\' && at + 1 < text.size() && text[at + 1] != '\n') {
        line += c;
        line += text[at + 1];
        at += 2;
        continue;
      }
      if (c == quote)
        quote = 0;
      else if (quote == 0 && (c == '"' || c == '\''))
        quote = c;
      line += c;
      ++at;
    }
  }
  while (!line.empty() && is_blank(line.back())) line.pop_back();
  return line;
}

/// The rest of a directive's line as it is written, with continued lines; to the end of the text if the line has a
/// comment that may span lines.
std::string_view raw_line(std::string_view text, std::size_t at) noexcept {
  std::size_t end = std::min(text.find('\n', at), text.size());
  while (end < text.size()) {
    std::size_t before = end;
    while (before > at && is_blank(text[before - 1])) --before;
    if (before == at || text[before - 1] != '\\') break;
    end = std::min(text.find('\n', end + 1), text.size());
  }
  const std::string_view line = text.substr(at, end - at);
  const std::size_t comment = line.rfind("/*");
  const bool is_open = comment != std::string_view::npos && line.find("*/", comment + 2) == std::string_view::npos;
  return is_open ? text.substr(at) : line;
}

/// Whether a line continuation is inside a word.
bool splits_word(std::string_view text) {
  for (std::size_t at = text.find('\\'); at != std::string_view::npos; at = text.find('\\', at + 1)) {
    const std::size_t end = at + continuation(text, at);
    if (end > at && at > 0 && is_word(text[at - 1]) && end < text.size() && is_word(text[end])) return true;
  }
  return false;
}

/// The text as the first phases of a compiler leave it, if that could change which directives are found: digraphs
/// and trigraphs for '#' and '\', and line continuations inside a word.
std::optional<std::string> normalised(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 3> spellings = {
      {{"?\?=", "#"}, {"?\?/", "\\"}, {"%:", "#"}}};
  const auto is_in = [&](const auto& spelling) { return text.find(spelling.first) != std::string_view::npos; };
  if (std::ranges::none_of(spellings, is_in) && !splits_word(text)) return std::nullopt;
  std::string result(text);
  for (const auto& [from, to] : spellings)
    for (std::size_t at = result.find(from); at != std::string::npos; at = result.find(from, at + to.size()))
      result.replace(at, from.size(), to);
  if (!splits_word(result)) return result;
  std::string joined;
  for (std::size_t at = 0; at < result.size();) {
    const std::size_t length = continuation(result, at);
    if (length == 0) joined += result[at];
    at += std::max<std::size_t>(length, 1);
  }
  return joined;
}

/// Whether a macro of this name may wrap __has_include.
bool may_test_existence(std::string_view callee) {
  static constexpr std::array<std::string_view, 6> words = {"include", "INCLUDE", "embed",
                                                            "EMBED",   "header",  "HEADER"};
  return std::ranges::any_of(words, [&](std::string_view word) { return callee.find(word) != callee.npos; });
}

class Finder {
 public:
  Directives run(std::string_view text) {
    for (std::size_t at = text.find('#'); at != std::string_view::npos; at = text.find('#', at))
      directive(text, ++at);
    for (std::size_t at = text.find("__has_"); at != std::string_view::npos; at = text.find("__has_", at)) {
      const std::string_view name = read_word(text, at);
      if (name.starts_with("__has_include") || name.starts_with("__has_embed")) operand_in_parentheses(text, at);
    }
    return std::move(found_);
  }

 private:
  void directive(std::string_view text, std::size_t& at) {
    std::size_t end = skip_blanks(text, at);
    const std::string_view name = read_word(text, end);
    if (name == "include" || name == "import" || name == "embed") {
      at = end;
      operand(LookupKind::include, text, end);
    } else if (name == "include_next") {
      at = end;
      operand(LookupKind::include_next, text, end);
    } else if (name == "if" || name == "elif" || name == "define") {
      at = end;
      const std::string_view line = raw_line(text, end);
      const bool is_condition = name != "define";
      const bool names_a_file = is_condition && line.find_first_of("<\"") != std::string_view::npos;
      if (names_a_file || may_test_existence(line)) existence_tests(rest_of_line(text, end), is_condition);
    }
  }

  void operand(LookupKind kind, std::string_view text, std::size_t at) {
    at = skip_blanks(text, at);
    HeaderName named;
    if (read_header_name(text.substr(std::min(at, text.size())), named))
      return add({kind, named.quoted, named.name});
    std::string operand = rest_of_line(text, at);
    if (!operand.empty() && operand[0] != '"' && operand[0] != '<') add(ComputedLookup{kind, std::move(operand)});
  }

  /// The operand of __has_include and its variants. They are found in any line, since a macro may contain them.
  void operand_in_parentheses(std::string_view text, std::size_t at) {
    at = skip_blanks(text, at);
    if (at >= text.size() || text[at] != '(') return;
    at = skip_blanks(text, at + 1);
    HeaderName named;
    if (read_header_name(text.substr(std::min(at, text.size())), named))
      return add({LookupKind::exists, named.quoted, named.name});
    std::string rest = rest_of_line(text, at);
    rest.resize(std::min(rest.find(')'), rest.size()));
    if (!rest.empty() && is_word(rest[0])) add(ComputedLookup{LookupKind::exists, std::move(rest)});
  }

  /// Calls of macros that may wrap __has_include, as in `#if HAS_INCLUDE(<vector>)`.
  void existence_tests(const std::string& line, bool is_condition) {
    for (std::size_t at = line.find('('); at != std::string::npos; at = line.find('(', at + 1)) {
      std::size_t begin = at;
      while (begin > 0 && is_blank(line[begin - 1])) --begin;
      const std::size_t end = begin;
      while (begin > 0 && is_word(line[begin - 1])) --begin;
      const std::string_view callee = std::string_view(line).substr(begin, end - begin);
      const bool wraps = may_test_existence(callee);
      if (callee.empty() || callee == "defined" || (!is_condition && !wraps)) continue;
      const std::string_view argument = std::string_view(line).substr(skip_blanks(line, at + 1));
      HeaderName named;
      if (read_header_name(argument, named)) {
        add({LookupKind::exists, named.quoted, named.name});
      } else if (wraps && !argument.empty() && is_word(argument[0])) {
        add(ComputedLookup{LookupKind::exists, std::string(argument.substr(0, argument.find(')')))});
      }
    }
  }

  void add(Lookup lookup) {
    if (known_.insert(lookup).second) found_.lookups.push_back(std::move(lookup));
  }
  void add(ComputedLookup lookup) {
    if (known_computed_.insert(lookup).second) found_.computed.push_back(std::move(lookup));
  }

  Directives found_;
  std::set<Lookup> known_;
  std::set<ComputedLookup> known_computed_;
};

Definition definition_at(std::string_view text, std::size_t at) {
  Definition definition;
  at = skip_blanks(text, at);
  definition.name = read_word(text, at);
  std::string rest = rest_of_line(text, at);
  if (rest.starts_with('(')) {
    const std::size_t close = std::min(rest.find(')'), rest.size());
    definition.takes_arguments = true;
    for (std::size_t begin = 1; begin < close;) {
      std::size_t end = skip_blanks(rest, begin);
      const std::string_view parameter = read_word(rest, end);
      const std::size_t comma = std::min(rest.find(',', begin), close);
      if (std::string_view(rest).substr(begin, comma - begin).find("...") != std::string_view::npos) {
        definition.is_variadic = true;
        definition.parameters.emplace_back(parameter.empty() ? "__VA_ARGS__" : parameter);
      } else if (!parameter.empty()) {
        definition.parameters.emplace_back(parameter);
      }
      begin = comma + 1;
    }
    rest.erase(0, std::min(close + 1, rest.size()));
  }
  rest.erase(0, std::min(skip_blanks(rest, 0), rest.size()));
  definition.body = std::move(rest);
  return definition;
}

}  // namespace

bool read_header_name(std::string_view text, HeaderName& found) {
  std::size_t at = skip_blanks(text, 0);
  if (at >= text.size() || (text[at] != '"' && text[at] != '<')) return false;
  const bool quoted = text[at] == '"';
  const char close = quoted ? '"' : '>';
  std::string name;
  for (++at; at < text.size() && text[at] != '\n' && text[at] != close;) {
    const std::size_t length = continuation(text, at);
    if (length == 0) name += text[at];
    at += std::max<std::size_t>(length, 1);
  }
  if (at >= text.size() || text[at] != close || name.empty()) return false;
  found = {std::move(name), quoted};
  return true;
}

Directives find_directives(std::string_view text) {
  const auto other = normalised(text);
  return Finder().run(other ? *other : text);
}

std::vector<Definition> find_definitions(std::string_view text) {
  const auto other = normalised(text);
  if (other) text = *other;
  std::vector<Definition> definitions;
  for (std::size_t at = text.find('#'); at != std::string_view::npos; at = text.find('#', at + 1)) {
    std::size_t end = skip_blanks(text, at + 1);
    if (read_word(text, end) == "define") definitions.push_back(definition_at(text, end));
    if (!definitions.empty() && definitions.back().name.empty()) definitions.pop_back();
  }
  return definitions;
}

}  // namespace kiln::key
