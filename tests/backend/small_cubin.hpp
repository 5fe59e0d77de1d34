#pragma once

#include <cstring>

#include <elf.h>

namespace kiln::fakes {

/// A complete cubin without any content.
struct SmallCubin {
  SmallCubin() {
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_machine = EM_CUDA;
    header.e_shoff = sizeof header;
    header.e_shentsize = sizeof section;
    header.e_shnum = 1;
  }

  Elf64_Ehdr header = {};
  Elf64_Shdr section = {};
};

}  // namespace kiln::fakes
