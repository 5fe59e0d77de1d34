#include "backend/cuda/image.hpp"

#include <cstring>

#include <elf.h>

#include <fmt/format.h>

#include "backend/cuda/elf.hpp"
#include "backend/sections.hpp"

namespace kiln::cuda {
namespace {

constexpr std::uint16_t machine_cuda = 190;
constexpr std::uint16_t machine_amdgpu = 224;
constexpr std::string_view bundle_magic = "__CLANG_OFFLOAD_BUNDLE__";

bool is_whole_elf(std::span<const std::byte> image, std::uint16_t machine) noexcept {
  if (!fits(image, 0, sizeof(Elf64_Ehdr))) return false;
  const auto header = read_at<Elf64_Ehdr>(image, 0);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_machine != machine)
    return false;
  if (header.e_shnum == 0 || header.e_shentsize != sizeof(Elf64_Shdr) ||
      !fits(image, header.e_shoff, std::uint64_t{header.e_shnum} * sizeof(Elf64_Shdr)))
    return false;
  for (std::size_t i = 0; i < header.e_shnum; ++i) {
    const auto section = read_at<Elf64_Shdr>(image, header.e_shoff + i * sizeof(Elf64_Shdr));
    if (section.sh_type != SHT_NULL && section.sh_type != SHT_NOBITS &&
        !fits(image, section.sh_offset, section.sh_size))
      return false;
  }
  if (header.e_phnum == 0) return true;
  if (header.e_phentsize != sizeof(Elf64_Phdr) ||
      !fits(image, header.e_phoff, std::uint64_t{header.e_phnum} * sizeof(Elf64_Phdr)))
    return false;
  for (std::size_t i = 0; i < header.e_phnum; ++i) {
    const auto segment = read_at<Elf64_Phdr>(image, header.e_phoff + i * sizeof(Elf64_Phdr));
    if (!fits(image, segment.p_offset, segment.p_filesz)) return false;
  }
  return true;
}

/// Text from its header to the zero that ends it.
bool is_whole_ptx(std::span<const std::byte> image) noexcept {
  if (image.empty()) return false;
  const std::string_view text(reinterpret_cast<const char*>(image.data()), image.size());
  return text.find('\0') == text.size() - 1 && text.find(".version") != std::string_view::npos &&
         text.find(".target") != std::string_view::npos && text.find(".entry") != std::string_view::npos &&
         text.find_last_not_of(" \t\r\n", text.size() - 2) != std::string_view::npos &&
         text[text.find_last_not_of(" \t\r\n", text.size() - 2)] == '}';
}

bool is_bundle(std::span<const std::byte> image) noexcept {
  return backend::as_text(image).starts_with(bundle_magic);
}

/// Hands the parts of a bundle to `take` until that returns false; false then, and where the bundle is not whole. A
/// bundle is its magic, a count, and as often where a part is, how big, and what for; host parts are empty.
template <class Take>
bool each_in_bundle(std::span<const std::byte> image, Take take) {
  std::size_t at = bundle_magic.size();
  if (!fits(image, at, 8)) return false;
  const auto count = read_at<std::uint64_t>(image, at);
  at += 8;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (!fits(image, at, 24)) return false;
    const auto offset = read_at<std::uint64_t>(image, at);
    const auto size = read_at<std::uint64_t>(image, at + 8);
    const auto name = read_at<std::uint64_t>(image, at + 16);
    at += 24;
    if (!fits(image, at, name) || !fits(image, offset, size)) return false;
    at += static_cast<std::size_t>(name);
    if (size != 0 && !take(image.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(size))))
      return false;
  }
  return true;
}

bool is_whole_bundle(std::span<const std::byte> image) noexcept {
  bool any = false;
  return each_in_bundle(image,
                        [&any](std::span<const std::byte> part) {
                          any = true;
                          return is_whole_elf(part, machine_amdgpu);
                        }) &&
         any;
}

}  // namespace

bool is_whole(std::span<const std::byte> image, ImageKind kind) noexcept {
  switch (kind) {
    case ImageKind::cubin: return is_whole_elf(image, machine_cuda);
    case ImageKind::ptx: return is_whole_ptx(image);
    case ImageKind::code_object:
      return is_bundle(image) ? is_whole_bundle(image) : is_whole_elf(image, machine_amdgpu);
  }
  return false;
}

std::vector<std::span<const std::byte>> code_objects(std::span<const std::byte> image) {
  if (!is_bundle(image)) return {image};
  std::vector<std::span<const std::byte>> parts;
  each_in_bundle(image, [&parts](std::span<const std::byte> part) {
    parts.push_back(part);
    return true;
  });
  return parts;
}

Binary to_binary(ImageKind kind, std::span<const std::byte> image, const Request& request) {
  // The image comes first, where the bytes are aligned as a driver may expect of it.
  return {.format = static_cast<std::uint32_t>(kind),
          .bytes = backend::join_sections(
              {image, backend::as_section(request.name()), backend::as_section(request.entry())})};
}

Result<Parts> parts_of(const Binary& binary, ImageKind kind) {
  if (binary.format != static_cast<std::uint32_t>(kind))
    return Error(ErrorCode::load_failed,
                 fmt::format("the device does not know the binary format {}", binary.format));
  const auto sections = backend::split_sections(binary.bytes, 3);
  if (!sections) return Error(ErrorCode::load_failed, "the binary is not in the parts it was made of");
  const Parts parts{backend::as_text((*sections)[1]), std::string(backend::as_text((*sections)[2])), kind,
                    (*sections)[0]};
  if (!is_whole((*sections)[0], kind))
    return Error(ErrorCode::load_failed, fmt::format("the binary of {} is damaged", parts.name));
  return parts;
}

}  // namespace kiln::cuda
