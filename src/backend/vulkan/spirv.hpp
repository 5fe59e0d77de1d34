#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <kiln/result.hpp>

namespace kiln::vulkan {

/// What a compute program asks of whoever launches it, as its SPIR-V tells.
struct Shape {
  /// Storage buffers 0 … buffers-1 of set 0.
  std::uint32_t buffers = 0;
  /// The size of the push-constant block.
  std::uint32_t parameter_bytes = 0;
  /// The memory a group shares, at least: padding and lengths the driver computes are not counted.
  std::uint64_t shared_bytes = 0;
  std::array<std::uint32_t, 3> group_size = {};

  friend bool operator==(const Shape&, const Shape&) = default;
};

/// A shape as bytes, and back; nothing where they are not as many as one has.
std::vector<std::byte> to_bytes(const Shape& shape);
std::optional<Shape> shape_from(std::span<const std::byte> bytes);

/// The bytes as words; none where they are not whole ones.
std::vector<std::uint32_t> spirv_words(std::span<const std::byte> bytes);

/// Reads a module of at most SPIR-V 1.3 with one compute entry point, main. Safe on arbitrary words. Fails with
/// load_failed where it is malformed, and with unsupported where it binds anything but storage buffers in set 0.
///
/// Only what the shape depends on is checked: functions are left to the driver, which gets no module but those
/// whose digest shows that they are as a compiler made them.
Result<Shape> read_spirv(std::span<const std::uint32_t> words);

}  // namespace kiln::vulkan
