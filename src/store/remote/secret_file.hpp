#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include <kiln/result.hpp>

#include "base/mutex.hpp"

namespace kiln::store {

/// A password or a token in a file, which may change while the process runs. Thread-safe.
class SecretFile {
 public:
  /// How long a secret that was read is used.
  static constexpr std::chrono::seconds lifetime{1};

  /// Reads the file. Fails with io; the message is a reason without a subject.
  static Result<std::unique_ptr<SecretFile>> open(const std::string& path);

  /// The contents without white space at the ends, at most `lifetime` old, or the error of open(). Meanwhile other
  /// threads get what was read before, so a file system that hangs delays one call.
  Result<std::string> read();

 private:
  using Clock = std::chrono::steady_clock;

  SecretFile(std::string path, std::string secret) : path_(std::move(path)), last_(std::move(secret)) {}

  const std::string path_;
  base::Mutex mutex_;
  Result<std::string> last_ KILN_GUARDED_BY(mutex_);
  Clock::time_point next_read_ KILN_GUARDED_BY(mutex_) = Clock::now() + lifetime;
  bool is_reading_ KILN_GUARDED_BY(mutex_) = false;
};

}  // namespace kiln::store
