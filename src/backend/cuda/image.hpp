#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <kiln/backend.hpp>

namespace kiln::cuda {

/// Reads a T at `offset`, which need not be aligned. The T must fit.
template <class T>
T read_at(std::span<const std::byte> bytes, std::size_t offset) noexcept {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

/// Whether `size` bytes at `offset` are within `bytes`.
inline bool fits(std::span<const std::byte> bytes, std::uint64_t offset, std::uint64_t size) noexcept {
  return offset <= bytes.size() && size <= bytes.size() - offset;
}

/// The kind of a compiler's output. The number is Binary::format.
enum class ImageKind : std::uint32_t {
  cubin = 1,        ///< code of one NVIDIA architecture
  ptx = 2,          ///< text that the NVIDIA driver compiles
  code_object = 3,  ///< code of one AMD architecture, or a bundle of code objects
  fatbin = 4,       ///< code of several NVIDIA architectures, and text
};

/// A kernel: its name in requests, as in "scale<float>", and its symbol in the image.
struct EntryPoint {
  std::string name;
  std::string symbol;

  bool operator==(const EntryPoint&) const = default;
};

/// A compiler's output and its kernels.
struct Image {
  std::vector<std::byte> bytes;
  std::vector<EntryPoint> entries;
};

/// The parts of a CUDA or HIP binary. `name` and `image` refer to its bytes.
struct Parts {
  std::string_view name;
  std::vector<EntryPoint> entries;
  ImageKind kind;
  std::span<const std::byte> image;
};

Binary to_binary(ImageKind kind, const Image& image, const std::string& name);

/// The parts of a binary, valid as long as the binary. Fails if it is damaged or of another kind: the driver must
/// not get it.
Result<Parts> parts_of(const Binary& binary, ImageKind kind);

/// Whether `image` is complete according to its tables. Drivers get the address of an image without its size, and
/// would read past the end of an incomplete one.
bool is_whole(std::span<const std::byte> image, ImageKind kind);

/// The ELF files in a complete AMD image: the image itself, or the parts of a bundle.
std::vector<std::span<const std::byte>> code_objects(std::span<const std::byte> image);

/// All kernels of a complete image, in the order of their symbols; none of a fatbin, whose parts may be compressed.
/// A kernel that is not extern "C" is named as in "math::scale" or "scale<float>", or by its symbol if another has
/// that name.
std::vector<EntryPoint> entry_points(std::span<const std::byte> image, ImageKind kind);

/// The entry points of symbols, named as in entry_points(). A symbol that is repeated counts once. Symbols that are
/// empty or have control characters are left out: binaries cannot store them.
std::vector<EntryPoint> named(std::vector<std::string> symbols);

/// The symbol of the function whose address the variable `name` of a complete AMD image holds; nullopt if there is
/// none.
std::optional<std::string> referenced_symbol(std::span<const std::byte> image, std::string_view name);

/// For each kernel, the sizes of its arguments in bytes, read from the image; nullopt if the image is incomplete,
/// lacks the kernel, or does not contain the sizes. Drivers get the arguments without their number, so Kiln must
/// know it.
std::vector<std::optional<std::vector<std::size_t>>> argument_sizes(std::span<const std::byte> image,
                                                                    ImageKind kind,
                                                                    const std::vector<EntryPoint>& entries);

/// The same for the kernel of one symbol.
std::optional<std::vector<std::size_t>> argument_sizes(std::span<const std::byte> image, ImageKind kind,
                                                       const std::string& symbol);

}  // namespace kiln::cuda
