#include <cmath>

#include "case.hpp"

namespace kiln::cli::demo {
namespace {

// A group computes a TILE x TILE block of C, each work item REGS x REGS of it, from panels of DEPTH staged in
// shared memory. The matrices are row-major, m x k and k x n before TRANSPOSE_A and TRANSPOSE_B.
constexpr const char* gemm_source = R"(FUNCTION float gelu(float x) {
  return 0.5f * x * (1.0f + tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
}

KERNEL {
  int top = group_id_y * TILE;
  int left = group_id_x * TILE;

  float sum[REGS][REGS];
  for (int i = 0; i < REGS; ++i)
    for (int j = 0; j < REGS; ++j) sum[i][j] = 0.0f;

  for (int start = 0; start < k; start += DEPTH) {
    for (int i = local_index; i < TILE * DEPTH; i += GROUP_X * GROUP_Y) {
      int d = start + i / TILE;
      int r = top + i % TILE;
      int s = left + i % TILE;
      panel_a[i / TILE][i % TILE] = r < m && d < k ? a[TRANSPOSE_A != 0 ? d * m + r : r * k + d] : 0.0f;
      panel_b[i / TILE][i % TILE] = s < n && d < k ? b[TRANSPOSE_B != 0 ? s * k + d : d * n + s] : 0.0f;
    }
    group_barrier();
    for (int d = 0; d < DEPTH; ++d) {
      float row[REGS];
      float column[REGS];
      for (int i = 0; i < REGS; ++i) {
        row[i] = panel_a[d][local_id_y * REGS + i];
        column[i] = panel_b[d][local_id_x * REGS + i];
      }
      for (int i = 0; i < REGS; ++i)
        for (int j = 0; j < REGS; ++j) sum[i][j] = fma(row[i], column[j], sum[i][j]);
    }
    group_barrier();
  }

  for (int i = 0; i < REGS; ++i)
    for (int j = 0; j < REGS; ++j) {
      int r = top + local_id_y * REGS + i;
      int s = left + local_id_x * REGS + j;
      if (r >= m || s >= n) continue;
      float value = alpha * sum[i][j];
      if (FUSE_BIAS != 0) value += bias[s];
      if (FUSE_GELU != 0) value = gelu(value);
      result[r * n + s] = value;
    }
}
)";

// A group computes ROWS rows. Its work items stride along them four elements at a time, then add up their sums.
constexpr const char* matrix_vector = R"(KERNEL {
  int thread = local_id_x;
  int first = group_id_x * ROWS;
  int quads = columns / 4;

  float sum[ROWS];
  for (int r = 0; r < ROWS; ++r) sum[r] = 0.0f;
  for (int i = thread; i < quads; i += GROUP_X) {
    float4 value = x[i];
    for (int r = 0; r < ROWS; ++r)
      if (first + r < rows) sum[r] += dot(a[(first + r) * quads + i], value);
  }
  for (int r = 0; r < ROWS; ++r) partial[r][thread] = sum[r];
  group_barrier();
  for (int other = GROUP_X / 2; other > 0; other >>= 1) {
    if (thread < other)
      for (int r = 0; r < ROWS; ++r) partial[r][thread] += partial[r][thread + other];
    group_barrier();
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

Case gemm(const Variant& variant) {
  struct {
    std::int32_t m = 50, n = 45, k = 40;
  } const size;
  constexpr float alpha = 0.25F;
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
      double value = double{alpha} * sum;
      if (variant.bias) value += double{bias[at(column, 0, 1)]};
      expected.push_back(variant.gelu ? gelu(value) : static_cast<float>(value));
    }

  const auto groups = [&](int n) { return static_cast<std::uint32_t>((n + variant.tile - 1) / variant.tile); };
  const auto side = static_cast<std::uint32_t>(variant.tile / variant.regs);
  return {
      .kernel = {.name = variant.name,
                 .buffers = {{"a"}, {"b"}, {"bias"}, {"result", Type::f32, Access::write}},
                 .scalars = {{"m"}, {"n"}, {"k"}, {"alpha", Type::f32}},
                 .shared = {{"panel_a", Type::f32, {"DEPTH", "TILE"}}, {"panel_b", Type::f32, {"DEPTH", "TILE"}}},
                 .group_size = {side, side, 1},
                 .parameters = {{"TILE", std::to_string(variant.tile)},
                                {"REGS", std::to_string(variant.regs)},
                                {"DEPTH", std::to_string(variant.depth)},
                                {"TRANSPOSE_A", variant.transpose_a ? "1" : "0"},
                                {"TRANSPOSE_B", variant.transpose_b ? "1" : "0"},
                                {"FUSE_BIAS", variant.bias ? "1" : "0"},
                                {"FUSE_GELU", variant.gelu ? "1" : "0"}},
                 .source = gemm_source},
      .groups = {groups(size.n), groups(size.m), 1},
      .scalars = {size.m, size.n, size.k, alpha},
      .inputs = {std::move(a), std::move(b), std::move(bias)},
      .expected = std::move(expected)};
}

Case gemv() {
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
  return {.kernel = {.name = "gemv_8_rows",
                     .buffers = {{"a", Type::f32x4}, {"x", Type::f32x4}, {"y", Type::f32, Access::write}},
                     .scalars = {{"rows"}, {"columns"}},
                     .shared = {{"partial", Type::f32, {"ROWS", "GROUP_X"}}},
                     .group_size = {32, 1, 1},
                     .parameters = {{"ROWS", "8"}},
                     .source = matrix_vector},
          .groups = {(rows + 7) / 8, 1, 1},
          .scalars = {rows, columns},
          .inputs = {std::move(a), std::move(x)},
          .expected = std::move(expected)};
}

}  // namespace

std::vector<Case> gemm_cases() {
  std::vector<Case> cases;
  for (const Variant& variant : {
           Variant{.name = "gemm_tn_t32", .transpose_a = true},
           Variant{.name = "gemm_nt_t16_bias_gelu", .tile = 16, .transpose_b = true, .bias = true, .gelu = true},
       })
    cases.push_back(gemm(variant));
  cases.push_back(gemv());
  return cases;
}

}  // namespace kiln::cli::demo
