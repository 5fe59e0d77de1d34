#include "kernels/gemm.hpp"

#include "kernels/native.hpp"

namespace kiln::kernels {
namespace {

// A group computes one tile of the result after another. If the depth is divided, it computes tiles of `parts`
// partial results instead. Four elements are loaded along the dimension in which they are contiguous: the depth
// (K), or the rows of A and columns of B. A turned matrix is contiguous along the depth, but four elements are
// loaded across it, one by one, so that they can be stored to the panel at once; neighbouring work items load
// neighbouring elements.
constexpr std::string_view gemm_source = R"(
// What is no part of a sum has its depth from the call: a register less.
#if DIVIDED
#define DEPTH depth
#define PARTS parts
#else
#define DEPTH k
#define PARTS 1
#endif
#define AT_A(r, d) LOAD_IF((d) < DEPTH, a, a_first + min(top + (r), m - 1) * a_row + (d) * a_depth)
#define AT_B(d, c) LOAD_IF((d) < DEPTH, b, b_first + (d) * b_depth + min(left + (c), n - 1) * b_column)

#if A_ALONG_DEPTH && !A_TURNED
#define A_TAKEN 1
#define A_DEPTH(q) ((q) % (TK / 4) * 4)
#define A_ROW(q) ((q) / (TK / 4))
#define PUT_A PUT_ALONG_DEPTH
#define QUAD_OF_A(r, d) make_float4(AT_A(r, d), AT_A(r, (d) + 1), AT_A(r, (d) + 2), AT_A(r, (d) + 3))
#else
#define A_TAKEN 4
#if A_TURNED
#define A_DEPTH(q) ((q) % TK)
#define A_ROW(q) ((q) / TK * 4)
#else
#define A_DEPTH(q) ((q) / (TM / 4))
#define A_ROW(q) ((q) % (TM / 4) * 4)
#endif
#define PUT_A PUT_ALONG_ROWS
#define QUAD_OF_A(r, d) make_float4(AT_A(r, d), AT_A((r) + 1, d), AT_A((r) + 2, d), AT_A((r) + 3, d))
#endif
#if B_ALONG_DEPTH && !B_TURNED
#define B_TAKEN 1
#define B_DEPTH(q) ((q) % (TK / 4) * 4)
#define B_COLUMN(q) ((q) / (TK / 4))
#define PUT_B PUT_ALONG_DEPTH
#define QUAD_OF_B(d, c) make_float4(AT_B(d, c), AT_B((d) + 1, c), AT_B((d) + 2, c), AT_B((d) + 3, c))
#else
#define B_TAKEN 4
#if B_TURNED
#define B_DEPTH(q) ((q) % TK)
#define B_COLUMN(q) ((q) / TK * 4)
#else
#define B_DEPTH(q) ((q) / (TN / 4))
#define B_COLUMN(q) ((q) % (TN / 4) * 4)
#endif
#define PUT_B PUT_ALONG_ROWS
#define QUAD_OF_B(d, c) make_float4(AT_B(d, c), AT_B(d, (c) + 1), AT_B(d, (c) + 2), AT_B(d, (c) + 3))
#endif

#if VECTORS && !A_TURNED
#define FETCH_A(begin) \
  UNROLL for (int i = 0; i < LOADS_A; ++i) { \
    int q = local_index + i * ITEMS; \
    int r = min(top + A_ROW(q), m - A_TAKEN); \
    int d = (begin) + A_DEPTH(q); \
    LOAD_QUAD_IF(next_a[i], d < DEPTH, a, (a_first + r * a_row + d * a_depth) >> 2) \
  }
#else
#define FETCH_A(begin) \
  UNROLL for (int i = 0; i < LOADS_A; ++i) { \
    int q = local_index + i * ITEMS; \
    int d = (begin) + A_DEPTH(q); \
    next_a[i] = QUAD_OF_A(A_ROW(q), d); \
  }
#endif
#if VECTORS && !B_TURNED
#define FETCH_B(begin) \
  UNROLL for (int i = 0; i < LOADS_B; ++i) { \
    int q = local_index + i * ITEMS; \
    int c = min(left + B_COLUMN(q), n - B_TAKEN); \
    int d = (begin) + B_DEPTH(q); \
    LOAD_QUAD_IF(next_b[i], d < DEPTH, b, (b_first + d * b_depth + c * b_column) >> 2) \
  }
#else
#define FETCH_B(begin) \
  UNROLL for (int i = 0; i < LOADS_B; ++i) { \
    int q = local_index + i * ITEMS; \
    int d = (begin) + B_DEPTH(q); \
    next_b[i] = QUAD_OF_B(d, B_COLUMN(q)); \
  }
#endif
#define STAGE_A(stage) \
  UNROLL for (int i = 0; i < LOADS_A; ++i) { \
    int q = local_index + i * ITEMS; \
    PUT_A(panel_a, STRIDE_A, stage, A_DEPTH(q), A_ROW(q), next_a[i]) \
  }
#define STAGE_B(stage) \
  UNROLL for (int i = 0; i < LOADS_B; ++i) { \
    int q = local_index + i * ITEMS; \
    PUT_B(panel_b, STRIDE_B, stage, B_DEPTH(q), B_COLUMN(q), next_b[i]) \
  }

#if VECTORS
#define FINISH(i, j) { \
  int at = (base + (left + ITEM_COLUMN(j))) >> 2; \
  float4 value = alpha * sum[i][j]; \
  if (beta != 0.0f) value += beta * c[c_first / 4 + at]; \
  result[result_first / 4 + at] = value; \
}
#else
#define FINISH_ONE(column, value) \
  if ((column) < n) result[result_first + base + (column)] = \
      beta != 0.0f ? alpha * (value) + beta * c[c_first + base + (column)] : alpha * (value);
#define FINISH(i, j) { \
  int column = left + ITEM_COLUMN(j); \
  FINISH_ONE(column, sum[i][j].x) \
  FINISH_ONE(column + 1, sum[i][j].y) \
  FINISH_ONE(column + 2, sum[i][j].z) \
  FINISH_ONE(column + 3, sum[i][j].w) \
}
#endif

KERNEL {
  int item_x = ITEM_X;
  int item_y = ITEM_Y;
  int tiles_across = (n + TN - 1) / TN;
  int tiles_down = (m + TM - 1) / TM;
  int tiles = tiles_across * tiles_down;
  for (int tile = group_id_x; tile < tiles * PARTS * batch; tile += group_count_x) {
    int product = tile / tiles;
#if DIVIDED
    int matrix = product / parts;
    int first_depth = (product - matrix * parts) * part_depth;
    int depth = min(k - first_depth, part_depth);
#else
    int matrix = product;
#endif
    int top = tile % tiles / tiles_across * TM;
    int left = tile % tiles % tiles_across * TN;
    int a_first = matrix * a_batch;
    int b_first = matrix * b_batch;
#if DIVIDED
    a_first += first_depth * a_depth;
    b_first += first_depth * b_depth;
#endif
    int c_first = matrix * c_batch;
    int result_first = product * (m * n);
    float4 next_a[LOADS_A];
    float4 next_b[LOADS_B];
    float4 sum[RM][RN / 4];
    CLEAR_SUM
    MULTIPLY_PANELS(DEPTH)
    UNROLL for (int i = 0; i < RM; ++i) {
      int row = top + ITEM_ROW(i);
      int base = row * n;
      UNROLL for (int j = 0; j < RN / 4; ++j) {
        if (row < m && left + ITEM_COLUMN(j) < n) FINISH(i, j)
      }
    }
  }
}
)";

constexpr std::string_view gemm_sum_source = R"(#if VECTORS
#define VALUE float4
#else
#define VALUE float
#endif

KERNEL {
  for (int at = global_id_x; at < elements * batch; at += GROUP_X * group_count_x) {
    int matrix = at / elements;
    int place = at - matrix * elements;
    int first = matrix * parts * elements + place;
    VALUE sum = products[first];
    for (int part = 1; part < parts; ++part) sum += products[first + part * elements];
    sum = alpha * sum;
    if (beta != 0.0f) sum += beta * c[matrix * c_batch + place];
    result[at] = sum;
  }
}
)";
constexpr std::uint32_t sum_items = 64;

std::uint32_t groups_at_once(const Tile& tile) {
  return tile.precision == Precision::f32 && tile.is_short_of_registers() ? 2 : 0;
}

}  // namespace

std::string GemmVariant::name(std::string_view call) const {
  return fmt::format("{}_{}{}{}{}", call, tile.name(), vectors ? "_v4" : "", turned ? "_turned" : "",
                     split > 1 ? "_parts" : "");
}

Kernel gemm_kernel(std::string_view call, const GemmVariant& variant, bool transpose_a, bool transpose_b) {
  const bool turned_a = variant.turned && !transpose_a;
  const bool turned_b = variant.turned && transpose_b;
  const auto type = [&variant](bool turned) { return variant.vectors && !turned ? Type::f32x4 : Type::f32; };
  auto parameters = variant.tile.parameters();
  parameters["VECTORS"] = flag(variant.vectors);
  parameters["DIVIDED"] = flag(variant.split > 1);
  parameters["A_ALONG_DEPTH"] = flag(!transpose_a);
  parameters["B_ALONG_DEPTH"] = flag(transpose_b);
  parameters["A_TURNED"] = flag(turned_a);
  parameters["B_TURNED"] = flag(turned_b);
  return {.name = fmt::format("{}_{}{}", variant.name(call), transpose_a ? 't' : 'n', transpose_b ? 't' : 'n'),
          .buffers = {{"a", type(turned_a)},
                      {"b", type(turned_b)},
                      {"c", type(false)},
                      {"result", type(false), Access::write}},
          .scalars = {{"m"},
                      {"n"},
                      {"k"},
                      {"batch"},
                      {"parts"},
                      {"part_depth"},
                      {"a_row"},
                      {"a_depth"},
                      {"a_batch"},
                      {"b_depth"},
                      {"b_column"},
                      {"b_batch"},
                      {"c_batch"},
                      {"alpha", Type::f32},
                      {"beta", Type::f32}},
          .shared = variant.tile.shared(),
          .group_size = {variant.tile.items(), 1, 1},
          .min_groups = groups_at_once(variant.tile),
          .parameters = std::move(parameters),
          .source = std::string(native_source) + std::string(tile_source) + std::string(gemm_source)};
}

Kernel gemm_sum_kernel(bool vectors) {
  const Type type = vectors ? Type::f32x4 : Type::f32;
  return {.name = vectors ? "gemm_sum_v4" : "gemm_sum",
          .buffers = {{"products", type}, {"c", type}, {"result", type, Access::write}},
          .scalars = {{"elements"}, {"batch"}, {"parts"}, {"c_batch"}, {"alpha", Type::f32}, {"beta", Type::f32}},
          .group_size = {sum_items, 1, 1},
          .parameters = {{"VECTORS", flag(vectors)}},
          .source = std::string(gemm_sum_source)};
}

}  // namespace kiln::kernels
