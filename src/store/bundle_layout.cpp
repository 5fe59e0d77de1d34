#include "store/bundle_layout.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "key/record_items.hpp"

namespace kiln::store {
namespace {

constexpr std::string_view bundle_magic = "KILNBDL\n";
// Bytes that are signed begin with it, so that a signature of a bundle is valid for nothing else.
constexpr std::string_view bundle_signature_domain("kiln bundle signature 1\0", 24);
constexpr std::size_t header_reserved_at = 96;
constexpr std::size_t header_checksum_at = bundle_header_bytes - sizeof(std::uint64_t);

Error damaged_header(std::string why) { return Error(ErrorCode::damaged, std::move(why)); }

}  // namespace

std::uint64_t xxh3_64(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::array<std::byte, 16> xxh3_128(std::span<const std::byte> bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  std::array<std::byte, 16> checksum{};
  static_assert(sizeof canonical == sizeof checksum);
  std::memcpy(checksum.data(), &canonical, checksum.size());
  return checksum;
}

std::vector<std::byte> BundleHeader::to_bytes() const {
  base::ByteWriter writer;
  writer.raw(std::as_bytes(std::span(bundle_magic)));
  writer.number(bundle_format);
  writer.number(static_cast<std::uint32_t>(bundle_header_bytes));
  writer.number(index_offset);
  writer.number(index_bytes);
  writer.number(record_offset);
  writer.number(record_bytes);
  writer.raw(index_checksum);
  writer.raw(index_digest.bytes);
  writer.raw(std::vector<std::byte>(header_checksum_at - writer.bytes().size()));
  writer.number(xxh3_64(writer.bytes()));
  return std::move(writer).bytes();
}

Result<BundleHeader> BundleHeader::from_bytes(std::span<const std::byte> bytes) {
  const auto magic_bytes = std::as_bytes(std::span(bundle_magic));
  const std::size_t begin = std::min(bytes.size(), magic_bytes.size());
  if (bytes.empty() || !std::ranges::equal(bytes.first(begin), magic_bytes.first(begin)))
    return damaged_header(bytes.empty() ? "it is empty" : "it does not begin as bundles do");
  if (bytes.size() < bundle_header_bytes)
    return damaged_header(fmt::format("it is truncated: it has {} bytes, fewer than its header of {}", bytes.size(),
                                      bundle_header_bytes));
  base::ByteReader reader(bytes.first(bundle_header_bytes).subspan(magic_bytes.size()));
  // Another format may have another header, so this precedes the checksum.
  if (const auto format = reader.number<std::uint32_t>(); format != bundle_format)
    return Error(ErrorCode::unsupported,
                 fmt::format("it has format {}, but this version of Kiln reads format {}", format, bundle_format));
  const auto size = reader.number<std::uint32_t>();
  BundleHeader header;
  header.index_offset = reader.number<std::uint64_t>();
  header.index_bytes = reader.number<std::uint64_t>();
  header.record_offset = reader.number<std::uint64_t>();
  header.record_bytes = reader.number<std::uint64_t>();
  std::ranges::copy(reader.raw(header.index_checksum.size()), header.index_checksum.begin());
  std::ranges::copy(reader.raw(header.index_digest.bytes.size()), header.index_digest.bytes.begin());
  std::uint64_t checksum = 0;
  std::memcpy(&checksum, bytes.data() + header_checksum_at, sizeof checksum);
  if (checksum != xxh3_64(bytes.first(header_checksum_at)))
    return damaged_header("the checksum of its header does not match");
  if (size != bundle_header_bytes)
    return damaged_header(fmt::format("it declares a header of {} bytes, which does not match its format", size));
  if (header.index_bytes < index_begin_bytes || header.index_bytes > max_index_bytes)
    return damaged_header(fmt::format("it claims an index of {} bytes, but an index has {} to {}",
                                      header.index_bytes, index_begin_bytes, max_index_bytes));
  const auto reserved = reader.raw(header_checksum_at - header_reserved_at);
  if (std::ranges::any_of(reserved, [](std::byte each) { return each != std::byte{0}; }))
    return damaged_header("its header has other bytes than zeros where format 1 has none");
  if (header.record_bytes > key::max_record_file_bytes)
    return damaged_header(fmt::format("it claims requests of {} bytes, more than {}", header.record_bytes,
                                      key::max_record_file_bytes));
  // Differences, because sums of what a file claims may overflow.
  const bool has_record = header.record_bytes != 0;
  const bool is_index_placed = header.index_offset >= bundle_header_bytes &&
                               header.index_offset % bundle_alignment == 0 && header.index_offset <= UINT64_MAX / 2;
  const bool is_record_placed = has_record ? header.record_offset >= bundle_header_bytes &&
                                                 header.record_offset % bundle_alignment == 0 &&
                                                 header.record_offset <= header.index_offset &&
                                                 header.record_bytes <= header.index_offset - header.record_offset
                                           : header.record_offset == 0;
  if (!is_index_placed || !is_record_placed)
    return damaged_header("its header claims parts at places where they cannot be");
  return header;
}

std::vector<std::byte> bundle_signatures(std::span<const std::byte> block) {
  base::ByteWriter writer;
  writer.number(static_cast<std::uint32_t>(block.size()));
  writer.number(std::uint32_t{0});
  writer.number(xxh3_64(block));
  writer.raw(block);
  return std::move(writer).bytes();
}

std::vector<std::byte> signed_bytes_of_bundle(const Digest& index_digest) {
  base::ByteWriter writer;
  writer.raw(std::as_bytes(std::span(bundle_signature_domain)));
  writer.raw(index_digest.bytes);
  return std::move(writer).bytes();
}

}  // namespace kiln::store
