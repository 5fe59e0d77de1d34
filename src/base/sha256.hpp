#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include <kiln/digest.hpp>

namespace kiln::base {

/// The SHA-256 of some bytes.
Digest sha256(std::span<const std::byte> bytes);
Digest sha256(std::string_view text);

/// The digest a 64-digit lower-case hexadecimal text stands for.
std::optional<Digest> digest_from_hex(std::string_view hex);

}  // namespace kiln::base
