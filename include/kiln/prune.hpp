#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>

#include <kiln/result.hpp>

namespace kiln {

/// Which programs to remove from a cache directory. Without bounds, only leftovers are removed.
struct PruneOptions {
  /// Remove programs whose last use is longer ago. Uses are recorded to the hour.
  std::optional<std::chrono::seconds> max_age = {};
  /// Then remove the least recently used programs until the rest takes at most this many bytes.
  std::optional<std::uint64_t> max_bytes = {};
  /// Remove nothing, and report what would be removed.
  bool dry_run = false;
};

/// The outcome of prune().
struct PruneReport {
  /// Programs that this call removed, and their bytes.
  std::size_t removed = 0;
  std::uint64_t removed_bytes = 0;
  /// Programs that are left, and their bytes.
  std::size_t kept = 0;
  std::uint64_t kept_bytes = 0;
  /// Removed files that dead processes had left behind.
  std::size_t leftovers = 0;
};

/// Removes programs of all devices from a cache directory. Safe from any thread, and while processes use the
/// directory: a program that is removed is compiled again when it is next requested. A missing directory is an
/// empty one. Fails with io if the directory cannot be read, or if none of the programs to remove could be removed;
/// otherwise those that could not be removed count as kept.
Result<PruneReport> prune(const std::filesystem::path& directory, const PruneOptions& options);

}  // namespace kiln
