#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include <kiln/kernel.hpp>

namespace kiln::cli::demo {

/// What a buffer holds.
using Values = std::variant<std::vector<float>, std::vector<std::uint32_t>>;

/// A program of the demo, with all it takes to run it and to tell whether it ran right.
struct Case {
  Kernel kernel = {};
  std::array<std::uint32_t, 3> groups = {1, 1, 1};
  std::vector<Scalar> scalars = {};
  /// What the first buffers hold; the last one is the output and holds zeros before the launch.
  std::vector<Values> inputs = {};
  /// What the output must hold afterwards, as the CPU has computed it.
  Values expected = {};
  /// How far a float may be off, relative to the larger of 1 and what was expected.
  double tolerance = 1e-4;
};

/// All programs of the demo, inputs and expected results included; the same on every call.
std::vector<Case> cases();

/// The families, a file each.
std::vector<Case> conv_cases();
std::vector<Case> fft_cases();
std::vector<Case> gemm_cases();
std::vector<Case> hash_cases();
std::vector<Case> image_cases();
std::vector<Case> rows_cases();
std::vector<Case> scan_cases();
std::vector<Case> simulation_cases();
std::vector<Case> sort_cases();
std::vector<Case> solve_cases();

/// Numbers that look random and are the same everywhere.
std::vector<float> noise(std::size_t count, std::uint32_t seed, float low = -1.0F, float high = 1.0F);
std::vector<std::uint32_t> noise_bits(std::size_t count, std::uint32_t seed);

}  // namespace kiln::cli::demo
