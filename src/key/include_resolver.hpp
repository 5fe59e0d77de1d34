#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <kiln/digest.hpp>
#include <kiln/result.hpp>

namespace kiln::key {

/// A source with its includes in place.
struct ResolvedSource {
  std::string text;
  /// The names of the files it came from. The first is the source itself.
  std::vector<std::string> files;
  /// The digest of each file's own contents.
  std::vector<Digest> digests;
};

/// Where the files named by #include are looked for.
struct IncludePlaces {
  const std::map<std::string, std::string>& headers;
  const std::vector<std::filesystem::path>& folders;
  /// What the names begin with that the compiler has itself, where they are in no other place; empty for none.
  std::string_view built_in = {};
};

/// How `#line` names a file: GLSL has numbers for it, the others have names.
enum class LineStyle { number, name };

/// The directive that gives the next line its number; `file` counts the files, `name` is what it is called.
std::string line_directive(LineStyle style, std::size_t line, std::size_t file, const std::string& name);

/// Replaces every #include by the contents of what it names, once only for files that say `#pragma once`.
/// Comments and string literals are left alone, and so is what the compiler has built in. A missing file is an
/// error, except inside #if … #endif, where it becomes an #error for the compiler to meet or pass over; so is one
/// that ends in the middle of a comment or a raw string. Errors name the file and the line. Lines keep their
/// numbers, also behind a group that the compiler passes over, and those that the source's own #line directives
/// give them. The result is never larger than `max_bytes`.
Result<ResolvedSource> resolve_includes(const std::string& name, const std::string& source,
                                        const IncludePlaces& places, LineStyle style, std::size_t max_bytes);

}  // namespace kiln::key
