#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace kiln::kernels {

/// Converts to the nearest half, ties to even; values that are too large become infinity.
inline std::uint16_t to_half(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000U);
  const std::uint32_t size = bits & 0x7fffffffU;
  if (size > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U);
  if (size >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);
  if (size < 0x38800000U) {
    // Subnormal half: a multiple of 2^-24, to which adding 0.5 rounds.
    const float rounded = std::bit_cast<float>(size) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(rounded) - 0x3f000000U));
  }
  const std::uint32_t rounded = size - 0x38000000U + 0xfffU + (size >> 13 & 1U);
  return static_cast<std::uint16_t>(sign | rounded >> 13);
}

inline float from_half(std::uint16_t half) noexcept {
  const std::uint32_t sign = (half & 0x8000U) << 16;
  const std::uint32_t exponent = half >> 10 & 0x1fU;
  const std::uint32_t fraction = half & 0x3ffU;
  if (exponent == 0x1fU) return std::bit_cast<float>(sign | 0x7f800000U | fraction << 13);
  if (exponent == 0) {
    const float size = std::ldexp(static_cast<float>(fraction), -24);
    return sign != 0 ? -size : size;
  }
  return std::bit_cast<float>(sign | (exponent + 112U) << 23 | fraction << 13);
}

}  // namespace kiln::kernels
