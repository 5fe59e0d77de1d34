#include "key/macros.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "key/source_scanner.hpp"

namespace kiln::key {
namespace {

// Real headers need a handful of values and a few levels.
constexpr std::size_t max_values = 256;
constexpr std::size_t max_expansions_deep = 64;
constexpr std::size_t max_steps = 20'000;
constexpr std::size_t max_text = 4096;

/// A preprocessing token, as far as file names need it: a word, a string, or one other character.
struct Token {
  std::string text;
  bool space_before = false;
  /// Names that are not expanded here, because this token comes from their expansion.
  std::set<std::string> hidden = {};
};
using Tokens = std::vector<Token>;

Tokens tokens_of(std::string_view text) {
  Tokens tokens;
  bool space = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    if (text[at] == ' ' || text[at] == '\t') {
      space = true;
      ++at;
      continue;
    }
    if (is_word(text[at])) {
      while (at < text.size() && is_word(text[at])) ++at;
    } else if (text[at] == '"' || text[at] == '\'') {
      const char quote = text[at++];
      while (at < text.size() && text[at] != quote) at += text[at] == '\\' ? 2 : 1;
      at = std::min(at + 1, text.size());
    } else if (text.substr(at).starts_with("##")) {
      at += 2;
    } else {
      ++at;
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

bool is_identifier(const Token& token) { return is_name(token.text); }

/// Whether the compiler may define a macro of this name itself. Names that begin with two underscores, or with one
/// and a capital letter, are reserved for that.
bool may_be_predefined(const std::string& name) {
  return name.size() > 1 && name[0] == '_' && (name[1] == '_' || (name[1] >= 'A' && name[1] <= 'Z'));
}

class Expander {
 public:
  explicit Expander(const std::unordered_map<std::string, std::vector<Definition>>& definitions)
      : definitions_(definitions) {}

  /// Whether the values could not be listed. The results are incomplete then.
  bool failed() const noexcept { return failed_; }

  /// All values of a list of tokens.
  std::vector<Tokens> expand(const Tokens& tokens, std::size_t depth = 0) {
    if (depth > max_expansions_deep || ++steps_ > max_steps) failed_ = true;
    if (failed_) return {};
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const Token& token = tokens[i];
      if (!is_identifier(token) || token.hidden.contains(token.text)) continue;
      const auto known = definitions_.find(token.text);
      if (known == definitions_.end()) {
        if (may_be_predefined(token.text)) failed_ = true;
        continue;
      }
      std::vector<Tokens> values;
      for (const Definition& definition : known->second) {
        std::size_t end = i + 1;
        auto replaced = replace(definition, tokens, end, token.hidden, depth);
        if (!replaced) continue;
        for (Tokens& value : *replaced) {
          if (!value.empty()) value[0].space_before = token.space_before;
          Tokens whole(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(i));
          // Tokens before this one are final.
          for (Token& before : whole) before.hidden.insert(before.text);
          whole.insert(whole.end(), value.begin(), value.end());
          whole.insert(whole.end(), tokens.begin() + static_cast<std::ptrdiff_t>(end), tokens.end());
          for (Tokens& result : expand(whole, depth + 1)) add(values, std::move(result));
        }
      }
      if (values.empty()) continue;  // A function-like macro without arguments stays as it is.
      return values;
    }
    return {tokens};
  }

 private:
  void add(std::vector<Tokens>& values, Tokens value) {
    const std::string text = text_of(value);
    for (const Tokens& known : values)
      if (text_of(known) == text) return;
    if (text.size() > max_text || values.size() == max_values)
      failed_ = true;
    else
      values.push_back(std::move(value));
  }

  /// The values of a macro's use that ends before `end`; nothing if a function-like macro has no arguments here.
  std::optional<std::vector<Tokens>> replace(const Definition& definition, const Tokens& tokens, std::size_t& end,
                                             std::set<std::string> hidden, std::size_t depth) {
    hidden.insert(definition.name);
    std::vector<Tokens> arguments;
    if (definition.takes_arguments) {
      if (end >= tokens.size() || tokens[end].text != "(") return std::nullopt;
      if (!read_arguments(tokens, end, definition, arguments)) return std::nullopt;
    }
    auto values = substitute(definition, arguments, depth);
    for (Tokens& value : values)
      for (Token& token : value) token.hidden.insert(hidden.begin(), hidden.end());
    return values;
  }

  static bool read_arguments(const Tokens& tokens, std::size_t& at, const Definition& definition,
                             std::vector<Tokens>& arguments) {
    std::size_t depth = 0;
    arguments.emplace_back();
    for (; at < tokens.size(); ++at) {
      const std::string& text = tokens[at].text;
      if (text == "(" && depth++ == 0) continue;
      if (text == ")" && --depth == 0) {
        ++at;
        arguments.resize(std::max(definition.parameters.size(), std::size_t{1}));
        return true;
      }
      const bool last = definition.is_variadic && arguments.size() == definition.parameters.size();
      if (text == "," && depth == 1 && !last)
        arguments.emplace_back();
      else
        arguments.back().push_back(tokens[at]);
    }
    return false;
  }

  /// The body with its parameters replaced: expanded arguments, or the arguments as written beside # and ##.
  std::vector<Tokens> substitute(const Definition& definition, const std::vector<Tokens>& arguments,
                                 std::size_t depth) {
    const Tokens body = tokens_of(definition.body);
    const auto parameter = [&](const Token& token) {
      const auto found = std::ranges::find(definition.parameters, token.text);
      return found == definition.parameters.end() || !definition.takes_arguments
                 ? arguments.size()
                 : static_cast<std::size_t>(found - definition.parameters.begin());
    };
    std::vector<Tokens> values(1);
    bool pastes = false;
    for (std::size_t i = 0; i < body.size(); ++i) {
      const Token& token = body[i];
      if (token.text == "##") {
        pastes = true;
        continue;
      }
      std::vector<Tokens> pieces;
      bool raw = pastes || (i + 1 < body.size() && body[i + 1].text == "##");
      if (definition.takes_arguments && token.text == "#" && i + 1 < body.size() &&
          parameter(body[i + 1]) < arguments.size()) {
        pieces = {{Token{'"' + text_of(arguments[parameter(body[++i])]) + '"', token.space_before}}};
        raw = true;
      } else if (parameter(token) < arguments.size()) {
        const Tokens& argument = arguments[parameter(token)];
        pieces = raw ? std::vector<Tokens>{argument} : expand(argument, depth + 1);
        for (Tokens& piece : pieces)
          if (!piece.empty()) piece[0].space_before = token.space_before;
      } else {
        pieces = {{token}};
      }
      append(values, pieces, std::exchange(pastes, false));
    }
    return values;
  }

  /// Appends each piece to each value; `pastes` joins the tokens between them.
  void append(std::vector<Tokens>& values, const std::vector<Tokens>& pieces, bool pastes) {
    std::vector<Tokens> results;
    for (const Tokens& value : values)
      for (const Tokens& piece : pieces) {
        Tokens result = value;
        auto rest = piece.begin();
        if (pastes && !result.empty() && rest != piece.end()) result.back().text += (rest++)->text;
        result.insert(result.end(), rest, piece.end());
        add(results, std::move(result));
      }
    values = std::move(results);
  }

  const std::unordered_map<std::string, std::vector<Definition>>& definitions_;
  std::size_t steps_ = 0;
  bool failed_ = false;
};

}  // namespace

Macros::Macros(const std::map<std::string, std::string>& defines) {
  for (const auto& [name, value] : defines) add(find_definitions("#define " + name + ' ' + value));
}

void Macros::add(std::vector<Definition> definitions) {
  for (Definition& definition : definitions) {
    auto& known = definitions_[definition.name];
    const bool is_new = std::ranges::none_of(known, [&](const Definition& other) {
      return other.takes_arguments == definition.takes_arguments && other.parameters == definition.parameters &&
             other.body == definition.body;
    });
    if (is_new) known.push_back(std::move(definition));
  }
}

std::optional<std::vector<HeaderName>> Macros::header_names(std::string_view operand) const {
  Expander expander(definitions_);
  std::set<std::pair<std::string, bool>> names;
  for (const Tokens& value : expander.expand(tokens_of(operand))) {
    HeaderName named;
    if (read_header_name(text_of(value), named)) names.insert({std::move(named.name), named.quoted});
  }
  if (expander.failed()) return std::nullopt;
  std::vector<HeaderName> sorted;
  for (const auto& [name, quoted] : names) sorted.push_back({name, quoted});
  return sorted;
}

}  // namespace kiln::key
