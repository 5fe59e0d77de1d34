#include "backend/cuda/image.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>

#include <cxxabi.h>
#include <elf.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "backend/cuda/ptx.hpp"
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

/// PTX without its terminating NUL; nullopt if that is missing.
std::optional<std::string_view> ptx_text(std::span<const std::byte> image) noexcept {
  const std::string_view text = backend::as_text(image);
  if (text.empty() || text.find('\0') != text.size() - 1) return std::nullopt;
  return text.substr(0, text.size() - 1);
}

/// Whether PTX text is complete, from its header to the terminating NUL, and has a kernel.
bool is_whole_ptx(std::span<const std::byte> image) {
  const auto text = ptx_text(image);
  if (!text) return false;
  const ptx::Text read = ptx::read(*text);
  return read.is_whole && !read.kernels.empty();
}

/// The least size of an entry's header in a fatbin.
constexpr std::size_t fatbin_entry_header = 64;

/// An entry of a fatbin begins with its kind (offset 0), the size of its header (4) and the size of its content
/// (8). The flags at 40 select the compression; the sizes after (16) and before it (56) are 0 without compression.
/// The driver decides by the flags, so an entry whose size at 56 contradicts them is refused.
bool is_whole_fatbin_entry(std::span<const std::byte> header, std::span<const std::byte> content) noexcept {
  constexpr std::uint16_t elf = 2;
  constexpr std::uint64_t lz4 = 0x2000;
  constexpr std::uint64_t zstd = 0x8000;
  const bool is_compressed = (read_at<std::uint64_t>(header, 40) & (lz4 | zstd)) != 0;
  const bool has_sizes = read_at<std::uint64_t>(header, 56) != 0;
  if (is_compressed != has_sizes || read_at<std::uint32_t>(header, 16) > content.size()) return false;
  return is_compressed || read_at<std::uint16_t>(header, 0) != elf || is_whole_elf(content, machine_cuda);
}

/// Whether a fatbin has all bytes that its header declares, and entries that fill them. The header is a magic
/// number, a version, the size of the header, and the size of all entries. Compressed content is not checked.
bool is_whole_fatbin(std::span<const std::byte> image) noexcept {
  constexpr std::uint32_t magic = 0xBA55ED50;
  constexpr std::size_t least_header = 16;
  if (!fits(image, 0, least_header) || read_at<std::uint32_t>(image, 0) != magic) return false;
  const auto begin = read_at<std::uint16_t>(image, 6);
  const auto bytes = read_at<std::uint64_t>(image, 8);
  if (begin < least_header || bytes == 0 || !fits(image, begin, bytes)) return false;
  auto rest = image.subspan(begin, static_cast<std::size_t>(bytes));
  while (!rest.empty()) {
    if (!fits(rest, 0, fatbin_entry_header)) return false;
    const auto header = read_at<std::uint32_t>(rest, 4);
    const auto content = read_at<std::uint64_t>(rest, 8);
    if (header < fatbin_entry_header || !fits(rest, header, content) ||
        !is_whole_fatbin_entry(rest.first(header), rest.subspan(header, static_cast<std::size_t>(content))))
      return false;
    rest = rest.subspan(header + static_cast<std::size_t>(content));
  }
  return true;
}

bool is_bundle(std::span<const std::byte> image) noexcept {
  return backend::as_text(image).starts_with(bundle_magic);
}

/// Calls `take` for each part of a bundle that is not empty; host parts are empty. Returns false if `take` did, or
/// if the bundle is incomplete. A bundle begins with a magic string and a count. For each part follow its offset,
/// its size, and the length and text of its target.
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

bool is_whole(std::span<const std::byte> image, ImageKind kind) {
  switch (kind) {
    case ImageKind::cubin: return is_whole_elf(image, machine_cuda);
    case ImageKind::ptx: return is_whole_ptx(image);
    case ImageKind::code_object:
      return is_bundle(image) ? is_whole_bundle(image) : is_whole_elf(image, machine_amdgpu);
    case ImageKind::fatbin: return is_whole_fatbin(image);
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

namespace {

/// Whether a symbol can be written by to_text(). Compilers make no others.
bool is_storable(std::string_view symbol) {
  return !symbol.empty() && std::ranges::none_of(symbol, [](unsigned char c) { return c < ' '; });
}

/// One line for each kernel: its name, and its symbol behind a tab if that is another. Kiln 0.1 wrote the name of
/// its only kernel.
std::string to_text(const std::vector<EntryPoint>& entries) {
  std::string text;
  for (const auto& [name, symbol] : entries) {
    if (!text.empty()) text += '\n';
    text += name;
    if (symbol != name) text += '\t' + symbol;
  }
  return text;
}

std::vector<EntryPoint> entries_in(std::string_view text) {
  std::vector<EntryPoint> entries;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t tab = line.find('\t');
    entries.push_back({std::string(line.substr(0, tab)),
                       std::string(tab == std::string_view::npos ? line : line.substr(tab + 1))});
  }
  return entries;
}

}  // namespace

Binary to_binary(ImageKind kind, const Image& image, const std::string& name) {
  const std::string entries = to_text(image.entries);
  // The image comes first, at offset 8, so that it is aligned as drivers may expect.
  return {.format = static_cast<std::uint32_t>(kind),
          .bytes = backend::join_sections({image.bytes, backend::as_section(name), backend::as_section(entries)})};
}

Result<Parts> parts_of(const Binary& binary, ImageKind kind) {
  if (binary.format != static_cast<std::uint32_t>(kind))
    return Error(ErrorCode::load_failed,
                 fmt::format("the device does not support binary format {}", binary.format));
  const auto sections = backend::split_sections(binary.bytes, 3);
  if (!sections) return Error(ErrorCode::load_failed, "the binary is damaged: its sections cannot be read");
  const Parts parts{backend::as_text((*sections)[1]), entries_in(backend::as_text((*sections)[2])), kind,
                    (*sections)[0]};
  if (!is_whole((*sections)[0], kind) || parts.entries.empty())
    return Error(ErrorCode::load_failed, fmt::format("the binary of {} is damaged", parts.name));
  return parts;
}

namespace {

using Bytes = std::span<const std::byte>;
using Sizes = std::optional<std::vector<std::size_t>>;
using Json = nlohmann::json;

struct Section {
  std::string_view name;
  std::uint32_t type;
  /// The index of a related section, as of the names of symbols.
  std::uint32_t link;
  Bytes bytes;
};

/// The sections of an ELF file, which must be complete.
std::vector<Section> sections_of(Bytes elf) {
  const auto header = read_at<Elf64_Ehdr>(elf, 0);
  std::vector<Elf64_Shdr> table;
  for (std::size_t i = 0; i < header.e_shnum; ++i)
    table.push_back(read_at<Elf64_Shdr>(elf, header.e_shoff + i * sizeof(Elf64_Shdr)));
  const auto bytes_of = [&](const Elf64_Shdr& section) {
    return section.sh_type == SHT_NULL || section.sh_type == SHT_NOBITS
               ? Bytes()
               : elf.subspan(section.sh_offset, section.sh_size);
  };
  const std::string_view names =
      header.e_shstrndx < table.size() ? backend::as_text(bytes_of(table[header.e_shstrndx])) : "";
  std::vector<Section> sections;
  for (const Elf64_Shdr& section : table) {
    const std::string_view name = names.substr(std::min<std::size_t>(section.sh_name, names.size()));
    sections.push_back({name.substr(0, name.find('\0')), section.sh_type, section.sh_link, bytes_of(section)});
  }
  return sections;
}

/// The sizes by argument index; nullopt if an index is missing.
Sizes in_order(const std::map<std::size_t, std::size_t>& by_place) {
  std::vector<std::size_t> sizes;
  for (const auto& [place, size] : by_place) {
    if (place != sizes.size()) return std::nullopt;
    sizes.push_back(size);
  }
  return sizes;
}

/// Reads a kernel's section .nv.info from NVIDIA's compiler. A record has a format byte, an attribute byte, and two
/// bytes with the value or the length of the value that follows.
Sizes sizes_in_info(Bytes info) {
  constexpr auto format_sized = std::byte{0x04};
  constexpr auto parameter = std::byte{0x17};
  // For kernels with more than 4 KiB of arguments.
  constexpr auto large_parameter = std::byte{0x45};
  std::map<std::size_t, std::size_t> by_place;
  for (std::size_t at = 0; fits(info, at, 4);) {
    const std::byte format = info[at];
    const std::byte attribute = info[at + 1];
    const std::size_t size = format == format_sized ? read_at<std::uint16_t>(info, at + 2) : 0;
    at += 4;
    if (!fits(info, at, size)) return std::nullopt;
    if (size == 12 && (attribute == parameter || attribute == large_parameter)) {
      const auto last = read_at<std::uint32_t>(info, at + 8);
      by_place[read_at<std::uint16_t>(info, at + 4)] = attribute == parameter ? last >> 18 : last;
    }
    at += size;
  }
  return in_order(by_place);
}

/// The sizes by symbol.
using SizesBySymbol = std::map<std::string, Sizes, std::less<>>;

void read_cubin(Bytes image, SizesBySymbol& sizes) {
  constexpr std::string_view info = ".nv.info.";
  for (const Section& section : sections_of(image))
    if (section.name.starts_with(info))
      sizes.emplace(section.name.substr(info.size()), sizes_in_info(section.bytes));
}

void read_ptx(Bytes image, SizesBySymbol& sizes) {
  for (const ptx::Kernel& kernel : ptx::read(*ptx_text(image)).kernels)
    sizes.emplace(kernel.name, kernel.arguments);
}

struct Symbol {
  std::string_view name;
  Elf64_Sym entry;
};

/// The symbols of an ELF file, which must be complete.
std::vector<Symbol> symbols_of(Bytes elf) {
  const auto sections = sections_of(elf);
  std::vector<Symbol> symbols;
  for (const Section& section : sections) {
    if (section.type != SHT_SYMTAB || section.link >= sections.size()) continue;
    const std::string_view names = backend::as_text(sections[section.link].bytes);
    for (std::size_t at = 0; fits(section.bytes, at, sizeof(Elf64_Sym)); at += sizeof(Elf64_Sym)) {
      const auto entry = read_at<Elf64_Sym>(section.bytes, at);
      const std::string_view name = names.substr(std::min<std::size_t>(entry.st_name, names.size()));
      symbols.push_back({name.substr(0, name.find('\0')), entry});
    }
  }
  return symbols;
}

bool is_function(const Symbol& symbol) { return ELF64_ST_TYPE(symbol.entry.st_info) == STT_FUNC; }

/// The kernels of a cubin: functions that its symbol table marks as entry points.
std::vector<std::string> symbols_in_cubin(Bytes image) {
  constexpr unsigned char entry_mark = 0x10;
  std::vector<std::string> symbols;
  for (const Symbol& symbol : symbols_of(image))
    if (is_function(symbol) && (symbol.entry.st_other & entry_mark) != 0) symbols.emplace_back(symbol.name);
  return symbols;
}

std::vector<std::string> symbols_in_ptx(Bytes image) {
  std::vector<std::string> symbols;
  for (const ptx::Kernel& kernel : ptx::read(*ptx_text(image)).kernels) symbols.emplace_back(kernel.name);
  return symbols;
}

/// The sizes of the arguments that the caller passes, without the hidden ones, which the runtime adds.
Sizes sizes_in_metadata(const Json& kernel) {
  std::vector<std::size_t> sizes;
  if (!kernel.contains(".args")) return sizes;
  for (const Json& argument : kernel.at(".args")) {
    if (argument.at(".value_kind").get<std::string>().starts_with("hidden_")) continue;
    // Accept only unsigned integers: the conversion of a float that is too large is undefined behaviour.
    const auto* size = argument.at(".size").get_ptr<const Json::number_unsigned_t*>();
    if (size == nullptr) return std::nullopt;
    sizes.push_back(*size);
  }
  return sizes;
}

/// Stops at MessagePack that is nested deeper than metadata: the library's parser is recursive and would overflow
/// the stack.
class Depth : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool key(string_t&) override { return true; }
  bool start_object(std::size_t) override { return ++depth_ < most; }
  bool end_object() override { return --depth_ >= 0; }
  bool start_array(std::size_t) override { return ++depth_ < most; }
  bool end_array() override { return --depth_ >= 0; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  static constexpr int most = 16;
  int depth_ = 0;
};

bool is_shallow(std::span<const std::uint8_t> bytes) {
  Depth depth;
  return Json::sax_parse(bytes.begin(), bytes.end(), &depth, Json::input_format_t::msgpack);
}

/// Calls `take` with each metadata of AMD's compiler, which is MessagePack in an ELF note, until it returns true.
template <class Take>
void each_metadata(Bytes elf, Take take) {
  constexpr std::uint32_t metadata_note = 32;
  const auto padded = [](std::uint32_t size) { return (std::size_t{size} + 3) / 4 * 4; };
  for (const Section& section : sections_of(elf)) {
    if (section.type != SHT_NOTE) continue;
    const Bytes notes = section.bytes;
    for (std::size_t at = 0; fits(notes, at, sizeof(Elf64_Nhdr));) {
      const auto note = read_at<Elf64_Nhdr>(notes, at);
      const std::size_t content = at + sizeof note + padded(note.n_namesz);
      if (!fits(notes, content, note.n_descsz)) break;
      if (note.n_type == metadata_note) {
        const auto* begin = reinterpret_cast<const std::uint8_t*>(notes.data() + content);
        const Json metadata =
            is_shallow({begin, note.n_descsz}) ? Json::from_msgpack(begin, begin + note.n_descsz) : Json();
        if (take(metadata)) return;
      }
      at = content + padded(note.n_descsz);
    }
  }
}

void read_kernel(const Json& metadata, SizesBySymbol& sizes) {
  try {
    if (auto known = sizes_in_metadata(metadata))
      sizes.emplace(metadata.at(".name").get<std::string>(), std::move(known));
  } catch (const Json::exception&) {
    // The metadata of this kernel has an unknown form.
  }
}

void read_code_object(Bytes elf, SizesBySymbol& sizes) {
  each_metadata(elf, [&](const Json& metadata) {
    for (const Json& kernel : metadata.at("amdhsa.kernels")) read_kernel(kernel, sizes);
    return false;
  });
}

std::vector<std::string> symbols_in_code_object(Bytes elf) {
  std::vector<std::string> symbols;
  each_metadata(elf, [&](const Json& metadata) {
    for (const Json& kernel : metadata.at("amdhsa.kernels"))
      symbols.push_back(kernel.at(".name").get<std::string>());
    return !symbols.empty();
  });
  return symbols;
}

/// An upper bound for the length of a demangled symbol. Each reference to an earlier part, as in S1_ or T_, may
/// repeat all text before it, so the text can double with each; a pack expansion repeats it for each element.
std::size_t most_demangled(std::string_view symbol) {
  constexpr std::size_t unknown = std::numeric_limits<std::size_t>::max();
  // Abbreviations of types, such as "y" and "Si", stand for up to 32 characters a letter.
  std::size_t most = 32 * symbol.size();
  const auto multiply = [&most](std::size_t factor) { most = most > unknown / factor ? unknown : most * factor; };
  for (std::size_t i = 0; i < symbol.size(); ++i) {
    const std::string_view rest = symbol.substr(i);
    if (rest.starts_with("Dp") || rest.starts_with("sp")) multiply(symbol.size());
    if (rest[0] != 'S' && rest[0] != 'T') continue;
    const std::size_t end = rest.find_first_not_of("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    if (end != std::string_view::npos && rest[end] == '_') multiply(2);
  }
  return most;
}

/// Names symbols as requests do: "math::scale" for math::scale(float*). A symbol of an untrusted image can stand
/// for gigabytes of text, so it keeps its name if that text, or that of all symbols together, may exceed a limit.
class Demangler {
 public:
  std::string name_of(const std::string& symbol) {
    if (!symbol.starts_with("_Z") || left_ == 0 || most_demangled(symbol) > most) return symbol;
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> demangled(
        abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), &std::free);
    if (status != 0 || demangled == nullptr) return symbol;
    std::string_view name = demangled.get();
    left_ -= std::min(name.size(), left_);
    // Templates have their return type in front, and all have their arguments behind.
    if (name.starts_with("void ")) name.remove_prefix(5);
    int depth = 0;
    for (std::size_t i = 0; i < name.size(); ++i) {
      if (name[i] == '<') ++depth;
      if (name[i] == '>') --depth;
      if (name[i] == '(' && depth == 0 && !name.substr(i).starts_with("(anonymous"))
        return std::string(name.substr(0, i));
    }
    return symbol;
  }

 private:
  static constexpr std::size_t most = std::size_t{32} << 20;
  std::size_t left_ = most;
};

/// Reads a complete image once, because it may have thousands of kernels.
SizesBySymbol sizes_in(Bytes image, ImageKind kind) {
  SizesBySymbol sizes;
  try {
    switch (kind) {
      case ImageKind::cubin: read_cubin(image, sizes); break;
      case ImageKind::ptx: read_ptx(image, sizes); break;
      case ImageKind::code_object:
        for (const auto part : code_objects(image)) read_code_object(part, sizes);
        break;
      case ImageKind::fatbin: break;
    }
  } catch (const Json::exception&) {
    // The metadata has an unknown form.
  }
  return sizes;
}

}  // namespace

std::vector<std::optional<std::vector<std::size_t>>> argument_sizes(std::span<const std::byte> image,
                                                                    ImageKind kind,
                                                                    const std::vector<EntryPoint>& entries) {
  std::vector<Sizes> sizes(entries.size());
  if (!is_whole(image, kind)) return sizes;
  const SizesBySymbol by_symbol = sizes_in(image, kind);
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (const auto found = by_symbol.find(entries[i].symbol); found != by_symbol.end()) sizes[i] = found->second;
  return sizes;
}

std::optional<std::vector<std::size_t>> argument_sizes(std::span<const std::byte> image, ImageKind kind,
                                                       const std::string& symbol) {
  return argument_sizes(image, kind, std::vector<EntryPoint>{{symbol, symbol}}).front();
}

std::vector<EntryPoint> entry_points(std::span<const std::byte> image, ImageKind kind) {
  std::vector<std::string> symbols;
  try {
    if (is_whole(image, kind)) switch (kind) {
        case ImageKind::cubin: symbols = symbols_in_cubin(image); break;
        case ImageKind::ptx: symbols = symbols_in_ptx(image); break;
        case ImageKind::code_object:
          for (const auto part : code_objects(image))
            if (symbols.empty()) symbols = symbols_in_code_object(part);
          break;
        case ImageKind::fatbin: break;
      }
  } catch (const Json::exception&) {
    // The metadata has an unknown form.
  }
  return named(std::move(symbols));
}

std::vector<EntryPoint> named(std::vector<std::string> symbols) {
  std::set<std::string> seen;
  std::erase_if(symbols,
                [&seen](const std::string& symbol) { return !is_storable(symbol) || !seen.insert(symbol).second; });
  Demangler demangler;
  std::vector<EntryPoint> entries;
  std::map<std::string, int> count;
  for (std::string& symbol : symbols) {
    std::string name = demangler.name_of(symbol);
    ++count[name];
    entries.push_back({std::move(name), std::move(symbol)});
  }
  for (EntryPoint& entry : entries)
    if (count[entry.name] > 1) entry.name = entry.symbol;
  return entries;
}

std::optional<std::string> referenced_symbol(std::span<const std::byte> image, std::string_view name) {
  if (!is_whole(image, ImageKind::code_object)) return std::nullopt;
  for (const auto elf : code_objects(image)) {
    const auto symbols = symbols_of(elf);
    const auto variable = std::ranges::find(symbols, name, &Symbol::name);
    if (variable == symbols.end()) continue;
    // The linker leaves the address to the loader.
    for (const Section& section : sections_of(elf)) {
      if (section.type != SHT_RELA) continue;
      for (std::size_t at = 0; fits(section.bytes, at, sizeof(Elf64_Rela)); at += sizeof(Elf64_Rela)) {
        const auto relocation = read_at<Elf64_Rela>(section.bytes, at);
        if (relocation.r_offset != variable->entry.st_value) continue;
        for (const Symbol& symbol : symbols)
          if (is_function(symbol) && is_storable(symbol.name) &&
              symbol.entry.st_value == static_cast<std::uint64_t>(relocation.r_addend))
            return std::string(symbol.name);
      }
    }
  }
  return std::nullopt;
}

}  // namespace kiln::cuda
