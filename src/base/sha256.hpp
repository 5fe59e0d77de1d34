#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include <kiln/digest.hpp>

namespace kiln::base {

/// Throws std::runtime_error if OpenSSL fails.
Digest sha256(std::span<const std::byte> bytes);
Digest sha256(std::string_view text);

/// Parses 64 lower-case hexadecimal digits; nothing if `hex` is anything else.
std::optional<Digest> digest_from_hex(std::string_view hex);

}  // namespace kiln::base
