#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <kiln/digest.hpp>

namespace kiln {

/// Decides, besides the request, whether a binary fits. It has two halves: the target, which is what a device
/// accepts (`api`, `vendor`, `device`, `driver`, `formats`), and the compiler. Cache folders and shared stores keep
/// programs apart by both halves; the target alone says whether a device can load a binary that was made elsewhere.
/// A value.
struct Identity {
  /// "opengl", "opencl", "vulkan", "cuda" or "hip" for Kiln's own backends.
  std::string api = {};
  std::string vendor = {};
  std::string device = {};
  std::string driver = {};
  std::string compiler = {};
  /// The binary formats that the driver accepts. If there are none, programs cannot be kept on disk.
  std::vector<std::uint32_t> formats = {};

  /// SHA-256 over all fields.
  Digest digest() const;
  /// SHA-256 over the target: all fields except `compiler`.
  Digest target_digest() const;
  /// The name of this identity's folder in a cache directory: readable, unique by its digest, safe as a file name.
  std::string folder() const;

  friend bool operator==(const Identity&, const Identity&) = default;
};

}  // namespace kiln
