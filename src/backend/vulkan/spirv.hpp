#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <kiln/result.hpp>

namespace kiln::vulkan {

/// The resources that a launch of a compute program must provide, as read from its SPIR-V.
struct ShaderInterface {
  /// Storage buffers 0 … buffers-1 of set 0.
  std::uint32_t buffers = 0;
  /// The size of the push-constant block.
  std::uint32_t parameter_bytes = 0;
  /// A lower bound of the memory a group shares: padding and lengths computed by the driver are not counted.
  std::uint64_t shared_bytes = 0;
  std::array<std::uint32_t, 3> group_size = {};

  friend bool operator==(const ShaderInterface&, const ShaderInterface&) = default;
};

/// An interface as bytes, and back; nullopt if the number of bytes is wrong.
std::vector<std::byte> to_bytes(const ShaderInterface& interface);
std::optional<ShaderInterface> interface_from(std::span<const std::byte> bytes);

/// The bytes as words; empty if the last word is incomplete.
std::vector<std::uint32_t> spirv_words(std::span<const std::byte> bytes);

/// Reads a module of at most SPIR-V 1.3 with one compute entry point, main. Safe on arbitrary words. Fails with
/// load_failed if it is malformed, and with unsupported if it binds anything but storage buffers in set 0.
///
/// Only the instructions that determine the interface are checked. Functions are not: the driver gets only modules
/// whose checksum shows that they are unchanged since a compiler made them.
Result<ShaderInterface> read_spirv(std::span<const std::uint32_t> words);

}  // namespace kiln::vulkan
