#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace kiln {

/// A SHA-256 digest. A value.
struct Digest {
  std::array<std::byte, 32> bytes{};

  /// Eight of its bytes as a number, uniformly distributed. `index` is 0 to 3, unchecked.
  std::uint64_t word(std::size_t index) const noexcept {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + sizeof word * index, sizeof word);
    return word;
  }

  /// Lower-case hexadecimal: the first `digits` of 64. Safe as a file name.
  std::string hex(std::size_t digits = 64) const;

  friend bool operator==(const Digest& a, const Digest& b) noexcept {
    return ((a.word(0) ^ b.word(0)) | (a.word(1) ^ b.word(1)) | (a.word(2) ^ b.word(2)) |
            (a.word(3) ^ b.word(3))) == 0;
  }
  friend auto operator<=>(const Digest& a, const Digest& b) noexcept = default;
};

}  // namespace kiln
