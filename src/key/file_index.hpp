#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <sys/stat.h>

#include <kiln/digest.hpp>
#include <kiln/result.hpp>

#include "base/bytes.hpp"
#include "base/process.hpp"
#include "key/directives.hpp"

namespace kiln::key {

/// The stat data that identify a file or folder and its state. A changed file has another signature, unless it
/// changes twice within the resolution of its file system's clock: see was_settled().
struct FileSignature {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t bytes = 0;
  /// Nanoseconds since 1970.
  std::int64_t modified = 0;
  std::int64_t status_changed = 0;

  static FileSignature of(const struct stat& status) noexcept;
  bool is_same_file(const FileSignature& other) const noexcept {
    return device == other.device && inode == other.inode;
  }
  /// Whether the file had not changed for two seconds at `now`, so that every later change gives it another
  /// signature. Two seconds is the coarsest resolution of file times. False for times in the future.
  bool was_settled(std::chrono::system_clock::time_point now) const noexcept;

  bool operator==(const FileSignature&) const = default;
};
void write(base::ByteWriter& writer, const FileSignature& signature);

/// The digest of a file's contents and the files that it names.
struct ScannedFile {
  Digest digest;
  Directives directives;
};

/// Digests and directives of files that this process has read, by signature. Thread-safe, also after fork().
class FileIndex {
 public:
  /// The largest file that a source may include.
  static constexpr std::uint64_t max_file_bytes = std::uint64_t{256} << 20;

  static FileIndex& of_process();

  struct Read {
    /// Null if this process may not read the file.
    std::shared_ptr<const ScannedFile> file;
    FileSignature signature;
    /// The contents, if they were read for this.
    std::optional<std::string> text = {};
  };
  /// Nothing if there is no regular file at this path. Fails with io if the system fails, and with invalid_request
  /// if the file is too large. `now` must be taken before the call.
  Result<std::optional<Read>> read(const std::string& path, std::chrono::system_clock::time_point now)
      KILN_EXCLUDES(mutex_);

 private:
  struct Hash {
    std::size_t operator()(const FileSignature& signature) const noexcept {
      return static_cast<std::size_t>((signature.inode * 0x9E3779B97F4A7C15U) ^
                                      static_cast<std::uint64_t>(signature.status_changed));
    }
  };
  std::shared_ptr<const ScannedFile> find(const FileSignature& signature) KILN_EXCLUDES(mutex_);
  void add(const FileSignature& signature, std::shared_ptr<const ScannedFile> file) KILN_EXCLUDES(mutex_);

  base::ForkMutex mutex_{base::ForkMutex::Order::inner};
  std::unordered_map<FileSignature, std::shared_ptr<const ScannedFile>, Hash> files_ KILN_GUARDED_BY(mutex_);
};

/// The contents of a regular file; nothing if there is none at this path, or none that this process may read. Fails
/// as FileIndex::read() does.
Result<std::optional<std::string>> read_text(const std::string& path);

}  // namespace kiln::key
