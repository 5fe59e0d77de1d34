#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

/// A binary of several parts: what a driver gave out, and what must be known to take it back.
namespace kiln::backend {

/// The parts, one after the other, each behind its length.
std::vector<std::byte> join_sections(std::initializer_list<std::span<const std::byte>> sections);

/// Exactly `count` parts that fill `bytes`; nothing where they do not.
std::optional<std::vector<std::span<const std::byte>>> split_sections(std::span<const std::byte> bytes,
                                                                      std::size_t count);

/// The same behind a checksum of it all, for drivers that trust whatever they are handed. It tells damage, not
/// malice: who can change a binary can change its checksum.
std::vector<std::byte> seal_sections(std::initializer_list<std::span<const std::byte>> sections);

/// Exactly `count` parts as seal_sections() took them; nothing where a bit has changed since.
std::optional<std::vector<std::span<const std::byte>>> unseal_sections(std::span<const std::byte> bytes,
                                                                       std::size_t count);

inline std::span<const std::byte> as_section(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}
inline std::string_view as_text(std::span<const std::byte> section) {
  return {reinterpret_cast<const char*>(section.data()), section.size()};
}

}  // namespace kiln::backend
