#include "programs.hpp"

#include <string>
#include <utility>

#include <fmt/format.h>

namespace kiln::bench {
namespace {

/// A kernel that computes c of a and b, which lacks its source.
Kernel outline(std::string_view name, std::size_t variant, std::array<std::uint32_t, 3> group_size) {
  return {.name = fmt::format("{}_{}", name, variant),
          .buffers = {{"a"}, {"b"}, {"c", Type::f32, Access::write}},
          .scalars = {{"width"}, {"height"}, {"depth"}},
          .group_size = group_size,
          .parameters = {{"VARIANT", fmt::format("{}.25f", variant)}}};
}

/// A convolution of `size`×`size` over a tile in shared memory, `channels` outputs a thread.
Kernel convolution(int size, int channels, std::size_t variant) {
  const int side = 16 + size - 1;
  Kernel kernel = outline(fmt::format("conv2d_{0}x{0}", size), variant, {16, 16, 1});
  kernel.shared = {{"tile", Type::f32, {std::to_string(side), std::to_string(side)}}};
  std::string& text = kernel.source;
  text = "KERNEL {\n  int x = global_id_x, y = global_id_y, lx = local_id_x, ly = local_id_y;\n";
  for (int k = 0; k < channels; ++k) text += fmt::format("  float sum{} = VARIANT;\n", k);
  text += fmt::format(
      "  for (int d = 0; d < depth; ++d) {{\n"
      "    for (int i = local_index; i < {0}; i += 256) {{\n"
      "      int ty = i / {1}, tx = i % {1};\n"
      "      int gx = group_id_x * 16 + tx, gy = group_id_y * 16 + ty;\n"
      "      tile[ty][tx] = gx < width && gy < height ? a[(d * height + gy) * width + gx] : 0.0f;\n    }}\n"
      "    group_barrier();\n",
      side * side, side);
  for (int r = 0; r < size; ++r) {
    for (int s = 0; s < size; ++s) {
      text += fmt::format("    {{ float v = tile[ly + {}][lx + {}];\n", r, s);
      for (int k = 0; k < channels; ++k)
        text += fmt::format("      sum{0} = fma(v, b[({0} * depth + d) * {1} + {2}], sum{0});\n", k, size * size,
                            r * size + s);
      text += "    }\n";
    }
  }
  text += "    group_barrier();\n  }\n  if (x >= width || y >= height) return;\n";
  for (int k = 0; k < channels; ++k)
    text += fmt::format("  c[({0} * height + y) * width + x] = fmax(sum{0}, 0.0f);\n", k);
  text += "}\n";
  return kernel;
}

/// A matrix product in which a thread holds `rows`×`columns` sums and goes `steps` deep at a time.
Kernel product(int rows, int columns, int steps, std::size_t variant) {
  Kernel kernel = outline(fmt::format("gemm_{}x{}", rows, columns), variant, {16, 16, 1});
  kernel.shared = {{"left", Type::f32, {std::to_string(16 * rows), std::to_string(steps)}},
                   {"right", Type::f32, {std::to_string(steps), std::to_string(16 * columns)}}};
  std::string& text = kernel.source;
  text = fmt::format(
      "KERNEL {{\n  int lx = local_id_x, ly = local_id_y;\n"
      "  int row = group_id_y * {}, column = group_id_x * {};\n",
      16 * rows, 16 * columns);
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) text += fmt::format("  float s{}_{} = 0.0f;\n", i, j);
  text += fmt::format(
      "  for (int k = 0; k < depth; k += {1}) {{\n"
      "    for (int i = local_index; i < {0}; i += 256)\n"
      "      left[i / {1}][i % {1}] = a[(row + i / {1}) * depth + k + i % {1}];\n"
      "    for (int i = local_index; i < {2}; i += 256)\n"
      "      right[i / {3}][i % {3}] = b[(k + i / {3}) * width + column + i % {3}];\n    group_barrier();\n",
      16 * rows * steps, steps, 16 * columns * steps, 16 * columns);
  for (int step = 0; step < steps; ++step) {
    text += "    {\n";
    for (int i = 0; i < rows; ++i)
      text += fmt::format("      float l{0} = left[ly * {1} + {0}][{2}];\n", i, rows, step);
    for (int j = 0; j < columns; ++j)
      text += fmt::format("      float r{0} = right[{2}][lx * {1} + {0}];\n", j, columns, step);
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < columns; ++j) text += fmt::format("      s{0}_{1} = fma(l{0}, r{1}, s{0}_{1});\n", i, j);
    text += "    }\n";
  }
  text += "    group_barrier();\n  }\n";
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j)
      text += fmt::format("  c[(row + ly * {2} + {0}) * width + column + lx * {3} + {1}] = VARIANT * s{0}_{1};\n",
                          i, j, rows, columns);
  text += "}\n";
  return kernel;
}

/// One query a thread against all keys, with a running softmax over heads of `size` numbers.
Kernel attention(int size, std::size_t variant) {
  Kernel kernel = outline(fmt::format("attention_{}", size), variant, {64, 1, 1});
  std::string& text = kernel.source;
  text = fmt::format("KERNEL {{\n  int row = global_id_x * {};\n  float top = -1e30f, total = 0.0f;\n", size);
  for (int i = 0; i < size; ++i) text += fmt::format("  float q{0} = a[row + {0}] * VARIANT, o{0} = 0.0f;\n", i);
  text +=
      fmt::format("  for (int k = 0; k < depth; ++k) {{\n    int at = k * {};\n    float score = 0.0f;\n", size);
  for (int i = 0; i < size; ++i) text += fmt::format("    score = fma(q{0}, b[at + {0}], score);\n", i);
  text +=
      "    float next = fmax(top, score), keep = exp(top - next), weight = exp(score - next);\n"
      "    total = total * keep + weight;\n    top = next;\n";
  for (int i = 0; i < size; ++i)
    text += fmt::format("    o{0} = o{0} * keep + weight * b[depth * {1} + at + {0}];\n", i, size);
  text += "  }\n";
  for (int i = 0; i < size; ++i) text += fmt::format("  c[row + {0}] = o{0} / total;\n", i);
  text += "}\n";
  return kernel;
}

}  // namespace

std::vector<Kernel> programs(std::size_t count) {
  std::vector<Kernel> all;
  for (std::size_t variant = 0; all.size() < count; ++variant)
    for (Kernel& kernel :
         std::vector{convolution(3, 8, variant), convolution(5, 4, variant), convolution(7, 2, variant),
                     product(4, 4, 8, variant), product(8, 4, 4, variant), product(8, 8, 4, variant),
                     attention(24, variant), attention(48, variant)})
      if (all.size() < count) all.push_back(std::move(kernel));
  return all;
}

std::vector<Kernel> small_programs(std::size_t count) {
  std::vector<Kernel> all;
  for (std::size_t variant = 0; variant < count; ++variant) {
    all.push_back(outline("small", variant, {64, 1, 1}));
    all.back().source =
        "KERNEL {\n  if (global_id_x >= width) return;\n"
        "  c[global_id_x] = sqrt(fabs(a[global_id_x])) * VARIANT + b[global_id_x];\n}\n";
  }
  return all;
}

}  // namespace kiln::bench
