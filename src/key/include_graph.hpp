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

#include "key/dependencies.hpp"
#include "key/directives.hpp"
#include "key/file_index.hpp"

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
  /// Paths at which there was no regular file.
  std::vector<std::string> absent;
  /// Taken before the first file was read.
  std::chrono::system_clock::time_point time;
  /// False if the graph depends on more than is listed here.
  bool complete = true;
};

/// A source and the files that it can include. The nodes are files; the edges are the answers to their lookups.
///
/// A compiler looks up "quoted" names in the folder of the including file first, so a file that is reached through
/// two folders is two nodes. The kernel resolves "..", so folders are told apart by device and inode, not by their
/// paths.
class IncludeGraph {
 public:
  IncludeGraph(const IncludeSearch& search, const std::map<std::string, std::string>& defines);

  /// Reads the files. Fails as find_dependencies() does.
  Result<void> build(std::string_view source);

  Dependencies dependencies() const;
  /// What build() found. Call it once.
  Observations take_observations() { return std::move(observations_); }

 private:
  /// The index of a node, or one of the special answers.
  using Answer = std::int64_t;
  static constexpr Answer absent = -1;
  static constexpr Answer unreadable = -2;
  static constexpr Answer present = -3;
  static constexpr Answer end_of_lookup = -4;

  struct Node {
    /// The path, or the name of a given header; empty for the source.
    std::string name;
    bool is_given = false;
    std::shared_ptr<const ScannedFile> file;
    /// Equal for nodes of the same file. Compilers include a file with #pragma once only once, whatever its name.
    std::size_t same_file = 0;
    std::vector<Answer> answers = {};
    std::vector<Answer> computed_answers = {};
    /// The contents, if they were read for this node.
    std::optional<std::string> text = {};
  };
  using FileId = std::pair<std::uint64_t, std::uint64_t>;

  Result<void> check_given_names() const;
  Result<void> answer_all();
  Result<void> answer_computed();
  /// Makes every file of every folder a node, because the operand of an #include in `node` may name any of them.
  /// Fails if the working folder is searched, which may contain anything.
  Result<void> add_everything(const Node& node, const std::string& operand);

  Result<void> answer(std::size_t from, const Lookup& lookup, std::vector<Answer>& answers);
  Result<Answer> answer_at(const std::string& path, LookupKind kind);
  Answer answer_existence(const std::string& path);
  Result<Answer> answer_given(const std::string& name);
  /// The answer of the first folder that has the file; of all folders for #include_next.
  Result<void> search(std::size_t from, const Lookup& lookup, std::vector<Answer>& answers);
  Result<std::size_t> add_node(Node node, const FileId& file, const FileId& folder);
  FileId folder_id(const std::string& path);
  Result<std::string> text_of(const Node& node) const;

  const IncludeSearch& search_;
  const std::map<std::string, std::string>& defines_;
  /// The folders, each with a slash at its end.
  std::vector<std::string> places_;
  std::string source_;
  std::vector<Node> nodes_;
  std::map<std::pair<FileId, FileId>, std::size_t> known_nodes_;
  std::map<FileId, std::size_t> same_files_;
  std::unordered_map<std::string, Answer> answers_;
  std::unordered_map<std::string, bool> existing_;
  std::unordered_map<std::string, FileId> folder_ids_;
  std::set<std::string> missing_;
  Observations observations_;
  bool has_everything_ = false;
};

}  // namespace kiln::key
