#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <kiln/result.hpp>

#include "base/bytes.hpp"
#include "key/dependencies.hpp"
#include "key/directives.hpp"
#include "key/file_index.hpp"
#include "key/macros.hpp"
#include "key/toolkit.hpp"

namespace kiln::key {

/// The state of the file system that a graph was built from.
struct Observations {
  struct File {
    std::string path;
    FileSignature signature;
    Digest digest;
  };
  std::vector<File> files;
  /// Paths of files whose contents do not matter.
  std::vector<std::string> present;
  /// Paths of files that this process may not read.
  std::vector<std::string> unreadable;
  /// Paths at which there was no regular file.
  std::vector<std::string> absent;
  /// Folders that were listed, because a computed name may lead to any file in them.
  std::vector<std::string> folders;
  /// The absolute paths by which sources name files. Also in one of the lists above.
  std::set<std::string> absolute;
  /// Whether a file was found through the working folder.
  bool used_working_folder = false;
  /// Taken before the first file was read.
  std::chrono::system_clock::time_point time;
  /// False if the graph depends on more than is listed here.
  bool complete = true;
};

/// A source and the files that it can include. The nodes are files; the edges are the results of their lookups.
///
/// A compiler looks up "quoted" names in the folder of the including file first, so a file that is reached through
/// two folders is two nodes. The operating system resolves "..", so folders are told apart by device and inode, not
/// by their paths.
class IncludeGraph {
 public:
  IncludeGraph(const IncludeSearch& search, const std::map<std::string, std::string>& defines);

  /// Reads the files. Fails as find_dependencies() does.
  Result<void> build(std::string_view source);

  Dependencies dependencies() const;
  /// What build() found. Call it once.
  Observations take_observations() { return std::move(observations_); }

 private:
  /// The index of a node, or one of the special values.
  using Target = std::int64_t;
  static constexpr Target absent = -1;
  static constexpr Target unreadable = -2;
  static constexpr Target present = -3;
  static constexpr Target end_of_lookup = -4;
  static constexpr Target unreadable_in_toolkit = -5;
  static constexpr Target present_in_toolkit = -6;
  /// The results of several lookups, each with end_of_lookup at its end.
  using Targets = std::vector<Target>;

  struct Node {
    /// The path, or the name of a given header; empty for the source.
    std::string name;
    bool is_given = false;
    bool is_toolkit = false;
    std::shared_ptr<const ScannedFile> file;
    /// Equal for nodes of the same file. Compilers include a file with #pragma once only once, whatever its name.
    std::size_t same_file = 0;
    Targets results = {};
    Targets computed_results = {};
    /// The names that `computed_results` belong to, by lookup; null if they cannot be listed.
    std::vector<std::shared_ptr<const Macros::Names>> computed_names = {};
    /// The contents, if they were read for this node and have definitions that were not used yet.
    std::optional<std::string> text = {};
  };
  using FileId = std::pair<std::uint64_t, std::uint64_t>;

  Result<void> check_given_names() const;
  Result<void> follow_names();
  Result<void> follow_computed_names();
  Result<void> add_definitions();
  /// Makes every file of every folder a node, because the operand of an #include in the node may name any of them.
  /// Fails if the working folder is searched, which may contain anything.
  Result<void> add_everything(std::size_t from, const std::string& operand);
  Result<void> add_folder(const std::string& path);

  Result<void> look_up(std::size_t from, const Lookup& lookup, Targets& results);
  Result<Target> look_up_at(const std::string& path, LookupKind kind);
  Target look_up_existence(const std::string& path);
  Result<Target> look_up_given(const std::string& name);
  /// The result in the first folder that has the file; in all folders for #include_next.
  Result<void> search(std::size_t from, const Lookup& lookup, Targets& results);
  Result<std::size_t> add_node(Node node, const FileId& file, const FileId& folder);
  FileId folder_id(const std::string& path);
  Result<std::string> text_of(const Node& node) const;

  /// As the key counts the result: the same whether the file is the toolkit's or the user's.
  static Target in_key(Target target) noexcept;
  std::optional<Digest> digest_without_toolkit() const;
  /// The results of the lookups of a file of the user, on a machine without the toolkit.
  Targets without_toolkit(const Targets& results) const;
  bool leads_into_toolkit(Target target) const;
  bool uses_macros_of_toolkit(const Node& node) const;

  const IncludeSearch& search_;
  const ToolkitFiles toolkit_;
  /// The folders, each with a slash at its end.
  std::vector<std::string> places_;
  std::string source_;
  std::vector<Node> nodes_;
  /// Nodes before these were followed, and gave their definitions.
  std::size_t followed_ = 0;
  std::size_t defined_ = 0;
  Macros macros_;
  std::map<std::pair<FileId, FileId>, std::size_t> known_nodes_;
  std::map<FileId, std::size_t> same_files_;
  std::unordered_map<std::string, Target> targets_;
  std::unordered_map<std::string, Target> existing_;
  std::unordered_map<std::string, FileId> folder_ids_;
  std::set<std::string> missing_;
  Observations observations_;
  /// What add_everything() found: the names in each folder, with the nodes. A computed name may lead to any of
  /// them.
  base::ByteWriter everything_;
  bool has_everything_ = false;
  std::size_t listed_names_ = 0;
  /// The folders in `everything_`, by number: links may lead to a folder again.
  std::map<FileId, std::size_t> listed_folders_;
};

}  // namespace kiln::key
