#include "dialect/text.hpp"

namespace kiln::dialect {
namespace {

constexpr std::string_view opengl = R"(#version 430
#define KILN_OPENGL 1
#define UNROLL
)";

constexpr std::string_view vulkan = R"(#version 450
#extension GL_EXT_control_flow_attributes : enable
#define KILN_VULKAN 1
#define UNROLL [[unroll]]
)";

constexpr std::string_view glsl = R"(#define FUNCTION
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
)";

// barrier() always covers shared arrays. Covering buffers too makes drivers wait for all loads and stores, so
// kernels that do not need it use the plain form.
constexpr std::string_view glsl_barrier = R"(#define group_barrier() barrier()
)";
constexpr std::string_view glsl_barrier_of_buffers =
    R"(#define group_barrier() do { groupMemoryBarrier(); barrier(); } while (false)
)";

constexpr std::string_view opencl = R"(#define KILN_OPENCL 1
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
)";

constexpr std::string_view opencl_barrier = R"(#define group_barrier() barrier(CLK_LOCAL_MEM_FENCE)
)";
constexpr std::string_view opencl_barrier_of_buffers =
    R"(#define group_barrier() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
)";

// CUDA and HIP. The atomics are functions, not macros, so that native code can still call the language's own
// functions of the same names, which take pointers.
constexpr std::string_view cuda_like = R"(#define UNROLL _Pragma("unroll")
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
)";

constexpr std::string_view cuda = R"(#define KILN_CUDA 1
#define INFINITY __int_as_float(0x7f800000)
)";

// HIP's vector types have these operators; hip_half has its conversions.
constexpr std::string_view cuda_vectors =
    R"(FUNCTION float2 operator+(float2 a, float2 b) { return make_float2(a.x + b.x, a.y + b.y); }
FUNCTION float2 operator-(float2 a, float2 b) { return make_float2(a.x - b.x, a.y - b.y); }
FUNCTION float2 operator*(float2 a, float2 b) { return make_float2(a.x * b.x, a.y * b.y); }
FUNCTION float2 operator*(float2 a, float b) { return make_float2(a.x * b, a.y * b); }
FUNCTION float2 operator*(float a, float2 b) { return b * a; }
FUNCTION float4 operator+(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }
FUNCTION float4 operator-(float4 a, float4 b) { return make_float4(a.x - b.x, a.y - b.y, a.z - b.z, a.w - b.w); }
FUNCTION float4 operator*(float4 a, float4 b) { return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w); }
FUNCTION float4 operator*(float4 a, float b) { return make_float4(a.x * b, a.y * b, a.z * b, a.w * b); }
FUNCTION float4 operator*(float a, float4 b) { return b * a; }
FUNCTION float2& operator+=(float2& a, float2 b) { return a = a + b; }
FUNCTION float4& operator+=(float4& a, float4 b) { return a = a + b; }
FUNCTION float2& operator*=(float2& a, float b) { return a = a * b; }
FUNCTION float4& operator*=(float4& a, float b) { return a = a * b; }
FUNCTION float kiln_from_half(unsigned short h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
FUNCTION unsigned short kiln_to_half(float f) { unsigned short h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h; }
)";

constexpr std::string_view hip = R"(#define KILN_HIP 1
#undef INFINITY
#define INFINITY __builtin_inff()
)";

constexpr std::string_view hip_half =
    R"(FUNCTION float kiln_from_half(unsigned short h) { return (float)__builtin_bit_cast(_Float16, h); }
FUNCTION unsigned short kiln_to_half(float f) { return __builtin_bit_cast(unsigned short, (_Float16)f); }
)";

}  // namespace

std::vector<std::string_view> prelude(Language language, bool reads_what_it_writes) {
  const std::string_view in_glsl = reads_what_it_writes ? glsl_barrier_of_buffers : glsl_barrier;
  switch (language) {
    case Language::glsl: return {opengl, glsl, in_glsl};
    case Language::vulkan_glsl: return {vulkan, glsl, in_glsl};
    case Language::opencl: return {opencl, reads_what_it_writes ? opencl_barrier_of_buffers : opencl_barrier};
    case Language::cuda: return {cuda, cuda_like, cuda_vectors};
    case Language::hip: return {hip, cuda_like, hip_half};
    default: break;
  }
  return {};
}

}  // namespace kiln::dialect
