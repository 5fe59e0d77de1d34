#include "shaders.hpp"

#include <fmt/format.h>

namespace kiln::bench {
namespace {

constexpr std::string_view buffers = R"(
layout(std430, binding = 0) readonly buffer A { float a[]; };
layout(std430, binding = 1) readonly buffer B { float b[]; };
layout(std430, binding = 2) writeonly buffer C { float c[]; };
layout(std140, binding = 0) uniform Shape { uint width, height, depth, outputs; };
)";

/// A convolution of `size`×`size` over a tile in shared memory, `channels` outputs a thread.
std::string convolution(int size, int channels, std::size_t variant) {
  const int tile = 16 + size - 1;
  std::string text = fmt::format("#version 430\nlayout(local_size_x = 16, local_size_y = 16) in;\n{}", buffers);
  text += fmt::format("const float bias = {}.5;\nshared float tile[{}][{}];\n", variant, tile, tile);
  text += "void main() {\n  uint x = gl_GlobalInvocationID.x, y = gl_GlobalInvocationID.y;\n";
  text += "  uint lx = gl_LocalInvocationID.x, ly = gl_LocalInvocationID.y;\n";
  for (int k = 0; k < channels; ++k) text += fmt::format("  float sum{} = bias;\n", k);
  text += "  for (uint d = 0u; d < depth; ++d) {\n";
  text += fmt::format(
      "    for (uint i = ly * 16u + lx; i < {0}u; i += 256u) {{\n"
      "      uint ty = i / {1}u, tx = i % {1}u;\n"
      "      uint gx = gl_WorkGroupID.x * 16u + tx, gy = gl_WorkGroupID.y * 16u + ty;\n"
      "      tile[ty][tx] = gx < width && gy < height ? a[(d * height + gy) * width + gx] : 0.0;\n    }}\n"
      "    barrier();\n",
      tile * tile, tile);
  for (int r = 0; r < size; ++r) {
    for (int s = 0; s < size; ++s) {
      text += fmt::format("    {{ float v = tile[ly + {}u][lx + {}u];\n", r, s);
      for (int k = 0; k < channels; ++k) {
        text += fmt::format("      sum{} = fma(v, b[({}u * depth + d) * {}u + {}u], sum{});\n", k, k, size * size,
                            r * size + s, k);
      }
      text += "    }\n";
    }
  }
  text += "    barrier();\n  }\n  if (x >= width || y >= height) return;\n";
  for (int k = 0; k < channels; ++k)
    text += fmt::format("  c[({}u * height + y) * width + x] = max(sum{}, 0.0);\n", k, k);
  return text + "}\n";
}

/// A matrix product in which a thread holds `rows`×`columns` sums and goes `steps` deep at a time.
std::string product(int rows, int columns, int steps, std::size_t variant) {
  std::string text = fmt::format("#version 430\nlayout(local_size_x = 16, local_size_y = 16) in;\n{}", buffers);
  text += fmt::format("const float alpha = {}.25;\nshared float as[{}][{}];\nshared float bs[{}][{}];\n", variant,
                      16 * rows, steps, steps, 16 * columns);
  text += "void main() {\n  uint lx = gl_LocalInvocationID.x, ly = gl_LocalInvocationID.y;\n";
  text += fmt::format("  uint row = gl_WorkGroupID.y * {}u, column = gl_WorkGroupID.x * {}u;\n", 16 * rows,
                      16 * columns);
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) text += fmt::format("  float s{}_{} = 0.0;\n", i, j);
  text += fmt::format("  for (uint k = 0u; k < depth; k += {}u) {{\n", steps);
  text += fmt::format(
      "    for (uint i = ly * 16u + lx; i < {0}u; i += 256u)\n"
      "      as[i / {1}u][i % {1}u] = a[(row + i / {1}u) * depth + k + i % {1}u];\n"
      "    for (uint i = ly * 16u + lx; i < {2}u; i += 256u)\n"
      "      bs[i / {3}u][i % {3}u] = b[(k + i / {3}u) * width + column + i % {3}u];\n    barrier();\n",
      16 * rows * steps, steps, 16 * columns * steps, 16 * columns);
  for (int step = 0; step < steps; ++step) {
    text += "    {\n";
    for (int i = 0; i < rows; ++i)
      text += fmt::format("      float l{} = as[ly * {}u + {}u][{}];\n", i, rows, i, step);
    for (int j = 0; j < columns; ++j)
      text += fmt::format("      float r{} = bs[{}][lx * {}u + {}u];\n", j, step, columns, j);
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < columns; ++j) text += fmt::format("      s{0}_{1} = fma(l{0}, r{1}, s{0}_{1});\n", i, j);
    text += "    }\n";
  }
  text += "    barrier();\n  }\n";
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < columns; ++j) {
      text += fmt::format("  c[(row + ly * {}u + {}u) * width + column + lx * {}u + {}u] = alpha * s{}_{};\n", rows,
                          i, columns, j, i, j);
    }
  }
  return text + "}\n";
}

/// One query a thread against all keys, with a running softmax over heads of `size` numbers.
std::string attention(int size, std::size_t variant) {
  std::string text = fmt::format("#version 430\nlayout(local_size_x = 64) in;\n{}", buffers);
  text += fmt::format("const float scale = {}.125;\nvoid main() {{\n", variant);
  text += fmt::format("  uint row = gl_GlobalInvocationID.x * {}u;\n  float top = -1e30, total = 0.0;\n", size);
  for (int i = 0; i < size; ++i) text += fmt::format("  float q{0} = a[row + {0}u] * scale, o{0} = 0.0;\n", i);
  text +=
      fmt::format("  for (uint k = 0u; k < depth; ++k) {{\n    uint at = k * {}u;\n    float dot = 0.0;\n", size);
  for (int i = 0; i < size; ++i) text += fmt::format("    dot = fma(q{0}, b[at + {0}u], dot);\n", i);
  text +=
      "    float next = max(top, dot), keep = exp(top - next), weight = exp(dot - next);\n"
      "    total = total * keep + weight;\n    top = next;\n";
  for (int i = 0; i < size; ++i)
    text += fmt::format("    o{0} = o{0} * keep + weight * b[depth * {1}u + at + {0}u];\n", i, size);
  text += "  }\n";
  for (int i = 0; i < size; ++i) text += fmt::format("  c[row + {0}u] = o{0} / total;\n", i);
  return text + "}\n";
}

}  // namespace

std::vector<Shader> shaders(std::size_t count) {
  std::vector<Shader> all;
  for (std::size_t variant = 0; all.size() < count; ++variant) {
    const auto add = [&](std::string_view name, std::string source) {
      if (all.size() < count) all.push_back({fmt::format("{}_{}", name, variant), std::move(source)});
    };
    add("conv2d_3x3", convolution(3, 8, variant));
    add("conv2d_5x5", convolution(5, 4, variant));
    add("conv2d_7x7", convolution(7, 2, variant));
    add("gemm_4x4", product(4, 4, 8, variant));
    add("gemm_8x4", product(8, 4, 4, variant));
    add("gemm_8x8", product(8, 8, 4, variant));
    add("attention_24", attention(24, variant));
    add("attention_48", attention(48, variant));
  }
  return all;
}

Shader tiny_shader() {
  return {"add_one",
          "#version 430\nlayout(local_size_x = 1) in;\nlayout(std430, binding = 0) buffer A { uint a[]; };\n"
          "void main() { a[0] += 1u; }\n"};
}

}  // namespace kiln::bench
