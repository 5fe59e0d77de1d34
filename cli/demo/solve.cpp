#include <cmath>

#include "case.hpp"

namespace kiln::cli::demo {
namespace {

// Each work item solves a system of ORDER equations in registers: Cholesky factorisation, then both substitutions.
// The loops have fixed bounds, so that the compiler unrolls them and removes the conditions on their counters.
constexpr const char* solve_source = R"(KERNEL {
  int thread = global_id_x;
  if (thread >= count) return;
  float a[ORDER][ORDER];
  float x[ORDER];
  for (int i = 0; i < ORDER; ++i) {
    for (int j = 0; j < ORDER; ++j)
      if (j <= i) a[i][j] = matrices[(thread * ORDER + i) * ORDER + j];
    x[i] = right[thread * ORDER + i];
  }

  for (int k = 0; k < ORDER; ++k) {
    float inverse = rsqrt(a[k][k]);
    for (int i = 0; i < ORDER; ++i)
      if (i >= k) a[i][k] *= inverse;
    for (int j = 0; j < ORDER; ++j)
      for (int i = 0; i < ORDER; ++i)
        if (j > k && i >= j) a[i][j] -= a[i][k] * a[j][k];
  }

  for (int i = 0; i < ORDER; ++i) {
    for (int j = 0; j < ORDER; ++j)
      if (j < i) x[i] -= a[i][j] * x[j];
    x[i] /= a[i][i];
  }
  for (int i = ORDER - 1; i >= 0; --i) {
    for (int j = 0; j < ORDER; ++j)
      if (j > i) x[i] -= a[j][i] * x[j];
    x[i] /= a[i][i];
  }
  for (int i = 0; i < ORDER; ++i) result[thread * ORDER + i] = x[i];
}
)";

Case cholesky(std::string name, std::size_t order) {
  const std::int32_t count = 50;
  // B B^T plus a multiple of the identity is symmetric and well-conditioned. The right side is computed from x.
  const std::vector<float> b = noise(count * order * order, 1);
  std::vector<float> x = noise(count * order, 2);
  std::vector<float> matrices;
  std::vector<float> right;
  for (std::size_t system = 0; system < count; ++system)
    for (std::size_t i = 0; i < order; ++i) {
      double sum = 0;
      for (std::size_t j = 0; j < order; ++j) {
        double element = i == j ? 2.0 : 0.0;
        for (std::size_t k = 0; k < order; ++k)
          element += double{b[(system * order + i) * order + k]} * double{b[(system * order + j) * order + k]};
        matrices.push_back(static_cast<float>(element));
        sum += element * double{x[system * order + j]};
      }
      right.push_back(static_cast<float>(sum));
    }
  return {.kernel = {.name = std::move(name),
                     .buffers = {{"matrices"}, {"right"}, {"result", Type::f32, Access::write}},
                     .scalars = {{"count"}},
                     .group_size = {32, 1, 1},
                     .parameters = {{"ORDER", std::to_string(order)}},
                     .source = solve_source},
          .groups = {(count + 31) / 32, 1, 1},
          .scalars = {count},
          .inputs = {std::move(matrices), std::move(right)},
          .expected = std::move(x)};
}

}  // namespace

std::vector<Case> solve_cases() { return {cholesky("cholesky_solve_6x6", 6), cholesky("cholesky_solve_8x8", 8)}; }

}  // namespace kiln::cli::demo
