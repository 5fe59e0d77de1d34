#include "kernels/tile.hpp"

#include <array>

#include <fmt/format.h>

#include "kernels/plan.hpp"

namespace kiln::kernels {

// Panels are stored depth by depth, so that a work item reads four rows or four columns at once. The padding avoids
// bank conflicts when a panel is transposed on the way in. Double buffering: while one pair of panels is
// multiplied, the next pair is loaded into registers and then stored to the other half of the shared arrays. Past
// the depth, panels must hold zeros; rows and columns past the edge may hold any values, because their results are
// never stored.
//
// In a tile 8 or 16 work items wide, 8 x 4 neighbours form a warp, so that a warp reads fewer different values at
// once.
//
// A warp's tensor cores multiply 16 rows by 8 columns, of which each of the 32 work items holds two pairs of
// columns. Columns are assigned so that the pairs of two products are adjacent and a work item holds quads again: 8
// rows and 2 quads of the warp's block of 64 x 32.
//
// The pragma is NVIDIA's; OpenGL has no other way to request loop unrolling.
const std::string_view tile_source = R"(#if UNROLL_PANELS && KILN_OPENGL
#pragma optionNV(unroll all)
#endif
#define STRIDE_A (TM + PAD)
#define STRIDE_B (TN + PAD)
#define ITEMS ((TM / RM) * (TN / RN))
#define LOADS_A (TM * TK / 4 / ITEMS)
#define LOADS_B (TN * TK / 4 / ITEMS)
#define WARPS_ACROSS (TN / RN / 8)
#define NOTHING make_float4(0.0f, 0.0f, 0.0f, 0.0f)
#if PRODUCTS
#define LANE (local_index % 32)
#define WARP_COLUMN (local_index / 32 % (TN / 32) * 32)
#define ITEM_X (WARP_COLUMN + LANE % 4 * 4)
#define ITEM_Y (local_index / 32 / (TN / 32) * 64 + LANE / 4)
#define ITEM_ROW(i) (item_y + (i) / 2 * 16 + (i) % 2 * 8)
#define ITEM_COLUMN(j) (item_x + (j) * 16)
#else
#define ITEM_X (local_index / 32 % WARPS_ACROSS * 8 + local_index % 8)
#define ITEM_Y (local_index / 32 / WARPS_ACROSS * 4 + local_index % 32 / 8)
#define ITEM_ROW(i) ((i) / 4 * (4 * TM / RM) + item_y * 4 + (i) % 4)
#define ITEM_COLUMN(j) ((j) * (4 * TN / RN) + item_x * 4)
#endif
#if UNROLL_PANELS
#define UNROLL_DEPTH UNROLL
#else
#define UNROLL_DEPTH
#endif
#if KILN_CUDA || KILN_HIP
#define ELEMENT(panel, i) ((float*)panel)[i]
#elif KILN_OPENCL
#define ELEMENT(panel, i) ((local float*)panel)[i]
#else
#define ELEMENT(panel, i) panel[(i) >> 2][(i) & 3]
#endif

#define PUT_ALONG_ROWS(panel, stride, stage, d, r, quad) panel[(((stage) * TK + (d)) * stride + (r)) >> 2] = quad;
#define PUT_ALONG_DEPTH(panel, stride, stage, d, r, quad) \
  ELEMENT(panel, ((stage) * TK + (d)) * stride + (r)) = quad.x; \
  ELEMENT(panel, ((stage) * TK + (d) + 1) * stride + (r)) = quad.y; \
  ELEMENT(panel, ((stage) * TK + (d) + 2) * stride + (r)) = quad.z; \
  ELEMENT(panel, ((stage) * TK + (d) + 3) * stride + (r)) = quad.w;

#define CLEAR_SUM \
  UNROLL for (int i = 0; i < RM; ++i) { \
    UNROLL for (int j = 0; j < RN / 4; ++j) sum[i][j] = NOTHING; \
  }

#if PRODUCTS == 1
#define PRODUCT_DEPTH 8
#define PRODUCT "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
#define FACTOR_DEPTH (LANE % 4)
FUNCTION uint as_tf32(float x) {
  uint bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}
#define FACTOR(panel, stride, d, at) as_tf32(ELEMENT(panel, (d) * stride + (at)))
#elif PRODUCTS == 2
#define PRODUCT_DEPTH 16
#define PRODUCT "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
#define FACTOR_DEPTH (LANE % 4 * 2)
FUNCTION uint as_halves(float low, float high) {
  uint bits;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}
#define FACTOR(panel, stride, d, at) \
  as_halves(ELEMENT(panel, (d) * stride + (at)), ELEMENT(panel, ((d) + 1) * stride + (at)))
#endif
#if PRODUCTS
FUNCTION void add_product(float& a, float& b, float& c, float& d, const uint down[4], const uint across[2]) {
  asm volatile(PRODUCT " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(a), "+f"(b), "+f"(c), "+f"(d)
               : "r"(down[0]), "r"(down[1]), "r"(down[2]), "r"(down[3]), "r"(across[0]), "r"(across[1]));
}
#define MULTIPLY_STAGE \
  UNROLL for (int d = 0; d < TK; d += PRODUCT_DEPTH) { \
    uint down[4][4]; \
    uint across[4][2]; \
    int first = stage * TK + d + FACTOR_DEPTH; \
    int second = first + PRODUCT_DEPTH / 2; \
    UNROLL for (int i = 0; i < 4; ++i) { \
      down[i][0] = FACTOR(panel_a, STRIDE_A, first, item_y + i * 16); \
      down[i][1] = FACTOR(panel_a, STRIDE_A, first, item_y + i * 16 + 8); \
      down[i][2] = FACTOR(panel_a, STRIDE_A, second, item_y + i * 16); \
      down[i][3] = FACTOR(panel_a, STRIDE_A, second, item_y + i * 16 + 8); \
    } \
    UNROLL for (int j = 0; j < 4; ++j) { \
      int column = WARP_COLUMN + j / 2 * 16 + j % 2 * 2 + LANE / 8 * 4 + LANE / 4 % 2; \
      across[j][0] = FACTOR(panel_b, STRIDE_B, first, column); \
      across[j][1] = FACTOR(panel_b, STRIDE_B, second, column); \
    } \
    UNROLL for (int i = 0; i < 4; ++i) { \
      UNROLL for (int j = 0; j < 2; ++j) { \
        float4& above = sum[2 * i][j]; \
        float4& below = sum[2 * i + 1][j]; \
        add_product(above.x, above.y, below.x, below.y, down[i], across[2 * j]); \
        add_product(above.z, above.w, below.z, below.w, down[i], across[2 * j + 1]); \
      } \
    } \
  }
#else
#if UNROLL_PANELS
// Column by column, down and up again: each product has a factor in common with the one before it, which need not be
// read from the registers again.
#define DOWN_COLUMN(j, part) \
  UNROLL for (int i = 0; i < RM / 4; ++i) { \
    sum[4 * i][j].part += down[i].x * across[j].part; \
    sum[4 * i + 1][j].part += down[i].y * across[j].part; \
    sum[4 * i + 2][j].part += down[i].z * across[j].part; \
    sum[4 * i + 3][j].part += down[i].w * across[j].part; \
  }
#define UP_COLUMN(j, part) \
  UNROLL for (int i = RM / 4 - 1; i >= 0; --i) { \
    sum[4 * i + 3][j].part += down[i].w * across[j].part; \
    sum[4 * i + 2][j].part += down[i].z * across[j].part; \
    sum[4 * i + 1][j].part += down[i].y * across[j].part; \
    sum[4 * i][j].part += down[i].x * across[j].part; \
  }
#define ADD_PRODUCTS \
  UNROLL for (int j = 0; j < RN / 4; ++j) { \
    DOWN_COLUMN(j, x) \
    UP_COLUMN(j, y) \
    DOWN_COLUMN(j, z) \
    UP_COLUMN(j, w) \
  }
#else
#define ADD_PRODUCTS \
  UNROLL for (int i = 0; i < RM / 4; ++i) { \
    UNROLL for (int j = 0; j < RN / 4; ++j) { \
      sum[4 * i][j] += down[i].x * across[j]; \
      sum[4 * i + 1][j] += down[i].y * across[j]; \
      sum[4 * i + 2][j] += down[i].z * across[j]; \
      sum[4 * i + 3][j] += down[i].w * across[j]; \
    } \
  }
#endif
#define MULTIPLY_STAGE \
  UNROLL_DEPTH for (int d = 0; d < TK; ++d) { \
    float4 down[RM / 4]; \
    float4 across[RN / 4]; \
    UNROLL for (int i = 0; i < RM / 4; ++i) \
      down[i] = panel_a[(stage * TK + d) * (STRIDE_A / 4) + i * (TM / RM) + item_y]; \
    UNROLL for (int j = 0; j < RN / 4; ++j) \
      across[j] = panel_b[(stage * TK + d) * (STRIDE_B / 4) + j * (TN / RN) + item_x]; \
    ADD_PRODUCTS \
  }
#endif

// Past the depth there are zeros, which compilers of GLSL fetch better than they jump over them.
#if UNROLL_PANELS && (KILN_OPENGL || KILN_VULKAN)
#define IF_MORE
#else
#define IF_MORE if (more)
#endif
#define MULTIPLY_PANELS(k) { \
  int stage = 0; \
  FETCH_A(0) \
  FETCH_B(0) \
  STAGE_A(0) \
  STAGE_B(0) \
  group_barrier(); \
  for (int start = 0; start < (k); start += TK) { \
    bool more = start + TK < (k); \
    IF_MORE { \
      FETCH_A(start + TK) \
      FETCH_B(start + TK) \
    } \
    MULTIPLY_STAGE \
    stage = 1 - stage; \
    IF_MORE { \
      STAGE_A(stage) \
      STAGE_B(stage) \
    } \
    group_barrier(); \
  } \
}
)";

namespace {

/// Padding that keeps the rows of a panel in different banks.
int pad(const Tile& tile) { return tile.precision == Precision::f32 ? 4 : 8; }

}  // namespace

std::uint64_t Tile::shared_bytes() const {
  return std::uint64_t{2} * static_cast<std::uint64_t>(depth * (rows + columns + 2 * pad(*this))) * sizeof(float);
}

std::string Tile::name() const {
  if (precision != Precision::f32)
    return fmt::format("tm{}_tn{}_tk{}{}", rows, columns, depth, suffix_of(precision));
  return fmt::format("tm{}_tn{}_tk{}_rm{}_rn{}{}", rows, columns, depth, item_rows, item_columns,
                     unroll ? "_u" : "");
}

bool Tile::fits(const DeviceLimits& limits) const {
  return shared_bytes() <= limits.shared_bytes && items() <= limits.max_group_items &&
         items() <= limits.max_group_size[0];
}

bool Tile::sound() const {
  // A warp computes blocks of 64 x 32 from products of depth 8 or 16; these loops are always unrolled.
  if (precision != Precision::f32 && (rows % 64 != 0 || columns % 32 != 0 || item_rows != 8 || item_columns != 8 ||
                                      depth % (precision == Precision::tf32 ? 8 : 16) != 0 || !unroll))
    return false;
  if (rows % item_rows != 0 || columns % item_columns != 0 || item_rows % 4 != 0 || item_columns % 4 != 0)
    return false;
  // More sums leave no registers for anything else.
  if (item_rows * item_columns > 128) return false;
  const int across = columns / item_columns;
  const int down = rows / item_rows;
  const int all = across * down;
  return across % 8 == 0 && down % 4 == 0 && rows * depth % (4 * all) == 0 && columns * depth % (4 * all) == 0;
}

std::int64_t Tile::loop_steps(std::int64_t of_depth) const {
  // Mesa's compiler unrolls the loop over a panel's depth if its body is small. Each loop counts one more iteration
  // for its exit test.
  const int of_panel = item_rows * item_columns <= 16 && depth <= 16 ? 1 : depth + 2;
  return quotient_up(of_depth, depth) * of_panel + 2;
}

Tile Tile::on(const DeviceInfo& device) const {
  Tile tile = *this;
  tile.unroll = !device.software;
  return tile;
}

std::vector<TuneParameter> Tile::tunable() {
  return {{"tm", {32, 64, 128, 256}}, {"tn", {32, 64, 128, 256}}, {"tk", {4, 8, 16, 32}},
          {"rm", {4, 8, 16}},         {"rn", {4, 8, 16}},         {"u", {0, 1}}};
}

std::map<std::string, std::string> Tile::parameters() const {
  return {{"TM", std::to_string(rows)},         {"TN", std::to_string(columns)},
          {"TK", std::to_string(depth)},        {"RM", std::to_string(item_rows)},
          {"RN", std::to_string(item_columns)}, {"UNROLL_PANELS", flag(unroll)},
          {"PAD", std::to_string(pad(*this))},  {"PRODUCTS", std::to_string(static_cast<int>(precision))}};
}

std::vector<SharedArray> Tile::shared() const {
  return {{"panel_a", Type::f32x4, {"(2 * TK * (TM + PAD) / 4)"}},
          {"panel_b", Type::f32x4, {"(2 * TK * (TN + PAD) / 4)"}}};
}

std::string_view suffix_of(Precision precision) {
  return precision == Precision::tf32 ? "_tf32" : precision == Precision::f16 ? "_f16" : "";
}

Precision precision_on(const DeviceInfo& device, Precision asked) {
  return is_cuda_from(device, 80) ? asked : Precision::f32;
}

Tile tile_for(const DeviceInfo& device, std::int64_t rows, std::int64_t columns, std::int64_t batch,
              Precision precision) {
  const Tile small = Tile{}.on(device);
  if (device.software) return small;
  if (precision != Precision::f32) {
    const int extent = quotient_up(rows, 128) * quotient_up(columns, 128) * batch >= 64 ? 128 : 64;
    return {.rows = extent,
            .columns = extent,
            .depth = 16,
            .item_rows = 8,
            .item_columns = 8,
            .unroll = true,
            .precision = precision};
  }
  struct Choice {
    Tile tile;
    /// The least number of groups for this tile.
    std::int64_t groups;
  };
  // A large GPU runs about 130 groups of 256 work items at once, or twice as many.
  constexpr std::array<Choice, 3> choices = {{
      {{.rows = 128, .columns = 128, .depth = 8, .item_rows = 8, .item_columns = 8}, 192},
      {{.rows = 64, .columns = 128, .depth = 8, .item_rows = 8, .item_columns = 8}, 256},
      {{.rows = 64, .columns = 64, .depth = 16, .item_rows = 4, .item_columns = 4}, 64},
  }};
  for (const auto& [tile, groups] : choices) {
    // OpenGL's compiler uses more registers, and there is no way to limit it.
    if (device.language == Language::glsl && tile.is_short_of_registers()) continue;
    // The part of a tile past the edge is wasted work.
    if (tile.fits(device.limits) &&
        quotient_up(rows, tile.rows) * quotient_up(columns, tile.columns) * batch >= groups &&
        2 * rows > tile.rows && 2 * columns > tile.columns)
      return tile.on(device);
  }
  return small;
}

bool is_slow_to_scatter(const DeviceInfo& device) { return !device.software && device.language == Language::glsl; }

}  // namespace kiln::kernels
