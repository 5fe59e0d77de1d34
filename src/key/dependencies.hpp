#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <kiln/digest.hpp>
#include <kiln/request.hpp>
#include <kiln/result.hpp>

namespace kiln::key {

/// Where a compiler searches for included files. For "quotes", it first searches the folder of the including file.
struct IncludeSearch {
  /// Searched first, as if they were the files of a folder.
  const std::map<std::string, std::string>& headers;
  /// Searched next, in this order. Absolute paths.
  const std::vector<std::filesystem::path>& folders;
  /// How many of `folders`, the last ones, are those of the toolkit.
  std::size_t toolkit_folders = 0;
  /// Some OpenCL drivers search the working folder before `folders`, others do not search it. If this is not empty,
  /// files that are found in it count beside those that are found elsewhere.
  std::filesystem::path working_folder = {};
  /// In each folder, a name without a suffix is also looked up with this one; empty if there is none.
  std::string other_suffix = {};
};

/// The search of a compiler of this language that runs now. `headers` and `folders` must outlive the result.
IncludeSearch search_of(Language language, const std::map<std::string, std::string>& headers,
                        const std::vector<std::filesystem::path>& folders, std::size_t toolkit_folders = 0);

/// A file that a compiler may read.
struct Dependency {
  /// Its path, or its name among the given headers.
  std::string name;
  Digest digest;
};

/// The files that a source depends on.
struct Dependencies {
  /// Covers the contents of every file that a compiler may read for the source, which file each #include leads to,
  /// and which names are found nowhere. Does not depend on the paths of folders.
  Digest digest;
  /// As `digest`, but without the headers of the toolkit: a name that leads to one counts as one that is found
  /// nowhere, so it is the same on a machine without the toolkit. Equal ones mean equal files of the user. Nothing
  /// if these cannot be listed without the toolkit, or not told from its headers (ToolkitFiles::are_mixed()).
  std::optional<Digest> without_toolkit;
  /// In the order in which they are first named.
  std::vector<Dependency> files;
  /// Names that are found nowhere, sorted.
  std::vector<std::string> missing;
};

/// Finds the dependencies of a source; null if it names no file. `defines` are macros that the compiler gets in
/// addition to those of the source.
///
/// Every #include is followed, whatever condition it depends on. File names that macros compute are followed with
/// every definition of these macros. If that is not possible, all files of all folders are dependencies, or the
/// request is invalid if a compiler may search the working folder. Results are kept, in memory and for large
/// sources in `includes` of default_directory(), and used again if all signatures are unchanged and no file was
/// added in front of another.
///
/// An unreadable file is not an error here: the compiler reports it if it needs it. Fails with invalid_request if a
/// given header has a name that leaves its folder or a file is too large, and with io if the system fails.
Result<std::shared_ptr<const Dependencies>> find_dependencies(std::string_view source, const IncludeSearch& search,
                                                              const std::map<std::string, std::string>& defines);

/// The digest of the signatures that the files have now. If it is the same before and after a compilation, no file
/// changed meanwhile, not even for a moment.
Digest state_of(const Dependencies& dependencies);

}  // namespace kiln::key
