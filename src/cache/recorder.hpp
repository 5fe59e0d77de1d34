#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
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
/// written fails no request: it is logged once, and recording ends. Its thread is not that of the saver, because
/// another process may hold the lock of the file.
class Recorder {
 public:
  /// How many requests may wait. Further ones are dropped.
  static constexpr std::size_t max_waiting = 4096;

  /// Without a path, nothing is recorded.
  Recorder(std::filesystem::path path, std::string api, Log log, const base::FileSystem& system,
           std::size_t queue = max_waiting)
      : api_(std::move(api)), log_(std::move(log)), file_(std::move(path), system), writer_(queue) {}

  /// Empty if nothing is recorded.
  const std::filesystem::path& path() const noexcept { return file_.path(); }
  /// Records a request that was answered by another level than memory, unless this has recorded it before. A
  /// request that is dropped can be noted again.
  void note(const Request& request, std::chrono::nanoseconds compile_time) KILN_EXCLUDES(mutex_);
  /// Waits until all earlier requests are recorded or failed.
  void flush() { writer_.flush(); }

 private:
  void record(const Request& request, std::chrono::nanoseconds compile_time);

  const std::string api_;
  const Log log_;
  std::atomic<bool> has_failed_{false};
  base::Mutex mutex_;
  std::set<Digest> noted_ KILN_GUARDED_BY(mutex_);
  key::RecordWriter file_;

  // Declared last: its thread must end before the members it uses are destroyed.
  Writer writer_;
};

}  // namespace kiln::cache
