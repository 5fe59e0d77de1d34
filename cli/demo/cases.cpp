#include "case.hpp"

#include <iterator>

namespace kiln::cli::demo {

std::vector<Case> cases() {
  std::vector<Case> all;
  for (auto* family : {conv_cases, gemm_cases, rows_cases, scan_cases, sort_cases, image_cases, solve_cases,
                       fft_cases, simulation_cases, hash_cases}) {
    std::vector<Case> some = family();
    std::move(some.begin(), some.end(), std::back_inserter(all));
  }
  return all;
}

std::vector<std::uint32_t> noise_bits(std::size_t count, std::uint32_t seed) {
  // The finaliser of SplitMix64, applied to a counter.
  std::vector<std::uint32_t> bits(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t z = (std::uint64_t{seed} << 32 | i) * 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    bits[i] = static_cast<std::uint32_t>(z >> 32);
  }
  return bits;
}

std::vector<float> noise(std::size_t count, std::uint32_t seed, float low, float high) {
  std::vector<float> values;
  values.reserve(count);
  for (const std::uint32_t bits : noise_bits(count, seed))
    values.push_back(low + (high - low) * static_cast<float>(bits >> 8) / static_cast<float>(1U << 24));
  return values;
}

}  // namespace kiln::cli::demo
