#include "store/entry_file.hpp"

#include <cstdlib>

#include "base/sha256.hpp"
#include "fuzz/input.hpp"
#include "store/directory.hpp"
#include "store/json_file.hpp"

namespace kiln::fuzz {
namespace {

using store::DecodedEntry;

std::vector<std::byte> encode(const DecodedEntry& decoded) {
  return store::encode_entry(decoded.key, decoded.identity, decoded.entry);
}

void expect_kept(const DecodedEntry& decoded) {
  const auto file = encode(decoded);
  const auto again = store::decode_entry(file);
  expect(again.ok(), "what was encoded can be decoded");
  expect(encode(*again) == file, "nothing of an entry is lost in its file");
  expect(store::parse_json(store::meta_of(decoded, file.size())).has_value(), "every entry has facts for people");
}

void decode(std::span<const std::byte> file) {
  const auto decoded = store::decode_entry(file);
  if (decoded)
    expect_kept(*decoded);
  else
    expect(decoded.error().code() == ErrorCode::damaged, "what is no entry is called damaged");
}

/// The bytes as an entry file whose beginning and checksum are right: what is behind them would not be reached
/// else.
std::vector<std::byte> sealed(std::span<const std::byte> covered) {
  constexpr std::size_t before_checksum = 16;
  static const std::vector<std::byte> any = store::encode_entry({}, {}, {});
  std::vector<std::byte> file(any.begin(), any.begin() + before_checksum);
  const Digest checksum = base::sha256(covered);
  file.insert(file.end(), checksum.bytes.begin(), checksum.bytes.end());
  file.insert(file.end(), covered.begin(), covered.end());
  return file;
}

DecodedEntry entry_of(Input& input) {
  // Entries keep whole seconds, and those before the year 2242, and of a compiler's time not more than a day.
  constexpr std::int64_t most_seconds = std::int64_t{1} << 33;
  constexpr std::int64_t day = std::chrono::nanoseconds(std::chrono::hours(24)).count();
  DecodedEntry decoded;
  decoded.key = base::sha256(input.text());
  decoded.identity = base::sha256(input.text());
  decoded.entry.binary.format = input.number<std::uint32_t>();
  decoded.entry.compile_time = std::chrono::nanoseconds(std::abs(input.number<std::int64_t>() % day));
  decoded.entry.created += std::chrono::seconds(input.number<std::int64_t>() % most_seconds);
  decoded.entry.gflops = input.number<double>();
  decoded.entry.gbps = input.number<double>();
  decoded.entry.facts = input.text();
  const auto bytes = input.rest_bytes();
  decoded.entry.binary.bytes.assign(bytes.begin(), bytes.end());
  return decoded;
}

}  // namespace
}  // namespace kiln::fuzz

// The first byte says what the rest is: a file, a file without its beginning, or the fields of an entry.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kiln::fuzz;
  Input input(data, size);
  switch (input.number<std::uint8_t>() % 3) {
    case 0: decode(input.rest_bytes()); break;
    case 1: decode(sealed(input.rest_bytes())); break;
    default: expect_kept(entry_of(input)); break;
  }
  return 0;
}
