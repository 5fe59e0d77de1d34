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

/// A T at an offset at which one is known to fit, however it is aligned.
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

/// What a compiler made; the number is the tag of the binary.
enum class ImageKind : std::uint32_t {
  cubin = 1,        ///< code of one NVIDIA architecture
  ptx = 2,          ///< text that the NVIDIA driver compiles
  code_object = 3,  ///< code of one AMD architecture, or a bundle of such
};

/// What a binary of these backends holds.
struct Parts {
  std::string_view name;
  std::string entry;
  ImageKind kind;
  std::span<const std::byte> image;
};

Binary to_binary(ImageKind kind, std::span<const std::byte> image, const Request& request);

/// The parts of a binary of that kind, which live as long as it does; an error where the driver must not see it.
Result<Parts> parts_of(const Binary& binary, ImageKind kind);

/// Whether `image` is whole, as far as its tables tell. Drivers take images by their address alone, so that they
/// would read past the end of one that is not.
bool is_whole(std::span<const std::byte> image, ImageKind kind) noexcept;

/// The ELF files in an image of AMD's that is whole: itself, or the parts of a bundle.
std::vector<std::span<const std::byte>> code_objects(std::span<const std::byte> image);

/// How many bytes each argument of a kernel takes, as its image tells; nothing where the image is not whole, has no
/// such kernel, or does not tell. Drivers are handed arguments without their number, so that one must know it.
std::optional<std::vector<std::size_t>> argument_sizes(std::span<const std::byte> image, ImageKind kind,
                                                       const std::string& entry);

}  // namespace kiln::cuda
