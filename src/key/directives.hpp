#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// The questions that a source text asks the file system: #include, #embed, __has_include and their variants.
///
/// Conditions are not evaluated, and comments and strings are not skipped. So what is found here includes
/// everything that a compiler can ask for, whatever macros it defines, and no mistake in following a comment can
/// hide a file.
namespace kiln::key {

/// How a file name is used.
enum class LookupKind : std::uint8_t {
  /// #include, #import and #embed: the file is read.
  include,
  /// #include_next: the file is read from a later folder.
  include_next,
  /// __has_include, __has_include_next and __has_embed: only the existence of the file matters.
  exists,
};

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

  friend auto operator<=>(const ComputedLookup&, const ComputedLookup&) = default;
};

/// All questions of one text, in the order of their first appearance, without repetitions.
struct Directives {
  std::vector<Lookup> lookups;
  std::vector<ComputedLookup> computed;
};
Directives find_directives(std::string_view text);

/// A #define. `body` and `parameters` are without comments and line continuations.
struct Definition {
  std::string name = {};
  bool takes_arguments = false;
  bool is_variadic = false;
  std::vector<std::string> parameters = {};
  std::string body = {};
};
std::vector<Definition> find_definitions(std::string_view text);

/// The file that a text names if it begins with "quotes" or <brackets>, ignoring blanks before them.
struct HeaderName {
  std::string name;
  bool quoted = false;
};
bool read_header_name(std::string_view text, HeaderName& found);

}  // namespace kiln::key
