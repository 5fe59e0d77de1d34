#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <kiln/digest.hpp>
#include <kiln/result.hpp>

namespace kiln::key {

/// A source with its includes expanded.
struct ResolvedSource {
  std::string text;
  /// The names of the files it consists of. The first is the source itself.
  std::vector<std::string> files;
  /// The digest of each file before expansion.
  std::vector<Digest> digests;
};

/// Where to search for included files: for "quotes" in the folder of the including file, then among the headers,
/// then in the folders.
struct IncludePlaces {
  const std::map<std::string, std::string>& headers;
  const std::vector<std::filesystem::path>& folders;
};

/// How #line identifies a file: by a number in GLSL, by a name in the other languages.
enum class LineStyle { number, name };

/// The directive that sets the number and file of the next line. `file` is the file's index, `name` its name;
/// `style` selects one.
std::string line_directive(LineStyle style, std::size_t line, std::size_t file, const std::string& name);

/// Replaces every #include of a GLSL source by the contents of its file. Expands files with `#pragma once` only
/// once, and ends a cycle at a file that is guarded by `#pragma once` or `#ifndef`. Ignores directives in comments
/// and string literals. A missing file is an error; inside #if … #endif it becomes an #error directive, because the
/// compiler may skip the group. A file that ends inside a comment or a raw string is an error, and so is a cycle
/// without guards. Errors name the file and line. #line directives preserve line numbers, including those that the
/// source's own #line directives set. The result has at most `max_bytes`.
Result<ResolvedSource> resolve_includes(const std::string& name, const std::string& source,
                                        const IncludePlaces& places, std::size_t max_bytes);

}  // namespace kiln::key
