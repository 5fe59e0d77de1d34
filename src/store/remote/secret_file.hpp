#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include <kiln/result.hpp>

#include "store/remote/reread.hpp"

namespace kiln::store {

/// Which permissions a file may have.
enum class FileAccess {
  any,
  /// Only this user and root can write to it.
  trusted,
};

/// The contents of a regular file; nothing if there is none. Fails with io; the message is a reason without a
/// subject.
Result<std::optional<std::string>> read_small_file(const std::string& path, std::size_t max_bytes,
                                                   FileAccess access);

/// A password or a token in a file, without white space at the ends.
class SecretFile : public Reread<std::string> {
 public:
  using Reread::Reread;
  /// Reads the file. Fails with io; the message is a reason without a subject.
  static Result<std::unique_ptr<SecretFile>> open(const std::string& path);
};

}  // namespace kiln::store
