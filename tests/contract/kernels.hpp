#pragma once

#include <kiln/kernel.hpp>

namespace kiln::contract {

/// y[i] = x[i] * FACTOR + offset.
inline Kernel scale(int factor) {
  return {.name = "scale_" + std::to_string(factor),
          .buffers = {{"x", Type::f32, Access::read}, {"y", Type::f32, Access::write}},
          .scalars = {{"count", Type::i32}, {"offset", Type::f32}},
          .parameters = {{"FACTOR", std::to_string(factor) + ".0f"}},
          .source = R"(KERNEL {
  int i = global_id_x;
  if (i < count) y[i] = fma(x[i], FACTOR, offset);
}
)"};
}

/// c = a b, row-major, m x k and k x n: a group computes a TILE x TILE block of c, a work item REGS x REGS of it,
/// from panels of DEPTH in shared memory.
inline Kernel gemm() {
  return {.name = "gemm_t32_r4",
          .buffers = {{"a"}, {"b"}, {"c", Type::f32, Access::write}},
          .scalars = {{"m"}, {"n"}, {"k"}},
          .shared = {{"panel_a", Type::f32, {"DEPTH", "TILE"}}, {"panel_b", Type::f32, {"DEPTH", "TILE"}}},
          .group_size = {8, 8, 1},
          .parameters = {{"TILE", "32"}, {"REGS", "4"}, {"DEPTH", "8"}},
          .source = R"(KERNEL {
  int row = group_id_y * TILE;
  int column = group_id_x * TILE;
  float sum[REGS][REGS];
  for (int i = 0; i < REGS; ++i)
    for (int j = 0; j < REGS; ++j) sum[i][j] = 0.0f;

  for (int start = 0; start < k; start += DEPTH) {
    for (int i = local_index; i < TILE * DEPTH; i += GROUP_X * GROUP_Y) {
      int d = start + i / TILE;
      int r = row + i % TILE;
      int s = column + i % TILE;
      panel_a[i / TILE][i % TILE] = r < m && d < k ? a[r * k + d] : 0.0f;
      panel_b[i / TILE][i % TILE] = s < n && d < k ? b[d * n + s] : 0.0f;
    }
    group_barrier();
    for (int d = 0; d < DEPTH; ++d) {
      UNROLL for (int i = 0; i < REGS; ++i)
        for (int j = 0; j < REGS; ++j)
          sum[i][j] = fma(panel_a[d][local_id_y * REGS + i], panel_b[d][local_id_x * REGS + j], sum[i][j]);
    }
    group_barrier();
  }

  for (int i = 0; i < REGS; ++i)
    for (int j = 0; j < REGS; ++j) {
      int r = row + local_id_y * REGS + i;
      int s = column + local_id_x * REGS + j;
      if (r < m && s < n) c[r * n + s] = sum[i][j];
    }
}
)"};
}

/// Every word of the dialect, one result a word.
inline Kernel words() {
  return {.name = "words",
          .buffers = {{"quads", Type::f32x4, Access::read},
                      {"halves", Type::f16, Access::read},
                      {"halves_out", Type::f16, Access::write},
                      {"counts", Type::u32, Access::read_write},
                      {"signed_counts", Type::i32, Access::read_write},
                      {"out_values", Type::f32, Access::write}},
          .scalars = {{"f", Type::f32}, {"u", Type::u32}, {"i", Type::i32}},
          .shared = {{"cells", Type::u32, {"2"}}, {"line", Type::f32x4, {"GROUP_X * GROUP_Y"}}},
          .group_size = {8, 4, 1},
          .source = R"(FUNCTION float twice(float x) { return x + x; }
FUNCTION int limit(int x) { return clamp(x, -2, 2); }

KERNEL {
  if (local_index < 2) cells[local_index] = 0u;
  line[local_index] = quads[0] * to_float(local_index);
  group_barrier();
  atomicAdd(cells[0], 1u);
  atomicMax(cells[1], to_uint(local_index));
  group_barrier();
  atomicAdd(counts[0], 1u);
  atomicMin(counts[1], to_uint(global_id_x));
  atomicMax(counts[2], to_uint(global_id_y));
  atomicOr(counts[3], 1u << to_uint(local_id_x));
  atomicAnd(counts[4], ~(1u << to_uint(local_id_x)));
  atomicXor(counts[5], 1u << to_uint(local_index));
  atomicCompSwap(counts[6], 7u, 9u);
  atomicAdd(signed_counts[0], -1);
  memory_barrier();
  if (group_id_x == 0 && local_index == 0) {
    float4 sum = line[1] + line[2] * make_float4(1.0f, 2.0f, 3.0f, 4.0f) - line[3];
    float2 pair = load_half2(halves, 1);
    out_values[0] = twice(f);
    out_values[1] = sum.x;
    out_values[2] = sum.w;
    out_values[3] = dot(line[1], line[1]);
    out_values[4] = pair.x + pair.y;
    out_values[5] = load_half(halves, 1);
    out_values[6] = to_float(cells[0]);
    out_values[7] = to_float(cells[1]);
    out_values[8] = to_float(limit(i));
    out_values[9] = to_float(popcount(u));
    out_values[10] = as_float(as_uint(f) ^ 0x80000000u);
    out_values[11] = fabs(-f) + fmin(f, 0.5f) + fmax(f, 4.0f);
    out_values[12] = rsqrt(16.0f) + sqrt(16.0f) + floor(-1.5f) + ceil(1.5f);
    out_values[13] = exp(0.0f) + log(1.0f) + sin(0.0f) + cos(0.0f) + tanh(0.0f) + pow(2.0f, 3.0f);
    out_values[14] = f < INFINITY ? 1.0f : 0.0f;
    out_values[15] = to_float(group_count_x * 100 + group_count_y * 10 + group_count_z);
    out_values[16] = to_float(max(min(i, 5), 1)) + clamp(f, 0.0f, 1.0f);
    store_half2(halves_out, 0, make_float2(f, -f));
  }
  if (group_id_x == 1 && local_index == 9) {
    uint last = atomicExchange(counts[7], u);
    out_values[17] = to_float(last);
    out_values[18] = to_float(to_int(2.75f) + local_id_x + 10 * local_id_y + 100 * local_id_z + global_id_z);
    UNROLL for (int n = 0; n < 2; ++n) out_values[local_index + 10 + n] = to_float(n);
  }
}
)"};
}

/// Counts its work items: counts[0] as the dialect does it, counts[1] as each language does by itself.
inline Kernel native_atomics() {
  return {.name = "native_atomics",
          .buffers = {{"counts", Type::u32, Access::read_write}},
          .shared = {{"arrived", Type::i32, {"1"}}},
          .source = R"(KERNEL {
  if (local_index == 0) arrived[0] = 0;
  group_barrier();
  atomicAdd(arrived[0], 1);
  group_barrier();
  if (local_index == 0) atomicAdd(counts[0], to_uint(arrived[0]));
#if KILN_CUDA || KILN_HIP
  atomicAdd(&counts[1], 1u);
#elif KILN_OPENCL
  atomic_add(&counts[1], 1u);
#else
  atomicAdd(counts[1], 1u);
#endif
}
)"};
}

}  // namespace kiln::contract
