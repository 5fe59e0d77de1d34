#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <kiln/digest.hpp>
#include <kiln/request.hpp>
#include <kiln/result.hpp>

namespace kiln::key {

/// A place in a file tree: a path below its root, or below a folder of the language's toolkit.
struct RecordedFolder {
  /// The index of the toolkit's folder; nothing for the root of the tree.
  std::optional<std::uint32_t> toolkit = {};
  /// Empty for the root, or the toolkit's folder, itself.
  std::string path = {};

  bool operator==(const RecordedFolder&) const = default;
};

struct RecordedFile {
  enum class Kind : std::uint8_t {
    /// The record has its contents.
    stored,
    /// Only its existence matters.
    present,
    /// The process that made the request could not read it.
    unreadable,
    last = unreadable
  };
  std::string path = {};
  Kind kind = Kind::stored;
  /// Of stored files, equal for names of one file: compilers include it once if it has #pragma once. Copies have
  /// other numbers.
  std::uint64_t same_file = 0;
  Digest digest = {};

  bool operator==(const RecordedFile&) const = default;
};

/// A file that is not in the record: one of the toolkit, or one that a source names with an absolute path.
struct OutsideFile {
  /// As in RecordedFolder; nothing for an absolute path.
  std::optional<std::uint32_t> toolkit = {};
  std::string path = {};
  Digest digest = {};

  bool operator==(const OutsideFile&) const = default;
};

/// The part of a file system on which a request depends. Paths are relative to the root of the tree, have no links,
/// no "." and no "..", and use '/'.
struct FileTree {
  /// Folders that exist. Those that contain another folder, a file or a link may be missing here.
  std::vector<std::string> folders = {};
  std::vector<RecordedFile> files = {};
  /// Symbolic links to folders, with their targets.
  std::map<std::string, std::string> links = {};
  std::vector<OutsideFile> outside = {};
  /// The include folders that exist, in the order in which they are searched, without those that the toolkit adds.
  std::vector<RecordedFolder> include_folders = {};
  /// The folder in which the process must run to have the same key. Nothing if no file was found through it.
  std::optional<std::string> working_folder = {};

  bool operator==(const FileTree&) const = default;
};

/// A request as it is in a record. The source and the contents of files are there under their digests.
struct RecordedRequest {
  Key key = {};
  /// The API of the device that it was for, as in Identity::api.
  std::string api = {};
  std::chrono::nanoseconds compile_time = {};
  Language language = Language::glsl;
  Digest source = {};
  std::uint64_t source_bytes = 0;
  std::vector<std::string> entries = {};
  std::vector<std::string> options = {};
  std::map<std::string, std::string> defines = {};
  std::map<std::uint32_t, Constant> constants = {};
  /// The digests of the given headers, by name.
  std::map<std::string, Digest> headers = {};
  FileTree tree = {};

  /// Equal for two requests if a record needs only one of them.
  static Digest id(const Digest& key, std::string_view api);
  /// How many files the source can include, without those of which only the existence matters.
  std::size_t header_count() const noexcept;
  std::vector<std::byte> to_bytes() const;
  /// Fails with damaged if these are not such bytes.
  static Result<RecordedRequest> from_bytes(std::span<const std::byte> bytes);
};

}  // namespace kiln::key
