#version 430
#line 60000 0
#define KILN_OPENGL 1
#define UNROLL
#define FUNCTION
#define group_id_x int(gl_WorkGroupID.x)
#define group_id_y int(gl_WorkGroupID.y)
#define group_id_z int(gl_WorkGroupID.z)
#define group_count_x int(gl_NumWorkGroups.x)
#define group_count_y int(gl_NumWorkGroups.y)
#define group_count_z int(gl_NumWorkGroups.z)
#define local_id_x int(gl_LocalInvocationID.x)
#define local_id_y int(gl_LocalInvocationID.y)
#define local_id_z int(gl_LocalInvocationID.z)
#define global_id_x int(gl_GlobalInvocationID.x)
#define global_id_y int(gl_GlobalInvocationID.y)
#define global_id_z int(gl_GlobalInvocationID.z)
#define local_index int(gl_LocalInvocationIndex)
#define memory_barrier() memoryBarrier()
#define float2 vec2
#define float4 vec4
#define int4 ivec4
#define uint4 uvec4
#define make_float2 vec2
#define make_float4 vec4
#define make_int4 ivec4
#define make_uint4 uvec4
#define to_float(x) float(x)
#define to_int(x) int(x)
#define to_uint(x) uint(x)
#define as_float(x) uintBitsToFloat(x)
#define as_uint(x) floatBitsToUint(x)
#define fabs abs
#define fmin min
#define fmax max
#define rsqrt inversesqrt
#define popcount(x) bitCount(x)
#define INFINITY uintBitsToFloat(0x7f800000u)
#define load_half(a, i) unpackHalf2x16((a)[(i) >> 1])[(i) & 1]
#define load_half2(a, i) unpackHalf2x16((a)[i])
#define store_half2(a, i, v) (a)[i] = packHalf2x16(v)
#define group_barrier() barrier()
layout(local_size_x = GROUP_X, local_size_y = GROUP_Y, local_size_z = GROUP_Z) in;
layout(std430, binding = 0) restrict readonly buffer kiln_buffer_0 { float a[]; };
layout(std430, binding = 1) restrict readonly buffer kiln_buffer_1 { float b[]; };
layout(std430, binding = 2) restrict writeonly buffer kiln_buffer_2 { float c[]; };
layout(std140, binding = 0) uniform kiln_scalars { int m; int n; int k; };
shared float panel_a[DEPTH][TILE];
shared float panel_b[DEPTH][TILE];
#line 1 0
void main() {
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
