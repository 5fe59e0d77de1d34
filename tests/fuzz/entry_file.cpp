#include "store/sealed_entry.hpp"

#include <cstdlib>
#include <cstring>

#include "base/sha256.hpp"
#include "fuzz/input.hpp"
#include "store/directory.hpp"
#include "store/json_file.hpp"

namespace kiln::fuzz {
namespace {

using store::OpenedEntry;

std::vector<std::byte> encode(const OpenedEntry& decoded) {
  return store::seal_entry(decoded.label, decoded.entry);
}

void expect_kept(const OpenedEntry& decoded) {
  const auto file = encode(decoded);
  const auto again = store::open_entry(file);
  expect(again.ok(), "what was encoded can be decoded");
  expect(encode(*again) == file, "nothing of an entry is lost in its file");
  expect(store::parse_json(store::meta_of(decoded.label, decoded.entry, file.size())).has_value(),
         "every entry has facts for people");
}

void decode(std::span<const std::byte> file) {
  const auto decoded = store::open_entry(file);
  if (decoded)
    expect_kept(*decoded);
  else
    expect(decoded.error().code() == ErrorCode::damaged, "what is no entry is called damaged");
}

/// The bytes as a sealed entry whose beginning, size and checksum are right: the rest would not be reached
/// otherwise.
std::vector<std::byte> sealed(std::span<const std::byte> body) {
  constexpr std::size_t preamble_bytes = 64;
  static const std::vector<std::byte> any = store::seal_entry({}, {});
  std::vector<std::byte> file(any.begin(), any.begin() + preamble_bytes);
  const Digest checksum = base::sha256(body);
  const std::uint64_t body_bytes = body.size();
  std::memcpy(file.data() + 16, checksum.bytes.data(), checksum.bytes.size());
  std::memcpy(file.data() + 48, &body_bytes, sizeof body_bytes);
  file.insert(file.end(), body.begin(), body.end());
  return file;
}

OpenedEntry entry_of(Input& input) {
  // Entries keep whole seconds, and those before the year 2242, and of a compiler's time not more than a day.
  constexpr std::int64_t most_seconds = std::int64_t{1} << 33;
  constexpr std::int64_t day = std::chrono::nanoseconds(std::chrono::hours(24)).count();
  OpenedEntry decoded;
  decoded.label.key = base::sha256(input.text());
  decoded.label.identity = base::sha256(input.text());
  decoded.entry.compile_time = std::chrono::nanoseconds(std::abs(input.number<std::int64_t>() % day));
  decoded.entry.created += std::chrono::seconds(input.number<std::int64_t>() % most_seconds);
  decoded.entry.facts = input.text();
  Binary& log = decoded.entry.parts["log"];
  for (const char letter : input.text()) log.bytes.push_back(static_cast<std::byte>(letter));
  Binary& binary = decoded.entry.parts[std::string(store::binary_part)];
  binary.format = input.number<std::uint32_t>();
  const auto bytes = input.rest_bytes();
  binary.bytes.assign(bytes.begin(), bytes.end());
  return decoded;
}

}  // namespace
}  // namespace kiln::fuzz

// The first byte says what the rest is: a sealed entry, its body, or the fields of an entry.
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
