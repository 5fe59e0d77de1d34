#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <kiln/digest.hpp>
#include <kiln/request.hpp>
#include <kiln/result.hpp>

#include "key/recorded_request.hpp"

namespace kiln::key {

struct CapturedTree {
  FileTree tree;
  /// Where the contents of its stored files are.
  std::map<Digest, std::string> paths;
};

/// The part of the file system that a request depends on, so that a copy of it elsewhere gives the same key. Reads
/// the files that this process has not read yet. Fails with outdated if the request has another key now, and with
/// io.
Result<CapturedTree> capture_tree(const Request& request);

/// Unpacks the files of a tree below `root`, an absolute path, which is created and must be empty. `contents`
/// returns the contents of a stored file by their digest. Fails with damaged if a path leaves the root, and with
/// io.
Result<void> unpack_tree(const FileTree& tree, const std::filesystem::path& root,
                         const std::function<Result<std::vector<std::byte>>(const Digest&)>& contents);

/// Where an include folder of an unpacked tree is; nothing if the toolkit of this machine does not have it.
std::optional<std::filesystem::path> unpacked_path(const RecordedFolder& folder, const std::filesystem::path& root,
                                                   const std::vector<std::filesystem::path>& toolkit);

}  // namespace kiln::key
