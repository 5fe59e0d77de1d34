#pragma once

#include <filesystem>

#include <kiln/prune.hpp>

#include "base/file_system.hpp"

namespace kiln::store {

/// kiln::prune() on a file system.
Result<PruneReport> prune_on(const base::FileSystem& system, const std::filesystem::path& directory,
                             const PruneOptions& options);

/// Whether nobody has pruned the directory for a day. In one that never was, the day begins now.
bool is_prune_due(const std::filesystem::path& directory, const base::FileSystem& system);

}  // namespace kiln::store
