#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <set>
#include <string>
#include <utility>

#include <kiln/log.hpp>
#include <kiln/request.hpp>

#include "base/file_system.hpp"
#include "base/mutex.hpp"
#include "cache/saver.hpp"
#include "key/record_writer.hpp"

namespace kiln::cache {

/// Records the requests of a cache in the file of CacheOptions::record, in the background. A record that cannot be
/// written fails no request: it is logged once, and recording ends.
class Recorder {
 public:
  /// Without a path, nothing is recorded. `saver`, which runs the work, need not be constructed yet. It must end
  /// its work before this is destroyed.
  Recorder(std::filesystem::path path, std::string api, Saver& saver, Log log, const base::FileSystem& system)
      : api_(std::move(api)), saver_(saver), log_(std::move(log)), writer_(std::move(path), system) {}

  /// Empty if nothing is recorded.
  const std::filesystem::path& path() const noexcept { return writer_.path(); }
  /// Records a request that was answered by another level than memory, unless this has recorded it before.
  void note(const Request& request, std::chrono::nanoseconds compile_time) KILN_EXCLUDES(mutex_);

 private:
  void record(const Request& request, std::chrono::nanoseconds compile_time);

  const std::string api_;
  Saver& saver_;
  const Log log_;
  std::atomic<bool> has_failed_{false};
  base::Mutex mutex_;
  std::set<Digest> noted_ KILN_GUARDED_BY(mutex_);
  key::RecordWriter writer_;
};

}  // namespace kiln::cache
