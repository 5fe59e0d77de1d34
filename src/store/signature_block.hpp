#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <kiln/result.hpp>

namespace kiln::store {

/// A signature of an entry or a bundle, not verified: see signatures.hpp.
struct Signature {
  /// From 1 to 255 bytes of any kind; signers of Kiln have the name of a key.
  std::string signer = {};
  std::array<std::byte, 64> bytes = {};
};

/// The maximum size of the signatures of one entry or bundle.
inline constexpr std::uint32_t max_signature_bytes = 64 << 10;

/// Reads the signatures of an entry or a bundle (docs/format.md). Nothing if they are malformed or too large.
std::optional<std::vector<Signature>> read_signatures(std::span<const std::byte> block);

/// The signatures as they are written, sorted by signer. Fails with invalid_request if two have one signer, a name
/// has no valid size, or they are too large.
Result<std::vector<std::byte>> signature_block(std::span<const Signature> signatures);

}  // namespace kiln::store
