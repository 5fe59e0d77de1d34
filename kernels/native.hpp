#pragma once

#include <string_view>

namespace kiln::kernels {

/// What some compilers have beyond the kernels' common language, and what they need to be told. EXP is exp(), in
/// CUDA and NVIDIA's OpenCL the GPU's own, whose error grows with the argument. In those two, OF_NEIGHBOUR(value,
/// n) is the value of the work item whose place in the warp differs by an exclusive or with n; every work item of
/// the warp must ask.
///
/// LOAD_IF(there, array, at) is an element, or zero where there is none, in GLSL also a quad; LOAD_BY the same with
/// -1 for true and 0 for false; LOAD_QUAD_IF puts a quad, or zeros, somewhere. Compilers of GLSL make a branch of a
/// choice, and wait for each load in turn: loading something in any case, and keeping all of its bits or none, has
/// no branches. It takes a few more registers, for which Vulkan's compiler has none left in the tiles of matrices.
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
