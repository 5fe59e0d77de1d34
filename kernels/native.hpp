#pragma once

#include <string_view>

namespace kiln::kernels {

/// What some compilers have beyond the kernels' common language. EXP is exp(), in CUDA and NVIDIA's OpenCL the
/// GPU's own, whose error grows with the argument. In those two, OF_NEIGHBOUR(value, n) is the value of the work
/// item whose place in the warp differs by an exclusive or with n; every work item of the warp must ask.
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
)";

}  // namespace kiln::kernels
