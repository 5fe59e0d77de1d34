#line 60000 "gemm_t32_r4"
#define KILN_OPENCL 1
#define UNROLL _Pragma("unroll")
#define FUNCTION static inline
#define group_id_x ((int)get_group_id(0))
#define group_id_y ((int)get_group_id(1))
#define group_id_z ((int)get_group_id(2))
#define group_count_x ((int)get_num_groups(0))
#define group_count_y ((int)get_num_groups(1))
#define group_count_z ((int)get_num_groups(2))
#define local_id_x ((int)get_local_id(0))
#define local_id_y ((int)get_local_id(1))
#define local_id_z ((int)get_local_id(2))
#define global_id_x ((int)get_global_id(0))
#define global_id_y ((int)get_global_id(1))
#define global_id_z ((int)get_global_id(2))
#define local_index ((local_id_z * GROUP_Y + local_id_y) * GROUP_X + local_id_x)
#define memory_barrier() mem_fence(CLK_GLOBAL_MEM_FENCE)
#define make_float2(x, y) ((float2)((x), (y)))
#define make_float4(x, y, z, w) ((float4)((x), (y), (z), (w)))
#define make_int4(x, y, z, w) ((int4)((x), (y), (z), (w)))
#define make_uint4(x, y, z, w) ((uint4)((x), (y), (z), (w)))
#define to_float(x) ((float)(x))
#define to_int(x) ((int)(x))
#define to_uint(x) ((uint)(x))
#define atomicAdd(x, v) atomic_add(&(x), (v))
#define atomicMin(x, v) atomic_min(&(x), (v))
#define atomicMax(x, v) atomic_max(&(x), (v))
#define atomicAnd(x, v) atomic_and(&(x), (v))
#define atomicOr(x, v) atomic_or(&(x), (v))
#define atomicXor(x, v) atomic_xor(&(x), (v))
#define atomicExchange(x, v) atomic_xchg(&(x), (v))
#define atomicCompSwap(x, old, v) atomic_cmpxchg(&(x), (old), (v))
#define load_half(a, i) vload_half((i), (a))
#define load_half2(a, i) vload_half2((i), (a))
#define store_half2(a, i, v) vstore_half2((v), (i), (a))
#define group_barrier() barrier(CLK_LOCAL_MEM_FENCE)
struct kiln_scalars { int m; int n; int k; };
#line 1 "gemm_t32_r4"
#line 60038 "gemm_t32_r4"
kernel __attribute__((reqd_work_group_size(GROUP_X, GROUP_Y, GROUP_Z))) void kiln_gemm_t32_r4(
global const float* restrict a,
global const float* restrict b,
global float* restrict c,
const struct kiln_scalars kiln_given) {
const int m = kiln_given.m;
const int n = kiln_given.n;
const int k = kiln_given.k;
local float panel_a[DEPTH][TILE];
local float panel_b[DEPTH][TILE];
#line 1 "gemm_t32_r4"
 {
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
}
