#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include <kiln/kernel.hpp>

namespace kiln::cli::demo {

/// The contents of a buffer.
using Values = std::variant<std::vector<float>, std::vector<std::uint32_t>>;

/// A program of the demo, its inputs and its expected result.
struct Case {
  Kernel kernel = {};
  std::array<std::uint32_t, 3> groups = {1, 1, 1};
  std::vector<Scalar> scalars = {};
  /// The contents of all buffers but the last. The last one is the output, and is zero before the launch.
  std::vector<Values> inputs = {};
  /// The expected output, computed on the CPU.
  Values expected = {};
  /// The largest error of a float, relative to the larger of 1 and the expected value.
  double tolerance = 1e-4;
};

/// All programs of the demo; the same on every call.
std::vector<Case> cases();

/// The families of programs, one per file.
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

/// Pseudo-random numbers that are the same on every machine.
std::vector<float> noise(std::size_t count, std::uint32_t seed, float low = -1.0F, float high = 1.0F);
std::vector<std::uint32_t> noise_bits(std::size_t count, std::uint32_t seed);

}  // namespace kiln::cli::demo
