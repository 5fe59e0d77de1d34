#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz/input.hpp"
#include "store/elf_sections.hpp"
#include "store/embedded_bundles.hpp"

namespace kiln::fuzz {
namespace {

bool is_within(std::uint64_t offset, std::uint64_t size, std::uint64_t bytes) {
  return offset <= bytes && size <= bytes - offset;
}

void read(std::span<const std::byte> bytes) {
  const base::FileHandle file(::memfd_create("elf", MFD_CLOEXEC));
  expect(file && base::write_all(file, bytes), "a file in memory can be written");
  for (const auto& [offset, size] : store::find_elf_sections(file, ".kiln.bundle"))
    expect(is_within(offset, size, bytes.size()), "a section is in the file");
  // Notes of everything that may be the begin of a bundle, so that bundles are found.
  std::vector<store::BundleNote> notes;
  for (std::size_t at = 0; at + store::BundleNote::begin_bytes <= bytes.size() && notes.size() < 64; at += 64) {
    store::BundleNote& note = notes.emplace_back();
    note.bundle_bytes = store::BundleNote::begin_bytes + at;
    std::memcpy(note.begin.data(), bytes.data() + at, note.begin.size());
  }
  for (const auto& bundle : store::find_bundles_in(file, "program", std::move(notes)))
    expect(is_within(bundle.offset, bundle.size, bytes.size()), "a bundle is in the file");
}

}  // namespace
}  // namespace kiln::fuzz

// The first byte says what the rest is: an ELF file, or the notes of one.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kiln::fuzz;
  Input input(data, size);
  const auto kind = input.number<std::uint8_t>();
  const auto rest = input.rest_bytes();
  if (kind % 2 == 0) {
    read(rest);
    return 0;
  }
  for (const auto& note : kiln::store::find_bundle_notes(rest, kind % 4 == 1 ? 4 : 8))
    expect(note.bundle_bytes >= note.begin.size(), "a bundle has a header");
  return 0;
}
