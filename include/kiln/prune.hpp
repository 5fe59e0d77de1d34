#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>

#include <kiln/result.hpp>

namespace kiln {

/// What to remove from a cache directory.
struct PruneOptions {
  /// Remove programs that were not used for longer than this.
  std::optional<std::chrono::seconds> max_age = {};
  /// Then remove the least recently used until what is left is no larger than this.
  std::optional<std::uint64_t> max_bytes = {};
  /// Report what would be removed, and remove nothing.
  bool dry_run = false;
};

/// What prune() removed and left.
struct PruneReport {
  std::size_t removed = 0;
  std::uint64_t removed_bytes = 0;
  std::size_t kept = 0;
  std::uint64_t kept_bytes = 0;
  /// Files left behind by processes that died.
  std::size_t leftovers = 0;
};

/// Prunes a cache directory, all devices together; safe while processes use it.
Result<PruneReport> prune(const std::filesystem::path& directory, const PruneOptions& options);

}  // namespace kiln
