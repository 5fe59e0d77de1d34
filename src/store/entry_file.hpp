#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <kiln/digest.hpp>
#include <kiln/result.hpp>
#include <kiln/store.hpp>

namespace kiln::store {

/// No entry file is larger, nor anything unpacked from one.
inline constexpr std::uint64_t max_entry_bytes = std::uint64_t{1} << 30;

/// An entry file's contents as docs/format.md describes them.
std::vector<std::byte> encode_entry(const Digest& key, const Digest& identity, const Entry& entry);

/// An entry file that was checked whole, and what it says it is.
struct DecodedEntry {
  Digest key;
  Digest identity;
  Entry entry;
};

/// Checks every byte and unpacks. Anything that is not exactly what encode_entry() made is ErrorCode::damaged,
/// with a sentence that says what is wrong.
Result<DecodedEntry> decode_entry(std::span<const std::byte> file);

}  // namespace kiln::store
