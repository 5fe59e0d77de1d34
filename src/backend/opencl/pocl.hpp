#pragma once

#include <optional>
#include <string_view>

#include "base/file.hpp"
#include "base/file_lock.hpp"

namespace kiln::opencl {

// PoCL puts a binary together from the files of its own cache, out of which another process that compiles the same
// takes the program before it puts it back. The binary then has none, or an empty one, and PoCL ends the process
// that hands it back.

/// Whether a driver's binary is not one that PoCL left the program out of.
bool is_whole(std::string_view image);

/// One's turn to have PoCL compile a text, which no other of this user's has at the same time: in this process or
/// another one. Who cannot get it, as where no file can be locked, has one as well; then is_whole() tells.
class PoclTurn {
 public:
  PoclTurn(std::string_view source, std::string_view options);

 private:
  base::FileHandle file_;
  std::optional<base::FileLock> lock_;
};

}  // namespace kiln::opencl
