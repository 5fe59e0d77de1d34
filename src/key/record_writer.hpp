#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <kiln/request.hpp>
#include <kiln/result.hpp>

#include "base/file.hpp"
#include "base/mutex.hpp"
#include "key/record_items.hpp"
#include "key/recorded_request.hpp"
#include "key/request_record.hpp"

namespace kiln::key {

/// Appends requests to a record file (docs/records.md), each once. Any number of writers, in this process and in
/// others, may share one file; a lock on the file excludes them from each other. The file is open only during a
/// call. An item that is damaged is appended again if a request needs it. Thread-safe.
class RecordWriter {
 public:
  /// Writers hold the lock of the file for one write.
  static constexpr std::chrono::milliseconds lock_patience = std::chrono::seconds(10);

  /// The file is created by the first request. `system` must outlive this.
  explicit RecordWriter(std::filesystem::path path, const base::FileSystem& system = base::FileSystem::system(),
                        std::chrono::milliseconds patience = lock_patience)
      : path_(std::move(path)), system_(system), patience_(patience) {}

  const std::filesystem::path& path() const noexcept { return path_; }

  /// Adds a request with the files that it can include; false if the record has it. Fails with outdated if this
  /// request cannot be recorded, because a file changed or cannot be read; others still can. All other errors are
  /// those of the record: io, timed_out if another process holds its lock, and unsupported if the file is no
  /// record, is damaged in too many places, or would be too large.
  Result<bool> add(const Request& request, std::string_view api, std::chrono::nanoseconds compile_time)
      KILN_EXCLUDES(mutex_);
  /// Adds a request of another record, with its files; false if this one has it. Fails with damaged if they are
  /// damaged there.
  Result<bool> add(const RequestRecord& from, const RequestRecord::Entry& entry) KILN_EXCLUDES(mutex_);

 private:
  /// Returns the packed item of a file.
  using Pack = std::function<Result<std::vector<std::byte>>(const Digest&)>;
  /// What a request adds to the record.
  struct Addition {
    Digest id = {};
    /// The packed item of the request.
    std::vector<std::byte> request = {};
    /// The files that the request needs, and the packed items of those that the record lacked.
    std::set<Digest> needed = {};
    std::map<Digest, std::vector<std::byte>> files = {};
  };
  /// An item of the file.
  struct Known {
    Item item;
    /// Whether its contents were read, and are not damaged.
    bool is_checked = false;
  };
  using KnownItems = std::map<Digest, Known>;

  Result<bool> has_request(const Digest& id) KILN_EXCLUDES(mutex_);
  /// Which of these files the record lacks, or has only damaged.
  Result<std::vector<Digest>> lacking(const std::set<Digest>& files) KILN_EXCLUDES(mutex_);
  /// Packs the files that the record lacks, without the mutex, and appends them with the request; false if the
  /// record has the request by now.
  Result<bool> append(Addition addition, const Pack& pack) KILN_EXCLUDES(mutex_);
  /// Nothing if the record lacks a file that was not packed, because the record was replaced meanwhile.
  Result<std::optional<bool>> try_append(const Addition& addition) KILN_EXCLUDES(mutex_);

  /// Opens the file, and notes the items that others have appended since.
  Result<base::FileHandle> open() KILN_REQUIRES(mutex_);
  /// Notes the items after `end_`. Returns the end of the last complete one; 0 if the file has no begin yet.
  Result<std::uint64_t> catch_up(const base::FileHandle& file) KILN_REQUIRES(mutex_);
  /// Whether the file still has the last noted item.
  Result<bool> is_continued(const base::FileHandle& file) const KILN_REQUIRES(mutex_);
  void forget() KILN_REQUIRES(mutex_);
  /// Whether the file has an item with undamaged contents. Reads them once.
  Result<bool> has(const base::FileHandle& file, KnownItems& items, const Digest& id) const KILN_REQUIRES(mutex_);
  Error unusable(const Error& error) const;

  const std::filesystem::path path_;
  const base::FileSystem& system_;
  const std::chrono::milliseconds patience_;
  base::Mutex mutex_;
  // What is known of the file, which may be replaced by another one, also in place.
  std::pair<std::uint64_t, std::uint64_t> inode_ KILN_GUARDED_BY(mutex_) = {};
  std::uint64_t end_ KILN_GUARDED_BY(mutex_) = 0;
  /// The header of the last noted item; empty if there is none.
  std::uint64_t last_place_ KILN_GUARDED_BY(mutex_) = 0;
  std::vector<std::byte> last_header_ KILN_GUARDED_BY(mutex_);
  KnownItems requests_ KILN_GUARDED_BY(mutex_);
  KnownItems files_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::key
