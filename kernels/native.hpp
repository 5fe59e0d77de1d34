#pragma once

#include <string_view>

namespace kiln::kernels {

/// Compiler-specific macros beyond the kernel dialect. EXP is exp(); in CUDA and NVIDIA's OpenCL it is the GPU's
/// fast instruction, whose error grows with the argument. In those two, OF_NEIGHBOUR(value, n) is the value of the
/// work item whose lane in the warp is this lane XOR n; all work items of the warp must execute it.
///
/// LOAD_IF(there, array, at) is an element, or zero if not `there`; in GLSL also a quad. LOAD_BY is the same with
/// -1 for true and 0 for false. LOAD_QUAD_IF assigns a quad, or zeros. GLSL compilers turn a conditional load into
/// a branch and wait for each load in turn. The GLSL versions therefore always load, and mask the bits. This needs
/// a few more registers, which Vulkan's compiler does not have left in matrix tiles.
constexpr std::string_view native_source = R"(#if KILN_CUDA
#define EXP __expf
#define OF_NEIGHBOUR(value, other) __shfl_xor_sync(0xffffffffu, value, other)
#elif defined(__NV_CL_C_VERSION)
#define EXP native_exp
FUNCTION float of_neighbour(float value, int other) {
  float its;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;" : "=f"(its) : "f"(value), "r"(other));
  return its;
}
#define OF_NEIGHBOUR(value, other) of_neighbour(value, other)
#else
#define EXP exp
#endif
#if KILN_OPENGL || KILN_VULKAN
FUNCTION float masked(float element, int mask) { return as_float(as_uint(element) & to_uint(mask)); }
FUNCTION float4 masked(float4 quad, int mask) { return as_float(as_uint(quad) & to_uint(mask)); }
#define LOAD_BY(mask, array, at) masked(array[(at) & (mask)], mask)
#define LOAD_IF(there, array, at) LOAD_BY(-to_int(there), array, at)
#else
#define LOAD_BY(mask, array, at) ((mask) != 0 ? array[at] : 0.0f)
#define LOAD_IF(there, array, at) ((there) ? array[at] : 0.0f)
#endif
#if KILN_OPENGL
#define LOAD_QUAD_IF(into, there, array, at) into = LOAD_IF(there, array, at);
#else
#define LOAD_QUAD_IF(into, there, array, at) { \
    into = make_float4(0.0f, 0.0f, 0.0f, 0.0f); \
    if (there) into = array[at]; \
  }
#endif
)";

}  // namespace kiln::kernels
