#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/file.hpp"

namespace kiln::store {

/// A part of an ELF file.
struct ElfSection {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};

/// The sections of this name that are not loaded and lie within the file. Nothing if the file is no ELF file of
/// this machine's kind, is damaged or cannot be read.
std::vector<ElfSection> find_elf_sections(const base::FileHandle& file, std::string_view name);

}  // namespace kiln::store
