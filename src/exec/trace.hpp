#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include <kiln/log.hpp>
#include <kiln/result.hpp>

#include "base/file.hpp"
#include "base/mutex.hpp"

namespace kiln::exec {

/// A timeline in the JSON format of Perfetto and chrome://tracing. Safe from any thread.
class Trace {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Creates `file`, or a file beside it if another executor is writing `file`.
  static Result<std::unique_ptr<Trace>> open(const std::filesystem::path& file);
  Trace(base::FileHandle file, std::filesystem::path path) noexcept;
  ~Trace() { finish(); }
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  void track(unsigned number, std::string_view name);
  /// Adds an event to a track. `details` is a JSON object, for example {"job": "conv"}.
  void ran(unsigned track, std::string_view name, std::string_view kind, Time begin, Time end,
           std::string_view details);

  /// Writes the end of the file; later events are dropped.
  void finish();

  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  void append(const std::string& event);
  void write_out() KILN_REQUIRES(mutex_);

  const std::filesystem::path path_;
  base::Mutex mutex_;
  base::FileHandle file_ KILN_GUARDED_BY(mutex_);
  std::string waiting_ KILN_GUARDED_BY(mutex_);
  bool empty_ KILN_GUARDED_BY(mutex_) = true;
  bool finished_ KILN_GUARDED_BY(mutex_) = false;
};

/// A quoted JSON string.
std::string as_json(std::string_view text);

}  // namespace kiln::exec
