#include "base/file_trust.hpp"

#include <fmt/format.h>
#include <unistd.h>

namespace kiln::base {

bool is_trusted_owner(const struct stat& status) { return status.st_uid == geteuid() || status.st_uid == 0; }

std::optional<std::string> why_not_trusted(const struct stat& status, const std::filesystem::path& path) {
  if (!is_trusted_owner(status))
    return fmt::format("it belongs to another user (uid {}); use one of your own", status.st_uid);
  if (!S_ISLNK(status.st_mode) && (status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return fmt::format("other users can write to it; fix its permissions with 'chmod go-w {}'", path.string());
  return std::nullopt;
}

}  // namespace kiln::base
