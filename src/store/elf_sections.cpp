#include "store/elf_sections.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>

#include <link.h>
#include <sys/stat.h>

namespace kiln::store {
namespace {

using ElfHeader = ElfW(Ehdr);
using SectionHeader = ElfW(Shdr);

// Bound the memory for a file that is damaged. Programs have some 40 sections.
constexpr std::uint64_t max_sections = 65'536;
constexpr std::uint64_t max_name_bytes = 16 << 20;

bool read_elf(const base::FileHandle& file, std::uint64_t place, std::span<std::byte> into) {
  while (!into.empty()) {
    const ssize_t got = file.system().read_at(file.get(), into.data(), into.size(), static_cast<off_t>(place));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    into = into.subspan(static_cast<std::size_t>(got));
    place += static_cast<std::uint64_t>(got);
  }
  return true;
}

bool is_elf_of_this_machine(const ElfHeader& header) {
  constexpr unsigned char native_class = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
  constexpr unsigned char native_order = std::endian::native == std::endian::little ? ELFDATA2LSB : ELFDATA2MSB;
  return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == native_class &&
         header.e_ident[EI_DATA] == native_order && header.e_shentsize == sizeof(SectionHeader);
}

}  // namespace

std::vector<ElfSection> find_elf_sections(const base::FileHandle& file, std::string_view name) {
  struct stat status {};
  if (file.system().status(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  const auto file_bytes = static_cast<std::uint64_t>(status.st_size);
  const auto is_in_file = [file_bytes](std::uint64_t offset, std::uint64_t size) {
    return offset <= file_bytes && size <= file_bytes - offset;
  };
  ElfHeader header{};
  if (!read_elf(file, 0, std::as_writable_bytes(std::span(&header, 1))) || !is_elf_of_this_machine(header))
    return {};
  SectionHeader first{};
  if (header.e_shoff == 0 || !is_in_file(header.e_shoff, sizeof first) ||
      !read_elf(file, header.e_shoff, std::as_writable_bytes(std::span(&first, 1))))
    return {};
  // The first section holds numbers that are too large for the header.
  const std::uint64_t count = header.e_shnum != 0 ? header.e_shnum : first.sh_size;
  const std::uint64_t names = header.e_shstrndx != SHN_XINDEX ? header.e_shstrndx : first.sh_link;
  if (count > max_sections || names >= count || !is_in_file(header.e_shoff, count * sizeof(SectionHeader)))
    return {};
  std::vector<SectionHeader> sections(count);
  if (!read_elf(file, header.e_shoff, std::as_writable_bytes(std::span(sections)))) return {};
  const SectionHeader& table = sections[names];
  if (table.sh_type != SHT_STRTAB || table.sh_size > max_name_bytes || !is_in_file(table.sh_offset, table.sh_size))
    return {};
  std::string texts(table.sh_size, '\0');
  if (!read_elf(file, table.sh_offset, std::as_writable_bytes(std::span(texts)))) return {};
  const auto has_name = [&](const SectionHeader& section) {
    return section.sh_name < texts.size() && texts.size() - section.sh_name > name.size() &&
           std::string_view(texts).substr(section.sh_name, name.size() + 1) == std::string(name) + '\0';
  };
  std::vector<ElfSection> found;
  for (const SectionHeader& section : sections)
    if (section.sh_type == SHT_PROGBITS && (section.sh_flags & (SHF_ALLOC | SHF_COMPRESSED)) == 0 &&
        is_in_file(section.sh_offset, section.sh_size) && has_name(section))
      found.push_back({section.sh_offset, section.sh_size});
  return found;
}

}  // namespace kiln::store
