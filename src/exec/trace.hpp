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

/// A file of what ran when, in the JSON that Perfetto and chrome://tracing open. Safe from any thread.
class Trace {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Begins `file`, or one beside it where another executor is writing that.
  static Result<std::unique_ptr<Trace>> open(const std::filesystem::path& file);
  Trace(base::FileHandle file, std::filesystem::path path) noexcept;
  ~Trace() { finish(); }
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// Names a track.
  void track(unsigned number, std::string_view name);
  /// Something that ran on a track; `details` is JSON, as in {"job": "conv"}.
  void ran(unsigned track, std::string_view name, std::string_view kind, Time begin, Time end,
           std::string_view details);

  /// Writes the end of it; what comes later is not in it.
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

/// A text as JSON writes it, with its quotes.
std::string as_json(std::string_view text);

}  // namespace kiln::exec
