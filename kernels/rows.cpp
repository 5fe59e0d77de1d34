#include "kernels/rows.hpp"

#include <fmt/format.h>

namespace kiln::kernels {

// In CUDA a row's work items are whole warps, whose registers fold without barriers.
const std::string_view fold_source = R"(#if KILN_CUDA
#define FOLD(value, of_two) { \
  UNROLL for (int other = 16; other > 0; other >>= 1) \
    value = of_two(value, __shfl_xor_sync(0xffffffffu, value, other)); \
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
#define FOLD(value, of_two) { \
  group_barrier(); \
  partial[local_id_y][local_id_x] = value; \
  for (int other = GROUP_X / 2; other > 0; other >>= 1) { \
    group_barrier(); \
    if (local_id_x < other) \
      partial[local_id_y][local_id_x] = of_two(partial[local_id_y][local_id_x], \
                                               partial[local_id_y][local_id_x + other]); \
  } \
  group_barrier(); \
  value = partial[local_id_y][0]; \
}
#endif
)";

std::string RowGroup::name() const { return fmt::format("x{}_y{}", items, rows); }

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
