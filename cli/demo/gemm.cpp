#include <cmath>

#include "kernel.hpp"

namespace kiln::cli::demo {
namespace {

// A group of SIDE x SIDE threads computes a TILE x TILE block of C, each thread REGS x REGS of it, from panels of
// DEPTH staged in shared memory. The matrices are row-major, m x k and k x n before TRANSPOSE_A and TRANSPOSE_B.
constexpr const char* source = R"(#version 430
layout(local_size_x = SIDE, local_size_y = SIDE) in;
layout(std430, binding = 0) readonly buffer A { float a[]; };
layout(std430, binding = 1) readonly buffer B { float b[]; };
layout(std430, binding = 2) readonly buffer Bias { float bias[]; };
layout(std430, binding = 3) writeonly buffer C { float result[]; };
layout(std140, binding = 0) uniform Parameters { int m; int n; int k; float alpha; };

const int TILE = SIDE * REGS;
const int THREADS = SIDE * SIDE;
shared float panel_a[DEPTH][TILE];
shared float panel_b[DEPTH][TILE];

float element_a(int row, int column) {
  if (row >= m || column >= k) return 0.0;
  return a[TRANSPOSE_A != 0 ? column * m + row : row * k + column];
}

float element_b(int row, int column) {
  if (row >= k || column >= n) return 0.0;
  return b[TRANSPOSE_B != 0 ? column * k + row : row * n + column];
}

float gelu(float x) { return 0.5 * x * (1.0 + tanh(0.7978845608 * (x + 0.044715 * x * x * x))); }

void main() {
  ivec2 corner = ivec2(gl_WorkGroupID.xy) * TILE;
  ivec2 here = ivec2(gl_LocalInvocationID.xy) * REGS;
  int thread = int(gl_LocalInvocationIndex);

  float sum[REGS][REGS];
  for (int i = 0; i < REGS; ++i)
    for (int j = 0; j < REGS; ++j) sum[i][j] = 0.0;

  for (int start = 0; start < k; start += DEPTH) {
    for (int i = thread; i < TILE * DEPTH; i += THREADS) {
      panel_a[i / TILE][i % TILE] = element_a(corner.y + i % TILE, start + i / TILE);
      panel_b[i / TILE][i % TILE] = element_b(start + i / TILE, corner.x + i % TILE);
    }
    barrier();
    for (int d = 0; d < DEPTH; ++d) {
      float row[REGS];
      float column[REGS];
      for (int i = 0; i < REGS; ++i) {
        row[i] = panel_a[d][here.y + i];
        column[i] = panel_b[d][here.x + i];
      }
      for (int i = 0; i < REGS; ++i)
        for (int j = 0; j < REGS; ++j) sum[i][j] += row[i] * column[j];
    }
    barrier();
  }

  for (int i = 0; i < REGS; ++i)
    for (int j = 0; j < REGS; ++j) {
      ivec2 at = corner + here + ivec2(j, i);
      if (at.x >= n || at.y >= m) continue;
      float value = alpha * sum[i][j];
      if (FUSE_BIAS != 0) value += bias[at.x];
      if (FUSE_GELU != 0) value = gelu(value);
      result[at.y * n + at.x] = value;
    }
}
)";

// A group takes ROWS rows: its threads stride along them four elements at a time, then fold their sums.
constexpr const char* matrix_vector = R"(#version 430
layout(local_size_x = THREADS) in;
layout(std430, binding = 0) readonly buffer A { vec4 a[]; };
layout(std430, binding = 1) readonly buffer X { vec4 x[]; };
layout(std430, binding = 2) writeonly buffer Y { float y[]; };
layout(std140, binding = 0) uniform Parameters { int rows; int columns; };

shared float partial[ROWS][THREADS];

void main() {
  int thread = int(gl_LocalInvocationID.x);
  int first = int(gl_WorkGroupID.x) * ROWS;
  int quads = columns / 4;

  float sum[ROWS];
  for (int r = 0; r < ROWS; ++r) sum[r] = 0.0;
  for (int i = thread; i < quads; i += THREADS) {
    vec4 value = x[i];
    for (int r = 0; r < ROWS; ++r)
      if (first + r < rows) sum[r] += dot(a[(first + r) * quads + i], value);
  }
  for (int r = 0; r < ROWS; ++r) partial[r][thread] = sum[r];
  barrier();
  for (int half_width = THREADS / 2; half_width > 0; half_width /= 2) {
    if (thread < half_width)
      for (int r = 0; r < ROWS; ++r) partial[r][thread] += partial[r][thread + half_width];
    barrier();
  }
  if (thread < ROWS && first + thread < rows) y[first + thread] = partial[thread][0];
}
)";

struct Variant {
  std::string name;
  int tile = 32;
  int regs = 4;
  int depth = 8;
  bool transpose_a = false;
  bool transpose_b = false;
  bool bias = false;
  bool gelu = false;
};

float gelu(double x) {
  return static_cast<float>(0.5 * x * (1.0 + std::tanh(0.7978845608 * (x + 0.044715 * x * x * x))));
}

Kernel gemm(const Variant& variant) {
  struct Parameters {
    std::int32_t m, n, k;
    float alpha;
  };
  const Parameters size{.m = 50, .n = 45, .k = 40, .alpha = 0.25F};
  const auto at = [](int row, int column, int width) { return static_cast<std::size_t>(row * width + column); };
  std::vector<float> a = noise(at(size.m, 0, size.k), 1);
  std::vector<float> b = noise(at(size.k, 0, size.n), 2);
  std::vector<float> bias = noise(at(size.n, 0, 1), 3);

  std::vector<float> expected;
  for (int row = 0; row < size.m; ++row)
    for (int column = 0; column < size.n; ++column) {
      double sum = 0;
      for (int i = 0; i < size.k; ++i)
        sum += double{a[variant.transpose_a ? at(i, row, size.m) : at(row, i, size.k)]} *
               double{b[variant.transpose_b ? at(column, i, size.k) : at(i, column, size.n)]};
      double value = double{size.alpha} * sum;
      if (variant.bias) value += double{bias[at(column, 0, 1)]};
      expected.push_back(variant.gelu ? gelu(value) : static_cast<float>(value));
    }

  const auto groups = [&](int n) { return static_cast<std::uint32_t>((n + variant.tile - 1) / variant.tile); };
  return {.request = Request({.name = variant.name,
                              .source = source,
                              .defines = {{"SIDE", std::to_string(variant.tile / variant.regs)},
                                          {"REGS", std::to_string(variant.regs)},
                                          {"DEPTH", std::to_string(variant.depth)},
                                          {"TRANSPOSE_A", variant.transpose_a ? "1" : "0"},
                                          {"TRANSPOSE_B", variant.transpose_b ? "1" : "0"},
                                          {"FUSE_BIAS", variant.bias ? "1" : "0"},
                                          {"FUSE_GELU", variant.gelu ? "1" : "0"}}}),
          .groups = {groups(size.n), groups(size.m), 1},
          .parameters = bytes_of(size),
          .inputs = {std::move(a), std::move(b), std::move(bias)},
          .expected = std::move(expected)};
}

Kernel gemv() {
  const int rows = 61;
  const int columns = 512;
  std::vector<float> a = noise(std::size_t{rows} * columns, 1);
  std::vector<float> x = noise(columns, 2);
  std::vector<float> expected;
  for (std::size_t row = 0; row < rows; ++row) {
    double sum = 0;
    for (std::size_t i = 0; i < columns; ++i) sum += double{a[row * columns + i]} * double{x[i]};
    expected.push_back(static_cast<float>(sum));
  }
  return {.request = Request(
              {.name = "gemv_8_rows", .source = matrix_vector, .defines = {{"ROWS", "8"}, {"THREADS", "32"}}}),
          .groups = {(rows + 7) / 8, 1, 1},
          .parameters = bytes_of(std::array{rows, columns}),
          .inputs = {std::move(a), std::move(x)},
          .expected = std::move(expected)};
}

}  // namespace

std::vector<Kernel> gemm_kernels() {
  std::vector<Kernel> kernels;
  for (const Variant& variant : {
           Variant{.name = "gemm_tn_t32", .transpose_a = true},
           Variant{.name = "gemm_nt_t16_bias_gelu", .tile = 16, .transpose_b = true, .bias = true, .gelu = true},
       })
    kernels.push_back(gemm(variant));
  kernels.push_back(gemv());
  return kernels;
}

}  // namespace kiln::cli::demo
