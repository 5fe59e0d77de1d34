#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

/// Binaries of several sections: the driver's binary, and the data that Kiln needs to load it.
namespace kiln::backend {

/// Concatenates the sections, each preceded by its length.
std::vector<std::byte> join_sections(std::initializer_list<std::span<const std::byte>> sections);

/// Splits `bytes` into exactly `count` sections; nullopt if they do not fill `bytes`.
std::optional<std::vector<std::span<const std::byte>>> split_sections(std::span<const std::byte> bytes,
                                                                      std::size_t count);

/// Concatenates the sections as join_sections() does, preceded by a checksum, for drivers that do not validate
/// binaries. The checksum detects damage, not tampering: an attacker who can change a binary can change its
/// checksum.
std::vector<std::byte> seal_sections(std::initializer_list<std::span<const std::byte>> sections);

/// Splits the result of seal_sections() into exactly `count` sections; nullopt if the checksum does not match.
std::optional<std::vector<std::span<const std::byte>>> unseal_sections(std::span<const std::byte> bytes,
                                                                       std::size_t count);

inline std::span<const std::byte> as_section(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}
inline std::string_view as_text(std::span<const std::byte> section) {
  return {reinterpret_cast<const char*>(section.data()), section.size()};
}

}  // namespace kiln::backend
