#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include <kiln/request.hpp>

namespace kiln::cli::demo {

/// What a buffer holds.
using Values = std::variant<std::vector<float>, std::vector<std::uint32_t>>;

/// A program of the demo, with all it takes to run it and to tell whether it ran right.
struct Kernel {
  Request request;
  std::array<std::uint32_t, 3> groups = {1, 1, 1};
  /// What uniform buffer 0 holds, laid out by std140.
  std::vector<std::byte> parameters = {};
  /// Storage buffers 0, 1, …; the output is the one after them and holds zeros before the launch.
  std::vector<Values> inputs = {};
  /// What the output must hold afterwards, as the CPU has computed it.
  Values expected = {};
  /// How far a float may be off, relative to the larger of 1 and what was expected.
  double tolerance = 1e-4;
};

/// All programs of the demo, inputs and expected results included; the same on every call.
std::vector<Kernel> kernels();

/// The families, a file each.
std::vector<Kernel> conv_kernels();
std::vector<Kernel> fft_kernels();
std::vector<Kernel> gemm_kernels();
std::vector<Kernel> hash_kernels();
std::vector<Kernel> image_kernels();
std::vector<Kernel> rows_kernels();
std::vector<Kernel> scan_kernels();
std::vector<Kernel> simulation_kernels();
std::vector<Kernel> sort_kernels();
std::vector<Kernel> solve_kernels();

/// Numbers that look random and are the same everywhere.
std::vector<float> noise(std::size_t count, std::uint32_t seed, float low = -1.0F, float high = 1.0F);
std::vector<std::uint32_t> noise_bits(std::size_t count, std::uint32_t seed);

/// A parameter block as bytes. `T` must be laid out as std140 asks, which scalars of four bytes are.
template <class T>
requires std::is_trivially_copyable_v<T> std::vector<std::byte> bytes_of(const T& block) {
  std::vector<std::byte> bytes(sizeof block);
  std::memcpy(bytes.data(), &block, sizeof block);
  return bytes;
}

}  // namespace kiln::cli::demo
