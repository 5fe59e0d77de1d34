#pragma once

#include <chrono>
#include <string>

/// Which files of a cache directory are Kiln's own: nothing else is ever removed.
namespace kiln::cli {

/// A temporary file that was not written to for so long belongs to no process that still lives.
inline constexpr std::chrono::hours leftover_age{1};

/// Whether Kiln gives such names to files it is about to rename.
bool is_temporary_file(const std::string& name);

/// Whether Kiln gives such names to files in a device folder.
bool is_device_file(const std::string& name);

/// Whether Kiln gives such names to files in the cache directory itself.
bool is_root_file(const std::string& name);

}  // namespace kiln::cli
