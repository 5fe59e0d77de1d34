#include "store/embedded_bundles.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <link.h>

#include <fmt/format.h>

#include "store/bundle_layout.hpp"
#include "store/elf_sections.hpp"

namespace kiln::store {
namespace {

static_assert(BundleNote::begin_bytes == bundle_header_bytes);
constexpr std::string_view note_name("Kiln\0", 5);
constexpr std::uint32_t note_type = 1;
constexpr const char* program_path = "/proc/self/exe";

std::uint64_t rounded_up(std::uint64_t size, std::uint64_t alignment) {
  return (size + alignment - 1) / alignment * alignment;
}

/// A loaded file with notes of bundles.
struct FileWithNotes {
  /// As the dynamic loader knows it; empty for the program.
  std::string path;
  std::vector<BundleNote> notes;
};

/// The loaded bytes of a segment; nothing if no segment of the file that is loaded has them.
std::span<const std::byte> loaded_bytes(const dl_phdr_info& info, const ElfW(Phdr) & segment) {
  const std::uint64_t size = std::min<std::uint64_t>(segment.p_filesz, segment.p_memsz);
  for (const ElfW(Phdr) & load : std::span(info.dlpi_phdr, info.dlpi_phnum)) {
    if (load.p_type != PT_LOAD || (load.p_flags & PF_R) == 0 || segment.p_vaddr < load.p_vaddr) continue;
    const std::uint64_t before = segment.p_vaddr - load.p_vaddr;
    if (before <= load.p_filesz && size <= load.p_filesz - before)
      return {reinterpret_cast<const std::byte*>(info.dlpi_addr + segment.p_vaddr), size};
  }
  return {};
}

/// Keeps the loader's lock, so it only copies.
int copy_notes(dl_phdr_info* info, std::size_t, void* context) {
  auto& [files, is_program] = *static_cast<std::pair<std::vector<FileWithNotes>, bool>*>(context);
  FileWithNotes file;
  for (const ElfW(Phdr) & segment : std::span(info->dlpi_phdr, info->dlpi_phnum))
    if (segment.p_type == PT_NOTE)
      std::ranges::move(find_bundle_notes(loaded_bytes(*info, segment), segment.p_align),
                        std::back_inserter(file.notes));
  if (!is_program && info->dlpi_name != nullptr) file.path = info->dlpi_name;
  is_program = false;
  if (!file.notes.empty()) files.push_back(std::move(file));
  return 0;
}

/// The size of the bundle at a place of a file, from its header and the begin of its signatures.
std::optional<std::uint64_t> size_of_bundle(const base::FileHandle& file, std::uint64_t place,
                                            std::span<const std::byte> begin) {
  const auto header = BundleHeader::from_bytes(begin);
  if (!header) return std::nullopt;
  std::uint32_t signature_bytes = 0;
  const std::uint64_t index_end = header->index_offset + header->index_bytes;
  const auto end = file.system().read_at(file.get(), &signature_bytes, sizeof signature_bytes,
                                         static_cast<off_t>(place + index_end));
  if (end != static_cast<ssize_t>(sizeof signature_bytes)) return std::nullopt;
  return index_end + bundle_signatures_begin_bytes + signature_bytes;
}

std::string name_of(const FileWithNotes& file) {
  if (!file.path.empty()) return file.path;
  std::error_code error;
  const auto path = std::filesystem::read_symlink(program_path, error);
  return error ? "this program" : path.string();
}

}  // namespace

std::vector<BundleNote> find_bundle_notes(std::span<const std::byte> notes, std::size_t alignment) {
  // Some linkers write 0 or 1 for 4.
  const std::uint64_t step = alignment == 8 ? 8 : 4;
  std::vector<BundleNote> found;
  ElfW(Nhdr) header{};
  while (notes.size() >= sizeof header) {
    std::memcpy(&header, notes.data(), sizeof header);
    const std::uint64_t contents = rounded_up(sizeof header + std::uint64_t{header.n_namesz}, step);
    const std::uint64_t end = contents + header.n_descsz;
    if (end > notes.size()) break;
    if (header.n_type == note_type && header.n_namesz == note_name.size() &&
        header.n_descsz == sizeof(BundleNote::bundle_bytes) + BundleNote::begin_bytes &&
        std::memcmp(notes.data() + sizeof header, note_name.data(), note_name.size()) == 0) {
      BundleNote note;
      std::memcpy(&note.bundle_bytes, notes.data() + contents, sizeof note.bundle_bytes);
      std::memcpy(note.begin.data(), notes.data() + contents + sizeof note.bundle_bytes, note.begin.size());
      if (note.bundle_bytes >= BundleNote::begin_bytes) found.push_back(note);
    }
    notes = notes.subspan(std::min<std::uint64_t>(rounded_up(end, step), notes.size()));
  }
  return found;
}

std::vector<EmbeddedBundle> find_bundles_in(const base::FileHandle& file, const std::string& name,
                                            std::vector<BundleNote> notes) {
  std::vector<EmbeddedBundle> found;
  std::array<std::byte, BundleNote::begin_bytes> begin{};
  for (const ElfSection& section : find_elf_sections(file, ".kiln.bundle")) {
    // The linker puts bundles one after the other, each at a multiple of the alignment.
    for (std::uint64_t place = 0; place < section.size && section.size - place >= begin.size();) {
      if (file.system().read_at(file.get(), begin.data(), begin.size(),
                                static_cast<off_t>(section.offset + place)) != static_cast<ssize_t>(begin.size()))
        break;
      // A bundle and a signed copy of it have equal headers, so the size counts too.
      const auto size = size_of_bundle(file, section.offset + place, begin);
      if (!size || *size > section.size - place) break;
      const auto note = std::ranges::find_if(notes, [&](const BundleNote& candidate) {
        return candidate.begin == begin && candidate.bundle_bytes == *size;
      });
      // The file has other contents than when it was loaded.
      if (note == notes.end()) break;
      base::FileHandle handle(::fcntl(file.get(), F_DUPFD_CLOEXEC, 3), file.system());
      if (!handle) return found;
      found.push_back({.file = std::move(handle),
                       .name = fmt::format("bundle {} of {}", found.size() + 1, name),
                       .offset = section.offset + place,
                       .size = note->bundle_bytes});
      place += aligned_for_bundle(note->bundle_bytes);
      notes.erase(note);
    }
  }
  return found;
}

std::vector<EmbeddedBundle> find_embedded_bundles(const Log& log) {
  std::pair<std::vector<FileWithNotes>, bool> context{{}, true};
  ::dl_iterate_phdr(copy_notes, &context);
  std::vector<EmbeddedBundle> found;
  for (FileWithNotes& with_notes : context.first) {
    const std::string name = name_of(with_notes);
    const char* path = with_notes.path.empty() ? program_path : with_notes.path.c_str();
    const base::FileSystem& system = base::FileSystem::system();
    // O_NONBLOCK: a FIFO in place of the file must not block.
    const base::FileHandle file(system.open(AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0),
                                system);
    if (!file) {
      log.debug(fmt::format("cannot open {} for its bundles: {}", name, std::strerror(errno)));
      continue;
    }
    const std::size_t count = with_notes.notes.size();
    auto bundles = find_bundles_in(file, name, std::move(with_notes.notes));
    if (bundles.size() != count)
      log.debug(fmt::format(
          "{} of {} bundles of {} are not in the file: it was stripped, or replaced after it was loaded",
          count - bundles.size(), count, name));
    std::ranges::move(bundles, std::back_inserter(found));
  }
  return found;
}

}  // namespace kiln::store
