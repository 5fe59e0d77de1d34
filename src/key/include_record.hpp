#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <kiln/digest.hpp>

#include "base/process.hpp"
#include "key/dependencies.hpp"
#include "key/file_index.hpp"
#include "key/include_graph.hpp"

namespace kiln::key {

/// The dependencies of a source, and the state of the file system for which they are valid. Checking a record costs
/// one stat() for each file and each folder; building the graph again costs a hundred times more.
class IncludeRecord {
 public:
  IncludeRecord(Dependencies dependencies, const Observations& observations);

  const Dependencies& dependencies() const noexcept { return dependencies_; }
  /// Whether it saves enough work to be kept on disk.
  bool is_large() const noexcept;
  std::size_t file_count() const noexcept { return files_.size(); }

  /// Whether all files and folders have the signatures that they had. Reads no file.
  bool is_current() const;
  enum class Refreshed { stale, unchanged, updated };
  /// Checks the contents of files, and the absence of files in folders, whose signatures changed or are not
  /// settled, and updates the signatures. If the record is stale, the graph must be built again.
  Refreshed refresh();

  std::vector<std::byte> to_bytes() const;
  /// Nothing if the bytes are damaged or of another version.
  static std::optional<IncludeRecord> from_bytes(std::span<const std::byte> bytes);

 private:
  struct File {
    std::string path;
    FileSignature signature;
    Digest digest;
    /// Whether an equal signature means equal contents.
    bool settled = false;

    bool operator==(const File&) const = default;
  };
  /// A folder, and paths below it at which there is no file. A file that is added changes the folder's signature.
  struct Folder {
    std::string path;
    FileSignature signature;
    bool settled = false;
    std::vector<std::string> absent = {};

    bool operator==(const Folder&) const = default;
  };

  IncludeRecord() = default;

  Dependencies dependencies_;
  std::vector<File> files_;
  std::vector<Folder> folders_;
  /// Paths at which a file, or no file, must be, checked each by itself.
  std::vector<std::string> present_;
  std::vector<std::string> absent_;
};

/// Records by request, in memory and on disk. Thread-safe, also after fork(). Failures of the disk are ignored: the
/// graph is built again.
class IncludeRecords {
 public:
  static IncludeRecords& of_process();

  /// The dependencies in the record of a source, if it is not stale. `search_digest` is the digest of
  /// all inputs of the search except the files themselves, absolute paths included.
  std::shared_ptr<const Dependencies> find(const Digest& search_digest) KILN_EXCLUDES(mutex_);
  void add(const Digest& search_digest, IncludeRecord record) KILN_EXCLUDES(mutex_);

 private:
  static void keep_on_disk(const Digest& search_digest, const IncludeRecord& record);
  std::shared_ptr<const IncludeRecord> find_in_memory(const Digest& search_digest) KILN_EXCLUDES(mutex_);
  void keep_in_memory(const Digest& search_digest, std::shared_ptr<const IncludeRecord> record)
      KILN_EXCLUDES(mutex_);

  base::ForkMutex mutex_{base::ForkMutex::Order::inner};
  std::map<Digest, std::shared_ptr<const IncludeRecord>> records_ KILN_GUARDED_BY(mutex_);
  std::size_t files_ KILN_GUARDED_BY(mutex_) = 0;
};

}  // namespace kiln::key
