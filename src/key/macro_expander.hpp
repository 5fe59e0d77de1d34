#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "key/directives.hpp"

namespace kiln::key {

/// A macro, with all definitions that were seen in any file: conditions are not evaluated.
struct Macro {
  std::vector<Definition> definitions = {};
  /// Whether the request defines it, so that it is defined from the first line on.
  bool is_given = false;
  /// Whether an #undef names it.
  bool is_undefined = false;
  /// Whether a header of the toolkit defines or undefines it.
  bool is_of_toolkit = false;
};
using MacroTable = std::unordered_map<std::string, Macro>;

/// A preprocessing token, as far as file names need it: a word, a number, a string, or one other character.
struct Token {
  std::string text = {};
  bool space_before = false;
  /// Names that are not expanded here, because this token comes from their expansion.
  std::set<std::string> hidden = {};

  bool operator==(const Token&) const = default;
};
using Tokens = std::vector<Token>;

Tokens tokens_of(std::string_view text);
std::string text_of(const Tokens& tokens);

/// Replaces the macros in the operand of an #include. An operand has a set of values: a macro has one for each of
/// its definitions, and one for the lines on which it is not defined.
class MacroExpander {
 public:
  explicit MacroExpander(const MacroTable& macros) : macros_(macros) {}

  /// All values that a file name can come from; nothing if they cannot be listed.
  std::optional<std::vector<Tokens>> values_of(std::string_view operand);

  /// The names that values_of() looked up. If none of them gets another definition, the values stay the same.
  const std::set<std::string>& used_names() const noexcept { return used_names_; }

 private:
  enum class Place { operand, argument };

  /// The values of tokens of which those before `begin` are final.
  std::vector<Tokens> expand(const Tokens& tokens, std::size_t begin, Place place, std::size_t depth);
  /// The values of the macro's use at `at`, which moves behind it; nothing if a function-like macro has no
  /// arguments there.
  std::optional<std::vector<Tokens>> replace(const Definition& definition, const Tokens& tokens, std::size_t& at,
                                             std::size_t depth);
  /// The body with its parameters replaced: by expanded arguments, or by arguments as written beside # and ##.
  std::vector<Tokens> substitute(const Definition& definition, const std::vector<Tokens>& arguments,
                                 std::size_t depth);
  std::vector<Definition> definitions_of(const Token& token);
  bool can_stay(const std::string& name) const;
  void add(std::vector<Tokens>& values, Tokens value);

  const MacroTable& macros_;
  std::set<std::string> used_names_;
  std::size_t steps_ = 0;
  bool failed_ = false;
};

}  // namespace kiln::key
