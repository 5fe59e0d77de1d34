#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include <sys/stat.h>

/// Which files this process trusts. Also compiled into libkiln_remote.
namespace kiln::base {

/// Whether the owner is this user or root.
bool is_trusted_owner(const struct stat& status);

/// Why other users may have written to a file or folder, with what to do: "it belongs to another user (uid 7);
/// ...". Nothing if only this user and root can write to it. A symbolic link has no permissions of its own, only an
/// owner.
std::optional<std::string> why_not_trusted(const struct stat& status, const std::filesystem::path& path);

}  // namespace kiln::base
