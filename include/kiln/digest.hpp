#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace kiln {

/// A SHA-256 digest.
struct Digest {
  std::array<std::byte, 32> bytes{};

  /// The first eight bytes as a number, uniformly distributed.
  std::uint64_t head() const noexcept {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    return word;
  }

  /// Lower-case hexadecimal, the first `digits` of 64.
  std::string hex(std::size_t digits = 64) const;

  friend bool operator==(const Digest& a, const Digest& b) noexcept {
    std::array<std::uint64_t, 4> x;
    std::array<std::uint64_t, 4> y;
    std::memcpy(x.data(), a.bytes.data(), 32);
    std::memcpy(y.data(), b.bytes.data(), 32);
    return ((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3])) == 0;
  }
  friend auto operator<=>(const Digest& a, const Digest& b) noexcept = default;
};

}  // namespace kiln
