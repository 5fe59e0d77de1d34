#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <kiln/digest.hpp>
#include <kiln/identity.hpp>
#include <kiln/result.hpp>

#include "base/file.hpp"
#include "store/sealed_entry.hpp"

namespace kiln::baking {

/// The folder `OUTPUT.baking`, which keeps the programs of a bundle until all are compiled. Its lock excludes other
/// processes. Const functions may be called from any thread.
class PartFolder {
 public:
  /// Creates the folder for a bundle, or opens that of a call that did not end. `output` is absolute. Fails with
  /// timed_out if another process uses it, and with io.
  static Result<PartFolder> open(const std::filesystem::path& output);

  /// The folder of a request's files. It does not exist.
  std::filesystem::path request_folder(const Digest& id) const;
  /// An empty folder.
  const std::filesystem::path& empty_folder() const noexcept { return empty_; }
  /// Where the record of the bundle is written. It does not exist.
  std::filesystem::path record() const { return root_.path() / record_name; }

  struct Kept {
    std::vector<std::byte> sealed = {};
    /// Request::digest_without_toolkit()
    std::optional<Digest> without_toolkit = {};
  };
  /// The program if an earlier call compiled it, with these times.
  std::optional<Kept> find(const store::EntryLabel& label, std::chrono::nanoseconds compile_time,
                           std::chrono::system_clock::time_point created) const;
  Result<void> keep(const store::EntryLabel& label, const Kept& program) const;
  Result<Kept> read(const store::EntryLabel& label) const;

  /// Removes everything in it, and the folder itself.
  void remove();

 private:
  static constexpr const char* lock_name = "lock";
  static constexpr const char* record_name = "requests.kilnreq";
  static constexpr const char* entries_name = "entries";
  static constexpr const char* requests_name = "requests";

  PartFolder(base::Folder root, base::Folder entries, base::FileHandle lock_file, base::FileLock lock)
      : root_(std::move(root)),
        entries_(std::move(entries)),
        lock_file_(std::move(lock_file)),
        lock_(std::move(lock)),
        empty_(root_.path() / requests_name / "empty") {}

  base::Folder root_;
  base::Folder entries_;
  base::FileHandle lock_file_;
  base::FileLock lock_;
  std::filesystem::path empty_;
};

}  // namespace kiln::baking
