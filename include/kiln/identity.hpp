#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <kiln/digest.hpp>

namespace kiln {

/// What outside a request decides whether a binary fits. It has two halves: what a device accepts (`api`, `vendor`,
/// `device`, `driver`, `formats`) and who compiled (`compiler`). Cache folders and shared stores keep programs
/// apart by both halves; the first half alone says whether a device can load a binary that was made elsewhere.
struct Identity {
  std::string api = {};
  std::string vendor = {};
  std::string device = {};
  std::string driver = {};
  std::string compiler = {};
  /// The binary formats that the driver accepts. Without any, its programs cannot be kept on disk.
  std::vector<std::uint32_t> formats = {};

  /// SHA-256 over all fields.
  Digest digest() const;
  /// SHA-256 over what the device accepts: all fields but `compiler`.
  Digest target_digest() const;
  /// The name of this identity's folder: readable, unique by its digest, safe on every file system.
  std::string folder() const;

  friend bool operator==(const Identity&, const Identity&) = default;
};

}  // namespace kiln
