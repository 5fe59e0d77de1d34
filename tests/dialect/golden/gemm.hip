#line 60000 "gemm_t32_r4"
#define KILN_HIP 1
#undef INFINITY
#define INFINITY __builtin_inff()
#define UNROLL _Pragma("unroll")
#define FUNCTION [[maybe_unused]] static __device__ __forceinline__
typedef unsigned int uint;
#define group_id_x ((int)blockIdx.x)
#define group_id_y ((int)blockIdx.y)
#define group_id_z ((int)blockIdx.z)
#define group_count_x ((int)gridDim.x)
#define group_count_y ((int)gridDim.y)
#define group_count_z ((int)gridDim.z)
#define local_id_x ((int)threadIdx.x)
#define local_id_y ((int)threadIdx.y)
#define local_id_z ((int)threadIdx.z)
#define global_id_x (group_id_x * GROUP_X + local_id_x)
#define global_id_y (group_id_y * GROUP_Y + local_id_y)
#define global_id_z (group_id_z * GROUP_Z + local_id_z)
#define local_index ((local_id_z * GROUP_Y + local_id_y) * GROUP_X + local_id_x)
#define group_barrier() __syncthreads()
#define memory_barrier() __threadfence()
#define to_float(x) ((float)(x))
#define to_int(x) ((int)(x))
#define to_uint(x) ((uint)(x))
#define as_float(x) __uint_as_float(x)
#define as_uint(x) __float_as_uint(x)
#define popcount(x) __popc(x)
#define load_half(a, i) kiln_from_half((a)[i])
#define load_half2(a, i) make_float2(kiln_from_half((a)[2 * (i)]), kiln_from_half((a)[2 * (i) + 1]))
#define store_half2(a, i, v) ((a)[2 * (i)] = kiln_to_half((v).x), (a)[2 * (i) + 1] = kiln_to_half((v).y))
FUNCTION int atomicAdd(int& x, int v) { return ::atomicAdd(&x, v); }
FUNCTION uint atomicAdd(uint& x, uint v) { return ::atomicAdd(&x, v); }
FUNCTION int atomicMin(int& x, int v) { return ::atomicMin(&x, v); }
FUNCTION uint atomicMin(uint& x, uint v) { return ::atomicMin(&x, v); }
FUNCTION int atomicMax(int& x, int v) { return ::atomicMax(&x, v); }
FUNCTION uint atomicMax(uint& x, uint v) { return ::atomicMax(&x, v); }
FUNCTION int atomicAnd(int& x, int v) { return ::atomicAnd(&x, v); }
FUNCTION uint atomicAnd(uint& x, uint v) { return ::atomicAnd(&x, v); }
FUNCTION int atomicOr(int& x, int v) { return ::atomicOr(&x, v); }
FUNCTION uint atomicOr(uint& x, uint v) { return ::atomicOr(&x, v); }
FUNCTION int atomicXor(int& x, int v) { return ::atomicXor(&x, v); }
FUNCTION uint atomicXor(uint& x, uint v) { return ::atomicXor(&x, v); }
FUNCTION int atomicExchange(int& x, int v) { return ::atomicExch(&x, v); }
FUNCTION uint atomicExchange(uint& x, uint v) { return ::atomicExch(&x, v); }
FUNCTION int atomicCompSwap(int& x, int old, int v) { return ::atomicCAS(&x, old, v); }
FUNCTION uint atomicCompSwap(uint& x, uint old, uint v) { return ::atomicCAS(&x, old, v); }
FUNCTION float clamp(float x, float low, float high) { return fminf(fmaxf(x, low), high); }
FUNCTION int clamp(int x, int low, int high) { return x < low ? low : x > high ? high : x; }
FUNCTION float dot(float2 a, float2 b) { return a.x * b.x + a.y * b.y; }
FUNCTION float dot(float4 a, float4 b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }
FUNCTION float kiln_from_half(unsigned short h) { return (float)__builtin_bit_cast(_Float16, h); }
FUNCTION unsigned short kiln_to_half(float f) { return __builtin_bit_cast(unsigned short, (_Float16)f); }
struct kiln_scalars { int m; int n; int k; };
#line 1 "gemm_t32_r4"
#line 60054 "gemm_t32_r4"
extern "C" __global__ void __launch_bounds__(GROUP_X * GROUP_Y * GROUP_Z) kiln_gemm_t32_r4(
const float* __restrict__ a,
const float* __restrict__ b,
float* __restrict__ c,
const struct kiln_scalars kiln_given) {
const int m = kiln_given.m;
const int n = kiln_given.n;
const int k = kiln_given.k;
__shared__ float panel_a[DEPTH][TILE];
__shared__ float panel_b[DEPTH][TILE];
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
