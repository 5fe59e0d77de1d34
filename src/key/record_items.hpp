#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <kiln/digest.hpp>
#include <kiln/result.hpp>

#include "base/file.hpp"

/// The layout of a file of recorded requests: 16 bytes, then items that are only ever appended. docs/format.md
/// describes it byte by byte.
namespace kiln::key {

/// The file does not grow beyond this.
inline constexpr std::uint64_t max_record_file_bytes = std::uint64_t{1} << 30;
/// The largest request before compression.
inline constexpr std::uint64_t max_request_bytes = std::uint64_t{16} << 20;
inline constexpr std::size_t record_begin_bytes = 16;
inline constexpr std::size_t item_header_bytes = 104;

enum class ItemKind : std::uint32_t {
  /// The contents of a source or header. Its id is their SHA-256.
  file = 1,
  /// A RecordedRequest. Its id is RecordedRequest::id().
  request = 2,
};

struct Item {
  /// Other values are of later versions.
  ItemKind kind = ItemKind::file;
  Digest id = {};
  /// Of the packed contents.
  Digest checksum = {};
  std::uint64_t packed_bytes = 0;
  std::uint64_t bytes = 0;
  /// The place of the header in the file.
  std::uint64_t place = 0;

  std::uint64_t end() const noexcept { return place + item_header_bytes + packed_bytes; }
  bool operator==(const Item&) const = default;
};

/// The first bytes of the file.
std::array<std::byte, record_begin_bytes> record_begin();
/// Whether these are all bytes of a file whose first write has not ended, or was never completed.
bool is_unfinished_begin(std::span<const std::byte> begin);
/// What is wrong with the first bytes of a file; nothing if items of this version follow.
std::optional<std::string_view> why_no_record(std::span<const std::byte> begin);

/// The header and the packed contents of an item.
std::vector<std::byte> pack_item(ItemKind kind, const Digest& id, std::span<const std::byte> contents);
/// The file of a record, or the part of a larger file that is a record. Non-owning. Places are relative to its
/// begin.
struct RecordPlace {
  RecordPlace(const base::FileHandle& whole) : file(whole) {}
  RecordPlace(const base::FileHandle& larger, std::uint64_t begins_at, std::uint64_t bytes)
      : file(larger), begin(begins_at), size(bytes) {}

  const base::FileHandle& file;
  std::uint64_t begin = 0;
  /// Nothing: up to the end of the file, which may grow.
  std::optional<std::uint64_t> size = {};
};

/// Reads and unpacks the contents. Fails with damaged if they are not what was written, and with io.
Result<std::vector<std::byte>> read_contents(const RecordPlace& file, const Item& item);
/// Reads the item as it is in the file, with its header. Checks the contents and fails as read_contents() does.
Result<std::vector<std::byte>> read_packed(const RecordPlace& file, const Item& item);

/// Finds the items of a file one after the other. Reads only their headers. After a damaged header, goes on at the
/// next valid one.
class ItemFinder {
 public:
  /// How many damaged places are skipped, and how many invalid headers.
  static constexpr std::size_t max_damaged = 10'000;

  /// Begins at `place`, where an item begins or ended. The open file must outlive this.
  ItemFinder(const RecordPlace& file, std::uint64_t place) : file_(file), place_(place) {}

  /// The next complete item; nothing if there is none. Fails with io, and with unsupported after max_damaged.
  Result<std::optional<Item>> next();
  /// The end of the last complete item. What follows is damaged, or is being written, or is what a killed writer
  /// left.
  std::uint64_t end() const noexcept { return place_; }
  /// How many damaged places were skipped.
  std::size_t damaged() const noexcept { return damaged_; }

 private:
  Result<std::optional<Item>> item_at(std::uint64_t place) const;
  /// The next valid header after `place`.
  Result<std::optional<Item>> find_after(std::uint64_t place);

  const RecordPlace file_;
  std::uint64_t place_;
  std::size_t damaged_ = 0;
  std::size_t invalid_headers_ = 0;
};

/// Reads up to `size` bytes at `place`; fewer at the end.
Result<std::vector<std::byte>> read_at(const RecordPlace& file, std::uint64_t place, std::size_t size);
Result<std::uint64_t> size_of(const RecordPlace& file);

}  // namespace kiln::key
