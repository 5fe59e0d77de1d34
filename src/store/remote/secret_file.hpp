#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <kiln/result.hpp>

#include "store/remote/reread.hpp"

namespace kiln::store {

/// The contents of a regular file. Fails with io; the message is a reason without a subject.
Result<std::string> read_small_file(const std::string& path, std::size_t max_bytes);

/// A password or a token in a file, without white space at the ends.
class SecretFile : public Reread<std::string> {
 public:
  using Reread::Reread;
  /// Reads the file. Fails with io; the message is a reason without a subject.
  static Result<std::unique_ptr<SecretFile>> open(const std::string& path);
};

}  // namespace kiln::store
