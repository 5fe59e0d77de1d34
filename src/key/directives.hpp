#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Finds the file names in a source: #include, #embed, __has_include and their variants. Conditions are not
/// evaluated, and comments and strings are not skipped, so the result is a superset of what a compiler looks up.
/// Only a '#' that something else precedes in its line is no directive.
///
/// Not found are a test that a macro wraps, if neither the macro's name nor the condition that calls it shows that
/// it is one, and __has_include with more than 512 characters before macros are replaced. docs/headers.md lists
/// both.
namespace kiln::key {

/// How a file name is used.
enum class LookupKind : std::uint8_t {
  /// #include, #import and #embed: the file is read.
  include,
  /// #include_next: the file is read from a later folder.
  include_next,
  /// __has_include and __has_embed: only the existence of the file matters.
  exists,
  /// __has_include_next: the same, in a later folder.
  exists_next,
};

constexpr bool tests_existence(LookupKind kind) noexcept {
  return kind == LookupKind::exists || kind == LookupKind::exists_next;
}
constexpr bool starts_in_a_later_folder(LookupKind kind) noexcept {
  return kind == LookupKind::include_next || kind == LookupKind::exists_next;
}

/// A file that a text names.
struct Lookup {
  LookupKind kind = LookupKind::include;
  /// "quotes" instead of <brackets>.
  bool quoted = false;
  std::string name;

  friend auto operator<=>(const Lookup&, const Lookup&) = default;
};

/// A file whose name is computed by macros, as in `#include HEADER`.
struct ComputedLookup {
  LookupKind kind = LookupKind::include;
  std::string operand;
  /// Whether the operand is too long to be read.
  bool is_cut = false;

  friend auto operator<=>(const ComputedLookup&, const ComputedLookup&) = default;
};

/// All lookups of one text, in the order of their first appearance, without repetitions.
struct Directives {
  std::vector<Lookup> lookups;
  std::vector<ComputedLookup> computed;
  /// Whether find_definitions() finds anything in the text.
  bool has_definitions = false;
};
Directives find_directives(std::string_view text);

/// A #define. `body` and `parameters` are without comments and line continuations.
struct Definition {
  std::string name = {};
  bool takes_arguments = false;
  bool is_variadic = false;
  /// Whether it is too long to be read.
  bool is_cut = false;
  std::vector<std::string> parameters = {};
  std::string body = {};

  bool operator==(const Definition&) const = default;
};

/// The macros that a text defines, and those that it undefines.
struct Definitions {
  std::vector<Definition> defined;
  std::vector<std::string> undefined;
};
Definitions find_definitions(std::string_view text);

/// The file that a text names if it begins with "quotes" or <brackets>, ignoring blanks before them.
struct HeaderName {
  std::string name;
  bool quoted = false;

  friend auto operator<=>(const HeaderName&, const HeaderName&) = default;
};
bool read_header_name(std::string_view text, HeaderName& found);

}  // namespace kiln::key
