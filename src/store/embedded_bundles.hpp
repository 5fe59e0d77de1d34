#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <kiln/log.hpp>

#include "base/file.hpp"

/// Bundles in the program and in its libraries (docs/embedding.md). cmake/KilnBundle.c.in embeds them.
namespace kiln::store {

/// A bundle that is a part of an executable or library. BundleFile::open_part() opens it.
struct EmbeddedBundle {
  base::FileHandle file = {};
  /// For messages, as in "bundle 1 of /usr/bin/app".
  std::string name = {};
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};

/// The bundles in the program and in the libraries that are loaded now, in the order in which these were loaded and
/// linked. Opens only files that have bundles. A file that cannot be read, that lost its bundles to `strip`, or
/// that was replaced since it was loaded has none; the log says so at the level debug.
std::vector<EmbeddedBundle> find_embedded_bundles(const Log& log);

/// The loaded note of a bundle: its size and its header, which covers its contents.
struct BundleNote {
  static constexpr std::size_t begin_bytes = 128;

  std::uint64_t bundle_bytes = 0;
  std::array<std::byte, begin_bytes> begin = {};
};

/// The notes of bundles among all notes of a segment. `alignment` is the segment's.
std::vector<BundleNote> find_bundle_notes(std::span<const std::byte> notes, std::size_t alignment);

/// The bundles in an ELF file that these notes belong to. `name` is the file's, for messages.
std::vector<EmbeddedBundle> find_bundles_in(const base::FileHandle& file, const std::string& name,
                                            std::vector<BundleNote> notes);

}  // namespace kiln::store
