#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <kiln/digest.hpp>

namespace kiln {

/// What outside a request decides whether a binary fits: a binary made under one identity is only ever loaded
/// under an equal one.
struct Identity {
  std::string api = {};
  std::string vendor = {};
  std::string device = {};
  std::string driver = {};
  std::string compiler = {};
  /// The binary formats the driver takes; none means that its programs cannot be kept on disk.
  std::vector<std::uint32_t> formats = {};

  /// SHA-256 over all fields.
  Digest digest() const;
  /// The name of this identity's folder: readable, unique by its digest, safe on every file system.
  std::string folder() const;

  friend bool operator==(const Identity&, const Identity&) = default;
};

}  // namespace kiln
