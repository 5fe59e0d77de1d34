#include "backend/sections.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace kiln::backend {
namespace {

using Seal = std::array<std::byte, 16>;

Seal seal_of(std::span<const std::byte> bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  Seal seal;
  static_assert(sizeof seal == sizeof canonical.digest);
  std::memcpy(seal.data(), canonical.digest, sizeof seal);
  return seal;
}

}  // namespace

std::vector<std::byte> join_sections(std::initializer_list<std::span<const std::byte>> sections) {
  std::vector<std::byte> bytes;
  for (const auto section : sections) {
    const std::uint64_t size = section.size();
    for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<std::byte>(size >> shift & 0xff));
    bytes.insert(bytes.end(), section.begin(), section.end());
  }
  return bytes;
}

std::optional<std::vector<std::span<const std::byte>>> split_sections(std::span<const std::byte> bytes,
                                                                      std::size_t count) {
  std::vector<std::span<const std::byte>> sections;
  for (std::size_t i = 0; i < count; ++i) {
    if (bytes.size() < 8) return std::nullopt;
    std::uint64_t size = 0;
    for (std::size_t b = 0; b < 8; ++b) size |= std::to_integer<std::uint64_t>(bytes[b]) << (8 * b);
    bytes = bytes.subspan(8);
    if (size > bytes.size()) return std::nullopt;
    sections.push_back(bytes.first(static_cast<std::size_t>(size)));
    bytes = bytes.subspan(static_cast<std::size_t>(size));
  }
  if (!bytes.empty()) return std::nullopt;
  return sections;
}

std::vector<std::byte> seal_sections(std::initializer_list<std::span<const std::byte>> sections) {
  std::vector<std::byte> bytes = join_sections(sections);
  const Seal seal = seal_of(bytes);
  bytes.insert(bytes.begin(), seal.begin(), seal.end());
  return bytes;
}

std::optional<std::vector<std::span<const std::byte>>> unseal_sections(std::span<const std::byte> bytes,
                                                                       std::size_t count) {
  if (bytes.size() < sizeof(Seal)) return std::nullopt;
  const auto sealed = bytes.subspan(sizeof(Seal));
  if (!std::ranges::equal(seal_of(sealed), bytes.first(sizeof(Seal)))) return std::nullopt;
  return split_sections(sealed, count);
}

}  // namespace kiln::backend
