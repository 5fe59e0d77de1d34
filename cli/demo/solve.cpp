#include <cmath>

#include "kernel.hpp"

namespace kiln::cli::demo {
namespace {

// A system of ORDER equations a thread, all of it in registers: Cholesky's factors, then both substitutions. The
// loops have fixed ends, so that the compiler can unroll them; the conditions on their counters vanish with them.
constexpr const char* source = R"(#version 430
layout(local_size_x = 32) in;
layout(std430, binding = 0) readonly buffer Matrices { float matrices[]; };
layout(std430, binding = 1) readonly buffer Right { float right[]; };
layout(std430, binding = 2) writeonly buffer Output { float result[]; };
layout(std140, binding = 0) uniform Parameters { int count; };

void factor(inout float a[ORDER][ORDER]) {
  for (int k = 0; k < ORDER; ++k) {
    float inverse = inversesqrt(a[k][k]);
    for (int i = 0; i < ORDER; ++i)
      if (i >= k) a[i][k] *= inverse;
    for (int j = 0; j < ORDER; ++j)
      for (int i = 0; i < ORDER; ++i)
        if (j > k && i >= j) a[i][j] -= a[i][k] * a[j][k];
  }
}

void substitute(float l[ORDER][ORDER], inout float x[ORDER]) {
  for (int i = 0; i < ORDER; ++i) {
    for (int j = 0; j < ORDER; ++j)
      if (j < i) x[i] -= l[i][j] * x[j];
    x[i] /= l[i][i];
  }
  for (int i = ORDER - 1; i >= 0; --i) {
    for (int j = 0; j < ORDER; ++j)
      if (j > i) x[i] -= l[j][i] * x[j];
    x[i] /= l[i][i];
  }
}

void main() {
  int thread = int(gl_GlobalInvocationID.x);
  if (thread >= count) return;
  float a[ORDER][ORDER];
  float x[ORDER];
  for (int i = 0; i < ORDER; ++i) {
    for (int j = 0; j < ORDER; ++j)
      if (j <= i) a[i][j] = matrices[(thread * ORDER + i) * ORDER + j];
    x[i] = right[thread * ORDER + i];
  }
  factor(a);
  substitute(a, x);
  for (int i = 0; i < ORDER; ++i) result[thread * ORDER + i] = x[i];
}
)";

Kernel cholesky(std::string name, std::size_t order) {
  const std::int32_t count = 50;
  // B B^T plus a multiple of one is symmetric and far from singular; with x known, the right side follows.
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
  return {.request =
              Request({.name = std::move(name), .source = source, .defines = {{"ORDER", std::to_string(order)}}}),
          .groups = {(count + 31) / 32, 1, 1},
          .parameters = bytes_of(count),
          .inputs = {std::move(matrices), std::move(right)},
          .expected = std::move(x)};
}

}  // namespace

std::vector<Kernel> solve_kernels() {
  return {cholesky("cholesky_solve_6x6", 6), cholesky("cholesky_solve_8x8", 8)};
}

}  // namespace kiln::cli::demo
