#include "key/record_items.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include <sys/stat.h>

#include <fmt/format.h>
#include <zstd.h>

#include "base/bytes.hpp"
#include "base/sha256.hpp"
#include "base/try.hpp"
#include "key/file_index.hpp"

namespace kiln::key {
namespace {

constexpr std::string_view magic = "KILNREQ\n";
constexpr std::uint32_t version = 1;
constexpr std::string_view item_magic = "KILNITEM";
/// The part of an item's header that its last field covers.
constexpr std::size_t checked_header_bytes = item_header_bytes - sizeof(std::uint64_t);
/// zstd unpacks a compressed block, of at least 4 bytes, to at most 128 KiB.
constexpr std::uint64_t most_bytes_per_packed_byte = (std::uint64_t{128} << 10) / 4;
constexpr int compression_level = 3;

Error damaged(std::string why) { return Error(ErrorCode::damaged, std::move(why)); }

std::uint64_t check_of(std::span<const std::byte> header) {
  return base::sha256(header.first(checked_header_bytes)).word(0);
}

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

/// The header at the front of these bytes; nothing if there is no valid one.
std::optional<Item> parse_header(std::span<const std::byte> bytes, std::uint64_t place) {
  if (bytes.size() < item_header_bytes || !std::ranges::equal(bytes.first(item_magic.size()), bytes_of(item_magic)))
    return std::nullopt;
  base::ByteReader reader(bytes.first(item_header_bytes));
  reader.raw(item_magic.size());
  Item item{.place = place};
  item.kind = static_cast<ItemKind>(reader.number<std::uint32_t>());
  reader.raw(sizeof(std::uint32_t));
  item.packed_bytes = reader.number<std::uint64_t>();
  item.bytes = reader.number<std::uint64_t>();
  std::ranges::copy(reader.raw(item.id.bytes.size()), item.id.bytes.begin());
  std::ranges::copy(reader.raw(item.checksum.bytes.size()), item.checksum.bytes.begin());
  if (reader.number<std::uint64_t>() != check_of(bytes)) return std::nullopt;
  // Such sizes are not written.
  if (item.packed_bytes > max_record_file_bytes || item.bytes > FileIndex::max_file_bytes) return std::nullopt;
  return item;
}

/// Checks what a caller got for a whole item.
Result<void> check_packed(std::span<const std::byte> packed, const Item& item) {
  if (packed.size() != item.packed_bytes || base::sha256(packed) != item.checksum)
    return damaged("it has a damaged item");
  return {};
}

std::uint64_t max_bytes_of(ItemKind kind) {
  return kind == ItemKind::request ? max_request_bytes : FileIndex::max_file_bytes;
}

Error too_much_damage() {
  return Error(ErrorCode::unsupported, fmt::format("it has more than {} damaged items", ItemFinder::max_damaged));
}

/// The contents of an item whose packed contents were checked.
Result<std::vector<std::byte>> unpack(std::span<const std::byte> packed, const Item& item) {
  if (item.bytes > max_bytes_of(item.kind)) return damaged("it has an item that is too large");
  // Before the claimed size is allocated: the frame must agree, and be large enough for it.
  if (ZSTD_getFrameContentSize(packed.data(), packed.size()) != item.bytes ||
      item.bytes / most_bytes_per_packed_byte > packed.size())
    return damaged("it has an item of another size than it declares");
  std::vector<std::byte> contents(item.bytes);
  const std::size_t size = ZSTD_decompress(contents.data(), contents.size(), packed.data(), packed.size());
  if (ZSTD_isError(size) != 0 || size != item.bytes) return damaged("it has an item that cannot be unpacked");
  if (item.kind == ItemKind::file && base::sha256(contents) != item.id)
    return damaged("it has a file with other contents than it declares");
  return contents;
}

}  // namespace

std::array<std::byte, record_begin_bytes> record_begin() {
  std::array<std::byte, record_begin_bytes> begin{};
  std::ranges::copy(bytes_of(magic), begin.begin());
  std::memcpy(begin.data() + magic.size(), &version, sizeof version);
  return begin;
}

bool is_unfinished_begin(std::span<const std::byte> begin) {
  const auto whole = record_begin();
  return begin.size() < whole.size() && std::ranges::equal(begin, std::span(whole).first(begin.size()));
}

std::optional<std::string_view> why_no_record(std::span<const std::byte> begin) {
  if (begin.size() < record_begin_bytes || !std::ranges::equal(begin.first(magic.size()), bytes_of(magic)))
    return "it is not a record of requests";
  if (!std::ranges::equal(begin.first(record_begin_bytes), record_begin()))
    return "it was written by another version of Kiln";
  return std::nullopt;
}

std::vector<std::byte> pack_item(ItemKind kind, const Digest& id, std::span<const std::byte> contents) {
  std::vector<std::byte> packed(ZSTD_compressBound(contents.size()));
  const std::size_t size =
      ZSTD_compress(packed.data(), packed.size(), contents.data(), contents.size(), compression_level);
  if (ZSTD_isError(size) != 0) throw std::bad_alloc();
  packed.resize(size);
  base::ByteWriter writer;
  writer.raw(bytes_of(item_magic));
  writer.number(static_cast<std::uint32_t>(kind));
  writer.number(std::uint32_t{0});
  writer.number(static_cast<std::uint64_t>(packed.size()));
  writer.number(static_cast<std::uint64_t>(contents.size()));
  writer.raw(id.bytes);
  writer.raw(base::sha256(packed).bytes);
  writer.number(check_of(writer.bytes()));
  writer.raw(packed);
  return std::move(writer).bytes();
}

Result<std::vector<std::byte>> read_packed(const RecordPlace& file, const Item& item) {
  auto bytes = KILN_TRY(read_at(file, item.place, item_header_bytes + item.packed_bytes));
  if (parse_header(bytes, item.place) != item) return damaged("it has a damaged item");
  const auto packed = std::span(bytes).subspan(item_header_bytes);
  KILN_TRY(check_packed(packed, item));
  KILN_TRY(unpack(packed, item));
  return bytes;
}

Result<std::vector<std::byte>> read_contents(const RecordPlace& file, const Item& item) {
  const auto packed = KILN_TRY(read_at(file, item.place + item_header_bytes, item.packed_bytes));
  KILN_TRY(check_packed(packed, item));
  return unpack(packed, item);
}

Result<std::optional<Item>> ItemFinder::next() {
  auto found = KILN_TRY(item_at(place_));
  if (!found) {
    const std::uint64_t size = KILN_TRY(size_of(file_));
    if (size < place_ + item_header_bytes) return std::optional<Item>{};
    // A valid header of an item that is not complete yet is no damage.
    const auto bytes = KILN_TRY(read_at(file_, place_, item_header_bytes));
    if (parse_header(bytes, place_)) return std::optional<Item>{};
    found = KILN_TRY(find_after(place_));
    if (++damaged_ > max_damaged) return too_much_damage();
  }
  if (found) place_ = found->end();
  return found;
}

Result<std::optional<Item>> ItemFinder::item_at(std::uint64_t place) const {
  const auto bytes = KILN_TRY(read_at(file_, place, item_header_bytes));
  auto item = parse_header(bytes, place);
  if (item && item->end() > KILN_TRY(size_of(file_))) item.reset();
  return item;
}

Result<std::optional<Item>> ItemFinder::find_after(std::uint64_t place) {
  constexpr std::size_t step = std::size_t{1} << 20;
  for (std::uint64_t at = place + 1;; at += step - item_magic.size() + 1) {
    const auto bytes = KILN_TRY(read_at(file_, at, step));
    for (auto from = bytes.begin();; ++from) {
      from = std::search(from, bytes.end(), bytes_of(item_magic).begin(), bytes_of(item_magic).end());
      if (from == bytes.end()) break;
      if (auto item = KILN_TRY(item_at(at + static_cast<std::uint64_t>(from - bytes.begin())))) return item;
      if (++invalid_headers_ > max_damaged) return too_much_damage();
    }
    if (bytes.size() < step) return std::optional<Item>{};
  }
}

Result<std::vector<std::byte>> read_at(const RecordPlace& file, std::uint64_t place, std::size_t size) {
  // Not more than there is, whatever size a header claims.
  const std::uint64_t there = KILN_TRY(size_of(file));
  std::vector<std::byte> bytes(std::min<std::uint64_t>(size, there - std::min(place, there)));
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t got = file.file.system().read_at(file.file.get(), bytes.data() + filled, bytes.size() - filled,
                                                   static_cast<off_t>(file.begin + place + filled));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error(ErrorCode::io, std::strerror(errno));
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  bytes.resize(filled);
  return bytes;
}

Result<std::uint64_t> size_of(const RecordPlace& file) {
  struct stat status {};
  if (file.file.system().status(file.file.get(), &status) != 0) return Error(ErrorCode::io, std::strerror(errno));
  const auto end = static_cast<std::uint64_t>(status.st_size);
  const std::uint64_t left = end - std::min(file.begin, end);
  return std::min(file.size.value_or(left), left);
}

}  // namespace kiln::key
