#include "key/macro_expander.hpp"

#include <algorithm>
#include <utility>

#include "key/source_lines.hpp"

namespace kiln::key {
namespace {

// Real headers need a handful of values and a few levels.
constexpr std::size_t max_values = 256;
constexpr std::size_t max_expansions_deep = 64;
/// Tokens that are copied.
constexpr std::size_t max_steps = 100'000;

bool is_number_start(std::string_view text, std::size_t at) {
  return is_digit(text[at]) || (text[at] == '.' && at + 1 < text.size() && is_digit(text[at + 1]));
}

/// The end of a number as the preprocessor reads it, such as "3d.h".
std::size_t number_end(std::string_view text, std::size_t at) {
  constexpr std::string_view exponents = "eEpP";
  while (at < text.size() &&
         (is_identifier_char(text[at]) || text[at] == '.' ||
          ((text[at] == '+' || text[at] == '-') && exponents.find(text[at - 1]) != exponents.npos)))
    ++at;
  return at;
}

bool is_string(const Token& token) { return token.text[0] == '"' || token.text[0] == '\''; }
bool is_identifier(const Token& token) { return is_identifier_char(token.text[0]) && !is_digit(token.text[0]); }

/// Whether compilers read the token in different ways, or in one that tokens_of() does not know.
bool is_strange(const Token& token) {
  const auto c = static_cast<unsigned char>(token.text[0]);
  return c < ' ' || c == 0x7f || c == '\\' || (is_string(token) && token.text.back() != token.text[0]);
}

/// Whether the compiler may define a macro of this name itself, with any value. Names that begin with two
/// underscores, or with one and a capital letter, are reserved for that.
bool is_reserved(std::string_view name) {
  return name.size() > 1 && name[0] == '_' && (name[1] == '_' || (name[1] >= 'A' && name[1] <= 'Z'));
}

/// The value of other macros that a compiler may define: extensions and versions of OpenCL, and what gcc and clang
/// define for Linux; nothing for other names.
std::optional<std::string> value_by_compiler(std::string_view name) {
  constexpr std::string_view version = "CL_VERSION_";
  if (name.starts_with("cl_") || name == "linux" || name == "unix") return "1";
  if (name.starts_with(version) && name.size() == version.size() + 3 && is_digit(name[version.size()]) &&
      is_digit(name.back()))
    return std::string{name[version.size()], name.back(), '0'};
  return std::nullopt;
}

/// Removes tokens without text. The blank before one counts for the next token.
Tokens without_empty(Tokens tokens) {
  Tokens rest;
  bool space = false;
  for (Token& token : tokens) {
    space |= token.space_before;
    if (token.text.empty()) continue;
    token.space_before = std::exchange(space, false);
    rest.push_back(std::move(token));
  }
  return rest;
}

/// What #parameter makes of an argument.
std::string string_of(const Tokens& argument) {
  std::string text;
  for (const Token& token : argument) {
    if (token.space_before && !text.empty()) text += ' ';
    for (const char c : token.text) {
      if (is_string(token) && (c == '"' || c == '\\')) text += '\\';
      text += c;
    }
  }
  return '"' + text + '"';
}

struct Use {
  std::vector<Tokens> arguments;
  /// Behind the closing parenthesis.
  std::size_t end = 0;
};

/// The arguments of a macro, from the parenthesis at `at`; nothing if it is not closed.
std::optional<Use> read_use(const Tokens& tokens, std::size_t at, const Definition& definition) {
  Use use;
  use.arguments.emplace_back();
  for (std::size_t depth = 0; at < tokens.size(); ++at) {
    const std::string& text = tokens[at].text;
    if (text == "(" && depth++ == 0) continue;
    if (text == ")" && --depth == 0) {
      use.arguments.resize(std::max(definition.parameters.size(), std::size_t{1}));
      use.end = at + 1;
      return use;
    }
    const bool is_last = definition.is_variadic && use.arguments.size() == definition.parameters.size();
    if (text == "," && depth == 1 && !is_last)
      use.arguments.emplace_back();
    else
      use.arguments.back().push_back(tokens[at]);
  }
  return std::nullopt;
}

/// `left ## right`.
Tokens pasted(Tokens left, const Tokens& right) {
  if (left.empty()) return right;
  const bool space = left.back().space_before;
  Tokens middle = tokens_of(left.back().text + right.front().text);
  // Two empty arguments are an empty one, which another ## may follow.
  if (middle.empty()) middle.emplace_back();
  middle.front().space_before = space;
  left.pop_back();
  left.insert(left.end(), middle.begin(), middle.end());
  left.insert(left.end(), right.begin() + 1, right.end());
  return left;
}

}  // namespace

Tokens tokens_of(std::string_view text) {
  Tokens tokens;
  bool space = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    if (is_blank(text[at]) && text[at] != '\r') {
      space = true;
      ++at;
      continue;
    }
    if (is_number_start(text, at)) {
      at = number_end(text, at);
    } else if (is_identifier_char(text[at])) {
      while (at < text.size() && is_identifier_char(text[at])) ++at;
    } else if (text[at] == '"' || text[at] == '\'') {
      const char quote = text[at++];
      while (at < text.size() && text[at] != quote) at += text[at] == '\\' ? 2 : 1;
      at = std::min(at + 1, text.size());
    } else {
      at += text.substr(at).starts_with("##") ? 2 : 1;
    }
    tokens.push_back({std::string(text.substr(begin, at - begin)), std::exchange(space, false)});
  }
  return tokens;
}

std::string text_of(const Tokens& tokens) {
  std::string text;
  for (const Token& token : tokens) {
    if (token.space_before && !text.empty()) text += ' ';
    text += token.text;
  }
  return text;
}

std::optional<std::vector<Tokens>> MacroExpander::values_of(std::string_view operand) {
  auto values = expand(tokens_of(operand), 0, Place::operand, 0);
  for (const Tokens& value : values) failed_ |= std::ranges::any_of(value, is_strange);
  if (failed_) return std::nullopt;
  return values;
}

std::vector<Tokens> MacroExpander::expand(const Tokens& tokens, std::size_t begin, Place place, std::size_t depth) {
  steps_ += tokens.size() + 1;
  if (depth > max_expansions_deep || steps_ > max_steps) failed_ = true;
  std::vector<Tokens> values;
  for (std::size_t i = begin; i < tokens.size() && !failed_; ++i) {
    const Token& token = tokens[i];
    failed_ |= is_strange(token);
    if (!is_identifier(token) || token.hidden.contains(token.text)) continue;
    bool stays = can_stay(token.text);
    for (const Definition& definition : definitions_of(token)) {
      std::size_t end = i;
      auto replaced = replace(definition, tokens, end, depth);
      if (!replaced) stays = true;
      if (!replaced) continue;
      for (Tokens& value : *replaced) {
        Tokens whole(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(i));
        if (value.empty()) value.emplace_back();
        value[0].space_before = token.space_before;
        whole.insert(whole.end(), value.begin(), value.end());
        whole.insert(whole.end(), tokens.begin() + static_cast<std::ptrdiff_t>(end), tokens.end());
        for (Tokens& result : expand(without_empty(std::move(whole)), i, place, depth + 1))
          add(values, std::move(result));
      }
    }
    // No file name begins with a word.
    if (!stays || (i == 0 && place == Place::operand)) return values;
  }
  add(values, tokens);
  return values;
}

std::vector<Definition> MacroExpander::definitions_of(const Token& token) {
  const std::string& name = token.text;
  used_names_.insert(name);
  const auto known = macros_.find(name);
  std::vector<Definition> definitions;
  if (known != macros_.end()) definitions = known->second.definitions;
  if (auto value = value_by_compiler(name)) definitions.push_back({.name = name, .body = std::move(*value)});
  if (definitions.empty() && is_reserved(name)) failed_ = true;
  for (const Definition& definition : definitions) failed_ |= definition.is_cut;
  // Some compilers end the word at a '$' or at a character that is no letter.
  for (std::size_t at = 0; at < name.size();) {
    const std::size_t begin = at;
    while (at < name.size() && is_word(name[at])) ++at;
    const std::string part = name.substr(begin, at - begin);
    if (part == name) break;
    if (!part.empty()) used_names_.insert(part);
    if (macros_.contains(part) || is_reserved(part) || value_by_compiler(part)) failed_ = true;
    while (at < name.size() && !is_word(name[at])) ++at;
  }
  return definitions;
}

bool MacroExpander::can_stay(const std::string& name) const {
  const auto known = macros_.find(name);
  return known == macros_.end() || !known->second.is_given || known->second.is_undefined;
}

void MacroExpander::add(std::vector<Tokens>& values, Tokens value) {
  steps_ += value.size();
  if (std::ranges::find(values, value) != values.end()) return;
  if (values.size() == max_values)
    failed_ = true;
  else
    values.push_back(std::move(value));
}

std::optional<std::vector<Tokens>> MacroExpander::replace(const Definition& definition, const Tokens& tokens,
                                                          std::size_t& at, std::size_t depth) {
  std::set<std::string> hidden = tokens[at++].hidden;
  Use use;
  if (definition.takes_arguments) {
    if (at >= tokens.size() || tokens[at].text != "(") return std::nullopt;
    auto found = read_use(tokens, at, definition);
    if (!found) return std::nullopt;
    use = std::move(*found);
    at = use.end;
    // Compilers expand a name again if the arguments end behind its expansion.
    std::erase_if(hidden, [&](const std::string& name) { return !tokens[at - 1].hidden.contains(name); });
  }
  hidden.insert(definition.name);
  auto values = substitute(definition, use.arguments, depth);
  for (Tokens& value : values)
    for (Token& token : value) token.hidden.insert(hidden.begin(), hidden.end());
  return values;
}

std::vector<Tokens> MacroExpander::substitute(const Definition& definition, const std::vector<Tokens>& arguments,
                                              std::size_t depth) {
  const Tokens body = tokens_of(definition.body);
  const auto argument = [&](std::size_t at) -> const Tokens* {
    if (!definition.takes_arguments || at >= body.size()) return nullptr;
    const auto found = std::ranges::find(definition.parameters, body[at].text);
    if (found == definition.parameters.end()) return nullptr;
    return &arguments[static_cast<std::size_t>(found - definition.parameters.begin())];
  };
  const auto pastes_at = [&](std::size_t at) { return at < body.size() && body[at].text == "##"; };
  std::vector<Tokens> values(1);
  bool pastes = false;
  for (std::size_t i = 0; i < body.size(); ++i) {
    if (pastes_at(i)) {
      pastes = true;
      continue;
    }
    const bool space = body[i].space_before;
    std::vector<Tokens> pieces;
    if (body[i].text == "#" && argument(i + 1) != nullptr) {
      pieces = {{Token{string_of(*argument(++i))}}};
    } else if (const Tokens* given = argument(i)) {
      const bool is_raw = pastes || pastes_at(i + 1);
      pieces = is_raw ? std::vector<Tokens>{*given} : expand(*given, 0, Place::argument, depth + 1);
    } else {
      pieces = {{body[i]}};
    }
    // An empty argument of ## is a token without text until then.
    for (Tokens& piece : pieces) {
      if (piece.empty()) piece.emplace_back();
      piece[0].space_before = space;
    }
    std::vector<Tokens> results;
    for (const Tokens& value : values)
      for (const Tokens& piece : pieces) {
        // In gcc and clang, ", ## __VA_ARGS__" is a comma that only arguments keep.
        const bool is_comma = pastes && !value.empty() && value.back().text == "," && argument(i) != nullptr;
        Tokens apart = value;
        apart.insert(apart.end(), piece.begin(), piece.end());
        if (is_comma && piece[0].text.empty()) add(results, Tokens(value.begin(), value.end() - 1));
        add(results, pastes && !is_comma ? pasted(value, piece) : std::move(apart));
      }
    values = std::move(results);
    pastes = false;
  }
  for (Tokens& value : values) value = without_empty(std::move(value));
  return values;
}

}  // namespace kiln::key
