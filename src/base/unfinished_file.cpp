#include "base/unfinished_file.hpp"

#include <array>
#include <cstdint>

#include <fcntl.h>
#include <sys/random.h>

#include <fmt/format.h>

namespace kiln::base {

UnfinishedFile::UnfinishedFile(int folder, mode_t mode, const FileSystem& system)
    : folder_(folder), system_(system) {
  // Random, because a name must differ from those of other machines, and those of processes with this pid there.
  std::array<std::uint64_t, 2> random = {};
  const bool is_random = getrandom(random.data(), sizeof random, 0) == sizeof random;
  name_ = fmt::format(".tmp-{:016x}{:016x}", random[0], random[1]);
  if (is_random)
    handle_ = FileHandle(
        system_.open(folder_, name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode), system_);
  exists_ = static_cast<bool>(handle_);
}

UnfinishedFile::~UnfinishedFile() {
  // NFS keeps an open file under another name.
  handle_.close();
  if (exists_) system_.unlink(folder_, name_.c_str());
}

bool UnfinishedFile::close_and_rename(const std::string& name) {
  if (!handle_.close() || system_.rename(folder_, name_.c_str(), name.c_str()) != 0) return false;
  exists_ = false;
  return true;
}

}  // namespace kiln::base
