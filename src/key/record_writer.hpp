#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
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
/// call. Thread-safe.
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
  /// record, or would be too large.
  Result<bool> add(const Request& request, std::string_view api, std::chrono::nanoseconds compile_time)
      KILN_EXCLUDES(mutex_);
  /// Adds a request of another record, with its files; false if this one has it. Fails with damaged if they are
  /// damaged there.
  Result<bool> add(const RequestRecord& from, const RequestRecord::Entry& entry) KILN_EXCLUDES(mutex_);

 private:
  /// An item that is to be appended, with its header.
  struct NewItem {
    Digest id;
    std::vector<std::byte> bytes;
  };
  /// Opens the file, and notes the items that others have appended since.
  Result<base::FileHandle> open() KILN_REQUIRES(mutex_);
  /// Notes the items after `end_`. Returns the end of the last complete one.
  Result<std::uint64_t> catch_up(const base::FileHandle& file) KILN_REQUIRES(mutex_);
  Result<std::vector<NewItem>> files_of(const Request& request, RecordedRequest& recorded) const
      KILN_REQUIRES(mutex_);
  /// Appends a request and those of its files that the record lacks; false if it has the request by now.
  Result<bool> append(const base::FileHandle& file, NewItem request, std::vector<NewItem> files)
      KILN_REQUIRES(mutex_);

  const std::filesystem::path path_;
  const base::FileSystem& system_;
  const std::chrono::milliseconds patience_;
  base::Mutex mutex_;
  // What is known of the file, which may be replaced by another one.
  std::pair<std::uint64_t, std::uint64_t> inode_ KILN_GUARDED_BY(mutex_) = {};
  std::uint64_t end_ KILN_GUARDED_BY(mutex_) = 0;
  std::set<Digest> requests_ KILN_GUARDED_BY(mutex_);
  std::set<Digest> files_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::key
