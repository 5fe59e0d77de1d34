#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <kiln/digest.hpp>
#include <kiln/result.hpp>

/// The layout of bundles, for their reader and writer. docs/bundles.md describes it byte by byte.
namespace kiln::store {

inline constexpr std::uint32_t bundle_format = 1;
/// Entries, the record of requests and the index begin at multiples of this.
inline constexpr std::uint64_t bundle_alignment = 64;
inline constexpr std::size_t bundle_header_bytes = 128;
/// The index begins with its sizes; its tables follow.
inline constexpr std::size_t index_begin_bytes = 72;
inline constexpr std::size_t index_target_bytes = 40;
inline constexpr std::size_t index_row_bytes = 88;
/// A row of the second table, which finds programs without the headers of a toolkit.
inline constexpr std::size_t index_second_row_bytes = 40;
/// What precedes the signatures: their size and checksum.
inline constexpr std::size_t bundle_signatures_begin_bytes = 16;

/// Bound the memory and time for a bundle that someone else made.
inline constexpr std::uint64_t max_index_bytes = std::uint64_t{256} << 20;
inline constexpr std::size_t max_bundle_identities = 4096;
/// A sealed entry begins with 16 bytes, the SHA-256 of its body, and 16 more.
inline constexpr std::size_t sealed_digest_at = 16;
inline constexpr std::uint64_t least_sealed_bytes = 64;

inline constexpr std::uint64_t aligned_for_bundle(std::uint64_t offset) {
  return (offset + bundle_alignment - 1) / bundle_alignment * bundle_alignment;
}

/// XXH3, 64 bits.
std::uint64_t xxh3_64(std::span<const std::byte> bytes);
/// XXH3, 128 bits, in the canonical order of its bytes.
std::array<std::byte, 16> xxh3_128(std::span<const std::byte> bytes);

/// The first bytes of a bundle. All offsets are relative to its begin.
struct BundleHeader {
  std::uint64_t index_offset = 0;
  std::uint64_t index_bytes = 0;
  /// The record of requests; 0 and 0 if there is none. The index has its size too, and its digest.
  std::uint64_t record_offset = 0;
  std::uint64_t record_bytes = 0;
  std::array<std::byte, 16> index_checksum = {};
  Digest index_digest = {};

  /// With its checksum.
  std::vector<std::byte> to_bytes() const;
  /// `bytes` has the header, or less if the file is shorter. Fails with damaged, and with unsupported for another
  /// format. Checks the sizes, and that the index and the record do not overlap, but not that they are in the file.
  static Result<BundleHeader> from_bytes(std::span<const std::byte> bytes);
};

/// The signatures as they are at the end of a bundle, after their size.
std::vector<std::byte> bundle_signatures(std::span<const std::byte> block);

/// The bytes that a signature of a bundle covers.
std::vector<std::byte> signed_bytes_of_bundle(const Digest& index_digest);

}  // namespace kiln::store
