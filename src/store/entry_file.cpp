#include "store/entry_file.hpp"

#include <array>
#include <cstring>
#include <utility>

#include <zstd.h>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/sha256.hpp"

// The layout is described in docs/format.md; a change of it is a change of `version`.
namespace kiln::store {
namespace {

constexpr std::array<char, 8> magic = {'K', 'I', 'L', 'N', 'B', 'I', 'N', '\n'};
constexpr std::uint32_t version = 2;
constexpr std::size_t preamble_bytes = 8 + 4 + 4 + 32;
constexpr std::size_t header_bytes = preamble_bytes + 32 + 32 + 4 + 4 + 8 + 8 + 8 + 8 + 8 + 8 + 8;
constexpr std::uint32_t codec_plain = 0;
constexpr std::uint32_t codec_zstd = 1;
// Binaries are written once and read for ever. At the first of its fast levels zstd leaves out one of its two
// codings: cubins unpacked in 0.6 of the time that level 3 takes, and were a sixth larger.
constexpr int compression_level = -1;
// What zstd unpacks comes in blocks of at most so many bytes, none of which is packed into less than four.
constexpr std::uint64_t block_bytes = std::uint64_t{128} << 10;
constexpr std::uint64_t least_block_bytes = 4;

Error damaged(std::string why) { return Error(ErrorCode::damaged, std::move(why)); }

/// A decompression context costs more to make than a small entry to unpack, so a thread keeps its own.
struct OwnContext {
  ZSTD_DCtx* const context = ZSTD_createDCtx();
  OwnContext() = default;
  ~OwnContext();
  OwnContext(const OwnContext&) = delete;
  OwnContext& operator=(const OwnContext&) = delete;
};
/// What a thread destroys after it, such as a cache in a static variable, unpacks without.
thread_local constinit bool own_context_ended = false;

OwnContext::~OwnContext() {
  ZSTD_freeDCtx(context);
  own_context_ended = true;
}

std::size_t unpack(std::span<std::byte> to, std::span<const std::byte> from) {
  if (own_context_ended) return ZSTD_decompress(to.data(), to.size(), from.data(), from.size());
  static thread_local const OwnContext own;
  return ZSTD_decompressDCtx(own.context, to.data(), to.size(), from.data(), from.size());
}

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

std::vector<std::byte> encode_entry(const Digest& key, const Digest& identity, const Entry& entry) {
  const std::vector<std::byte>& raw = entry.binary.bytes;
  std::vector<std::byte> packed(ZSTD_compressBound(raw.size()));
  const std::size_t size = ZSTD_compress(packed.data(), packed.size(), raw.data(), raw.size(), compression_level);
  // What hardly shrinks is not worth unpacking.
  const bool smaller = ZSTD_isError(size) == 0 && size < raw.size() - raw.size() / 8;
  if (smaller) packed.resize(size);
  const std::vector<std::byte>& payload = smaller ? packed : raw;

  base::ByteWriter covered;
  covered.raw(key.bytes);
  covered.raw(identity.bytes);
  covered.number(entry.binary.format);
  covered.number(smaller ? codec_zstd : codec_plain);
  covered.number(static_cast<std::uint64_t>(raw.size()));
  covered.number(static_cast<std::uint64_t>(entry.facts.size()));
  covered.number(static_cast<std::uint64_t>(payload.size()));
  covered.number(static_cast<std::int64_t>(entry.compile_time.count()));
  covered.number(static_cast<std::int64_t>(
      std::chrono::duration_cast<std::chrono::seconds>(entry.created.time_since_epoch()).count()));
  covered.number(entry.gflops);
  covered.number(entry.gbps);
  covered.raw(as_bytes(entry.facts));
  covered.raw(payload);

  base::ByteWriter file;
  file.raw(std::as_bytes(std::span(magic)));
  file.number(version);
  file.number(static_cast<std::uint32_t>(header_bytes));
  file.raw(base::sha256(covered.bytes()).bytes);
  file.raw(covered.bytes());
  return std::move(file).bytes();
}

Result<DecodedEntry> decode_entry(std::span<const std::byte> file) {
  if (file.size() < header_bytes) return damaged(fmt::format("it has {} bytes, less than a header", file.size()));
  if (std::memcmp(file.data(), magic.data(), magic.size()) != 0)
    return damaged("it does not begin as an entry does");
  base::ByteReader reader(file.subspan(magic.size()));
  if (const auto found = reader.number<std::uint32_t>(); found != version)
    return damaged(fmt::format("it has format version {}, not {}", found, version));
  if (const auto found = reader.number<std::uint32_t>(); found != header_bytes)
    return damaged(fmt::format("it claims a header of {} bytes", found));
  const auto digest = reader.raw(32);
  if (std::memcmp(base::sha256(file.subspan(preamble_bytes)).bytes.data(), digest.data(), 32) != 0)
    return damaged("its checksum does not fit its contents");

  // From here on the bytes are those that were written; what follows guards against a writer's mistakes.
  DecodedEntry decoded;
  std::memcpy(decoded.key.bytes.data(), reader.raw(32).data(), 32);
  std::memcpy(decoded.identity.bytes.data(), reader.raw(32).data(), 32);
  decoded.entry.binary.format = reader.number<std::uint32_t>();
  const auto codec = reader.number<std::uint32_t>();
  const auto raw_bytes = reader.number<std::uint64_t>();
  const auto facts_bytes = reader.number<std::uint64_t>();
  const auto payload_bytes = reader.number<std::uint64_t>();
  // Clocks can be absurd. No compiler takes longer than a day, and sums of such times stay numbers.
  constexpr std::chrono::nanoseconds longest = std::chrono::hours(24);
  const std::chrono::nanoseconds took(reader.number<std::int64_t>());
  decoded.entry.compile_time = took < took.zero() || took > longest ? took.zero() : took;
  // A time the system can hold is kept, any other is 1970.
  constexpr std::int64_t latest = std::int64_t{1} << 33;
  const auto created = reader.number<std::int64_t>();
  decoded.entry.created = std::chrono::system_clock::time_point(
      std::chrono::seconds(created < -latest || created > latest ? 0 : created));
  decoded.entry.gflops = reader.number<double>();
  decoded.entry.gbps = reader.number<double>();

  const std::uint64_t rest = file.size() - header_bytes;
  if (facts_bytes > rest || payload_bytes != rest - facts_bytes)
    return damaged(
        fmt::format("it has {} bytes after its header and claims {} and {}", rest, facts_bytes, payload_bytes));
  if (raw_bytes > max_entry_bytes) return damaged(fmt::format("it claims to unpack to {} bytes", raw_bytes));
  const auto facts = reader.raw(facts_bytes);
  decoded.entry.facts.assign(reinterpret_cast<const char*>(facts.data()), facts.size());
  const auto payload = reader.raw(payload_bytes);

  std::vector<std::byte>& raw = decoded.entry.binary.bytes;
  if (codec == codec_plain && payload_bytes == raw_bytes) {
    raw.assign(payload.begin(), payload.end());
  } else if (codec == codec_zstd) {
    // Nothing is allocated for a claim that cannot be true: its own word for its size comes first, and whether so
    // few bytes can hold so many.
    if (ZSTD_getFrameContentSize(payload.data(), payload.size()) != raw_bytes ||
        raw_bytes / block_bytes > payload_bytes / least_block_bytes)
      return damaged("it does not unpack to what it claims");
    raw.resize(raw_bytes);
    const std::size_t size = unpack(raw, payload);
    if (ZSTD_isError(size) != 0 || size != raw_bytes) return damaged("it does not unpack to what it claims");
  } else {
    return damaged(fmt::format("it is packed in an unknown way ({})", codec));
  }
  return decoded;
}

}  // namespace kiln::store
