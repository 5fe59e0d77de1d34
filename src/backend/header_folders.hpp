#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <kiln/request.hpp>
#include <kiln/result.hpp>

#include "base/file.hpp"

namespace kiln::backend {

/// The folders that a compiler gets for a request, with -I, in this order. Given headers are written to a temporary
/// folder, which is the first and is removed on destruction.
class HeaderFolders {
 public:
  /// Writes nothing if the source names no file. Fails with io.
  static Result<HeaderFolders> create(const Request& request);

  /// Absolute, without characters that an option string would have to quote: a folder with such a path is reached
  /// through a link in the temporary folder.
  const std::vector<std::string>& paths() const noexcept { return paths_; }

  /// A compiler's log with the names of given headers, and the paths of include folders, in place of temporary
  /// paths.
  std::string with_names(std::string log) const;

  /// Overwrites the random part of the temporary folder's path in what a compiler made, so that equal requests give
  /// equal bytes. The path keeps its length, so that offsets stay valid.
  void replace_random_names(std::span<std::byte> compiled) const;

  /// The temporary folders among paths(), and what stands for `path/` in names of files: nothing for given headers,
  /// the include folder with a slash for a link.
  std::vector<std::pair<std::string, std::string>> temporary() const;

 private:
  HeaderFolders() = default;
  Result<void> write(const Request& request);
  Result<void> link(const std::filesystem::path& folder);

  std::optional<base::ScratchFolder> scratch_;
  std::vector<std::string> paths_;
  /// The folder that a link in the temporary folder leads to.
  struct Link {
    std::string path;
    std::string folder;
  };
  std::vector<Link> links_;
};

}  // namespace kiln::backend
