#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <sys/mman.h>

#include "base/file.hpp"
#include "base/sha256.hpp"
#include "fakes/files.hpp"
#include "fakes/temporary_folder.hpp"
#include "fuzz/input.hpp"
#include "store/bundle.hpp"
#include "store/bundle_layout.hpp"
#include "store/json_file.hpp"

namespace kiln::fuzz {
namespace {

using store::BundledProgram;
using store::BundleFile;

base::FileHandle file_of(std::string_view bytes) {
  base::FileHandle file(memfd_create("bundle", MFD_CLOEXEC));
  expect(file && base::write_all(file, std::as_bytes(std::span(bytes))), "a file can be made in memory");
  return file;
}

bool is_expected(const Error& error) {
  return error.code() == ErrorCode::damaged || error.code() == ErrorCode::unsupported;
}

/// What is sound can be written again, and read as before.
void write_again(const BundleFile& bundle, const std::vector<std::vector<std::byte>>& entries) {
  const fakes::TemporaryFolder folder(fakes::memory_place());
  const auto path = folder.path() / "again.kiln";
  store::BundleContents contents{.identities = {bundle.identities().begin(), bundle.identities().end()}};
  for (std::size_t place = 0; place < entries.size(); ++place)
    contents.entries.push_back(
        {.identity = bundle.program(place).identity,
         .key = bundle.program(place).key,
         .read = [&entries, place]() -> Result<std::vector<std::byte>> { return entries[place]; }});
  for (const auto& [digest, place] : bundle.digests_without_toolkit())
    contents.entries[place].without_toolkit = digest;
  const bool has_facts = store::parse_json(bundle.facts()).has_value();
  if (has_facts) contents.facts = bundle.facts();
  const auto written = store::write_bundle(path, contents);
  if (!written) {
    expect(written.error().code() == ErrorCode::unsupported, "only entries of an old format are not written");
    return;
  }
  const auto again = BundleFile::open(path);
  expect(again && (*again)->size() == entries.size() && (*again)->bytes() == *written,
         "what is written can be read");
  for (std::size_t place = 0; place < entries.size(); ++place)
    expect((*again)->read((*again)->program(place)).value() == entries[place], "entries are kept verbatim");
}

void read(const BundleFile& bundle) {
  std::size_t programs = 0;
  std::vector<std::vector<std::byte>> entries;
  for (const auto& target : bundle.targets())
    for (std::size_t place = target.first; place < target.first + target.count; ++place, ++programs) {
      const BundledProgram program = bundle.program(place);
      const auto found = bundle.find(target, program.key);
      expect(found && found->offset == program.offset, "a program is found under its key");
      expect(program.identity < bundle.identities().size(), "a program has an identity");
      expect(bundle.identities()[program.identity].target_digest() == target.digest, "it is one of its target");
      auto sealed = bundle.read(program);
      if (sealed)
        entries.push_back(*std::move(sealed));
      else
        expect(is_expected(sealed.error()), "an entry that cannot be read is damaged");
    }
  expect(programs == bundle.size(), "each program belongs to a target");
  for (const auto& [digest, place] : bundle.digests_without_toolkit())
    expect(place < programs, "a row has a program");
  bool is_sound = true;
  bundle.verify([&is_sound](const std::string&, const Error& why) {
    expect(is_expected(why), "what is wrong is damage");
    is_sound = false;
  });
  if (bundle.has_requests()) {
    for (const auto& requests : {bundle.requests(), bundle.checked_requests()})
      expect(requests || is_expected(requests.error()), "requests that cannot be read are damaged");
  }
  if (is_sound) write_again(bundle, entries);
}

void open(std::string_view bytes, std::uint64_t offset, std::uint64_t size) {
  const auto opened = BundleFile::open_part(file_of(bytes), "fuzz.kiln", offset, size);
  if (!opened) {
    expect(is_expected(opened.error()), "what is no bundle is called damaged or unsupported");
    return;
  }
  expect((*opened)->bytes() <= size && (*opened)->bytes() <= bytes.size() - offset, "a bundle is in its file");
  read(**opened);
}

/// The bytes with a right begin and right checksums: the rest would not be reached otherwise.
std::string with_checksums(std::string bytes) {
  static const std::vector<std::byte> any = store::BundleHeader{}.to_bytes();
  if (bytes.size() < any.size()) return bytes;
  std::memcpy(bytes.data(), any.data(), 16);
  const auto number = [&bytes](std::size_t at) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
  };
  const std::uint64_t index_at = number(16);
  const std::uint64_t index_bytes = number(24);
  if (index_at <= bytes.size() && index_bytes <= bytes.size() - index_at) {
    const auto index = std::as_bytes(std::span(bytes)).subspan(index_at, index_bytes);
    const auto checksum = store::xxh3_128(index);
    const Digest digest = base::sha256(index);
    std::memcpy(bytes.data() + 48, checksum.data(), checksum.size());
    std::memcpy(bytes.data() + 64, digest.bytes.data(), digest.bytes.size());
    const std::uint64_t end = index_at + index_bytes;
    if (bytes.size() - end >= store::bundle_signatures_begin_bytes) {
      std::uint32_t size = 0;
      std::memcpy(&size, bytes.data() + end, sizeof size);
      const std::uint64_t left = bytes.size() - end - store::bundle_signatures_begin_bytes;
      const auto block = std::as_bytes(std::span(bytes)).last(left).first(std::min<std::uint64_t>(size, left));
      const auto begin = store::bundle_signatures(block);
      std::memcpy(bytes.data() + end, begin.data(), store::bundle_signatures_begin_bytes);
    }
  }
  const std::uint64_t checksum = store::xxh3_64(std::as_bytes(std::span(bytes)).first(120));
  std::memcpy(bytes.data() + 120, &checksum, sizeof checksum);
  return bytes;
}

}  // namespace
}  // namespace kiln::fuzz

// The first byte says what the rest is: a file, one whose checksums are wrong, or a part of a larger file.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kiln::fuzz;
  Input input(data, size);
  const auto mode = input.number<std::uint8_t>() % 3;
  const std::string_view bytes = input.rest();
  if (mode == 0) open(bytes, 0, UINT64_MAX);
  if (mode == 1) open(with_checksums(std::string(bytes)), 0, UINT64_MAX);
  if (mode == 2) {
    const std::string larger = "before it" + with_checksums(std::string(bytes)) + "after it";
    open(larger, 9, UINT64_MAX - 9);
  }
  return 0;
}
