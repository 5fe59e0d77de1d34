#include "kernels/rows.hpp"

#include <fmt/format.h>

namespace kiln::kernels {

// In CUDA and NVIDIA's OpenCL, a row's work items are whole warps, which fold in registers without barriers.
const std::string_view fold_source = R"(#ifdef OF_NEIGHBOUR
#define FOLD(value, of_two) { \
  UNROLL for (int other = 16; other > 0; other >>= 1) value = of_two(value, OF_NEIGHBOUR(value, other)); \
  if (GROUP_X > 32) { \
    group_barrier(); \
    if (local_id_x % 32 == 0) partial[local_id_y][local_id_x / 32] = value; \
    group_barrier(); \
    value = partial[local_id_y][0]; \
    UNROLL for (int other = 1; other < GROUP_X / 32; ++other) \
      value = of_two(value, partial[local_id_y][other]); \
  } \
}
#else
#define FOLDED (GROUP_X > 256 ? 32 : GROUP_X >= 16 ? 16 : GROUP_X)
#define FOLD(value, of_two) { \
  group_barrier(); \
  partial[local_id_y][local_id_x] = value; \
  group_barrier(); \
  if (local_id_x < FOLDED) { \
    for (int other = local_id_x + FOLDED; other < GROUP_X; other += FOLDED) \
      value = of_two(value, partial[local_id_y][other]); \
    partial[local_id_y][local_id_x] = value; \
  } \
  group_barrier(); \
  value = partial[local_id_y][0]; \
  UNROLL for (int other = 1; other < FOLDED; ++other) value = of_two(value, partial[local_id_y][other]); \
}
#endif
)";

std::string RowGroup::name() const { return fmt::format("x{}_y{}", items, rows); }

std::int64_t fold_steps(const RowGroup& group) {
  // Mesa's compiler unrolls the last loop if it has at most 16 iterations.
  return group.items / 16 + 1 + (group.items > 256 ? 33 : 0);
}

RowGroup row_group_for(std::int64_t width) {
  if (width <= 1024) return {.items = 32, .rows = 4};
  return {.items = 256, .rows = 1};
}

Rows rows_of(const Shape& shape) {
  if (shape.empty()) return {};
  Rows rows{.count = 1, .width = shape.back()};
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) rows.count *= shape[i];
  return rows;
}

SharedArray partial_array() { return {"partial", Type::f32, {"GROUP_Y", "GROUP_X"}}; }

}  // namespace kiln::kernels
