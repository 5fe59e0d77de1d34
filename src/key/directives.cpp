#include "key/directives.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "key/source_lines.hpp"

namespace kiln::key {
namespace {

/// The longest name that a file is looked up by. The system refuses names of more than 4096 bytes.
constexpr std::size_t max_name = 8192;
/// The longest operand of __has_include that macros compute.
constexpr std::size_t max_tested_operand = 512;

/// Whether a macro of this name may wrap __has_include.
bool may_test_existence(std::string_view callee) {
  static constexpr std::array<std::string_view, 6> words = {"include", "INCLUDE", "embed",
                                                            "EMBED",   "header",  "HEADER"};
  return std::ranges::any_of(words, [&](std::string_view word) { return callee.find(word) != callee.npos; });
}

/// The directive's name behind the '#' at `at`, which moves behind the name.
std::string_view read_directive(SourceLines& lines, std::size_t& at) {
  at = lines.skip_blanks(at + 1);
  const std::size_t begin = std::min(at, lines.size());
  while (is_word(lines[at])) ++at;
  return lines.text().substr(begin, at - begin);
}

class Finder {
 public:
  void run(std::string_view text) {
    lines_ = SourceLines(text);
    conditions_read_ = 0;
    definitions_read_ = 0;
    for (std::size_t at = text.find('#'); at != std::string_view::npos; at = text.find('#', at + 1))
      if (lines_.starts_line(at)) directive(at);
    for (std::size_t at = text.find("__has_"); at != std::string_view::npos; at = text.find("__has_", at)) {
      const std::string_view name = lines_.read_identifier(at);
      if (name == "__has_include_next")
        tested_operand(LookupKind::exists_next, at);
      else if (name.starts_with("__has_include") || name.starts_with("__has_embed"))
        tested_operand(LookupKind::exists, at);
    }
  }
  Directives take() { return std::move(found_); }

 private:
  void directive(std::size_t at) {
    const std::string_view name = read_directive(lines_, at);
    if (name == "include" || name == "import" || name == "embed") {
      operand(LookupKind::include, at);
    } else if (name == "include_next") {
      operand(LookupKind::include_next, at);
    } else if (name == "if" || name == "elif") {
      wrapped_tests(at, conditions_read_, Callee::any);
    } else if (name == "define") {
      found_.has_definitions = true;
      if (at >= conditions_read_) wrapped_tests(at, definitions_read_, Callee::named_like_a_test);
    } else if (name == "undef") {
      found_.has_definitions = true;
    }
  }

  void operand(LookupKind kind, std::size_t at) {
    at = lines_.skip_blanks(at);
    HeaderName named;
    if (read_header_name(lines_.from(at), named)) return add(Lookup{kind, named.quoted, std::move(named.name)});
    auto [operand, is_cut] = lines_.rest_of_line(at);
    if (operand.empty() || operand[0] == '"' || operand[0] == '<') return;
    if (is_cut) operand.resize(64);
    add(ComputedLookup{kind, std::move(operand), is_cut});
  }

  /// The operand of __has_include and its variants. They are found in any line, since a macro may contain them.
  void tested_operand(LookupKind kind, std::size_t at) {
    at = lines_.skip_blanks(at);
    if (lines_[at] != '(') return;
    at = lines_.skip_blanks(at + 1);
    HeaderName named;
    if (read_header_name(lines_.from(at), named))
      add(Lookup{kind, named.quoted, std::move(named.name)});
    else
      computed_test(kind, at);
  }

  void computed_test(LookupKind kind, std::size_t at) {
    if (!is_identifier_char(lines_[at])) return;
    std::string operand = lines_.rest_of_line(at).text;
    std::size_t end = 0;
    for (int depth = 0; end < operand.size() && (operand[end] != ')' || depth > 0); ++end)
      depth += operand[end] == '(' ? 1 : operand[end] == ')' ? -1 : 0;
    if (end == operand.size() || end > max_tested_operand) return;
    operand.resize(end);
    add(ComputedLookup{kind, std::move(operand)});
  }

  enum class Callee { any, named_like_a_test };

  /// Calls of macros that may wrap __has_include in a directive's line, as in `#if HAS_INCLUDE(<vector>)`. Reads
  /// the line to its end, which `read_until` keeps: it contains what directives further on in the line contain.
  void wrapped_tests(std::size_t at, std::size_t& read_until, Callee callee) {
    if (at < read_until) return;
    std::size_t comment_end = 0;
    char quote = 0;
    while (at < lines_.size() && (lines_[at] != '\n' || at < comment_end)) {
      const bool is_code = quote == 0 && at >= comment_end;
      if (const std::size_t length = continuation(lines_.text(), at)) {
        at += length;
      } else if (is_identifier_char(lines_[at])) {
        const std::string_view name = lines_.read_identifier(at);
        call(name, at, callee);
      } else if (is_code && lines_.has(at, "//")) {
        break;
      } else if (is_code && lines_.has(at, "/*")) {
        // A string may look like a comment, so comments are read too.
        comment_end = lines_.comment_end(at);
        at += 2;
      } else {
        const char c = lines_[at];
        if (quote != 0 && c == '\\' && lines_[at + 1] != '\n')
          ++at;
        else if (c == quote)
          quote = 0;
        else if (is_code && (c == '"' || c == '\''))
          quote = c;
        ++at;
      }
    }
    read_until = at;
  }

  void call(std::string_view name, std::size_t at, Callee callee) {
    at = lines_.skip_blanks(at);
    if (lines_[at] != '(' || name.starts_with("__has_")) return;
    const bool wraps = may_test_existence(name);
    if (callee == Callee::named_like_a_test && !wraps) return;
    at = lines_.skip_blanks(at + 1);
    HeaderName named;
    if (read_header_name(lines_.from(at), named))
      add(Lookup{LookupKind::exists, named.quoted, std::move(named.name)});
    else if (wraps)
      computed_test(LookupKind::exists, at);
  }

  void add(Lookup lookup) {
    if (known_.insert(lookup).second) found_.lookups.push_back(std::move(lookup));
  }
  void add(ComputedLookup lookup) {
    if (known_computed_.insert(lookup).second) found_.computed.push_back(std::move(lookup));
  }

  SourceLines lines_{{}};
  std::size_t conditions_read_ = 0;
  std::size_t definitions_read_ = 0;
  Directives found_;
  std::set<Lookup> known_;
  std::set<ComputedLookup> known_computed_;
};

/// Reads the parameters behind the parenthesis with which `rest` begins, and removes them from it.
void read_parameters(std::string& rest, Definition& definition) {
  const std::size_t close = std::min(rest.find(')'), rest.size());
  const std::string list = rest.substr(1, close - 1);
  rest.erase(0, close + 1);
  SourceLines lines(list);
  for (std::size_t begin = 0; begin < list.size();) {
    std::size_t end = lines.skip_blanks(begin);
    const std::string_view parameter = lines.read_identifier(end);
    const std::size_t comma = std::min(list.find(',', begin), list.size());
    if (std::string_view(list).substr(begin, comma - begin).find("...") != std::string_view::npos) {
      definition.is_variadic = true;
      definition.parameters.emplace_back(parameter.empty() ? "__VA_ARGS__" : parameter);
    } else if (!parameter.empty()) {
      definition.parameters.emplace_back(parameter);
    }
    begin = comma + 1;
  }
}

Definition definition_at(SourceLines& lines, std::size_t at) {
  Definition definition;
  definition.name = lines.read_identifier(at);
  // A continuation is no blank: "#define F\<newline>(x)" has a parameter.
  auto [rest, is_cut] = lines.rest_of_line(at);
  definition.is_cut = is_cut;
  definition.takes_arguments = rest.starts_with('(');
  if (definition.takes_arguments) read_parameters(rest, definition);
  rest.erase(0, std::ranges::find_if_not(rest, is_blank) - rest.begin());
  definition.body = std::move(rest);
  return definition;
}

void add_definitions(std::string_view text, Definitions& found) {
  SourceLines lines(text);
  for (std::size_t at = text.find('#'); at != std::string_view::npos; at = text.find('#', at + 1)) {
    if (!lines.starts_line(at)) continue;
    std::size_t end = at;
    const std::string_view directive = read_directive(lines, end);
    if (directive != "define" && directive != "undef") continue;
    end = lines.skip_blanks(end);
    if (directive == "undef") found.undefined.emplace_back(lines.read_identifier(end));
    if (directive == "define" && is_identifier_char(lines[end])) found.defined.push_back(definition_at(lines, end));
  }
}

}  // namespace

bool read_header_name(std::string_view text, HeaderName& found) {
  std::size_t at = std::min(text.find_first_not_of(" \t\v\f\r"), text.size());
  if (at == text.size() || (text[at] != '"' && text[at] != '<')) return false;
  const bool quoted = text[at] == '"';
  const char close = quoted ? '"' : '>';
  std::string name;
  for (++at; at < text.size() && text[at] != '\n' && text[at] != close;) {
    const std::size_t length = continuation(text, at);
    if (length == 0) name += text[at];
    if (name.size() > max_name) return false;
    at += std::max<std::size_t>(length, 1);
  }
  if (at >= text.size() || text[at] != close || name.empty()) return false;
  found = {std::move(name), quoted};
  return true;
}

Directives find_directives(std::string_view text) {
  Finder finder;
  finder.run(text);
  if (const auto other = other_spelling(text)) finder.run(*other);
  return finder.take();
}

Definitions find_definitions(std::string_view text) {
  Definitions found;
  add_definitions(text, found);
  if (const auto other = other_spelling(text)) add_definitions(*other, found);
  return found;
}

}  // namespace kiln::key
