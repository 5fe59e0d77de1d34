#include "kernels/tile.hpp"

#include <array>

#include <fmt/format.h>

#include "kernels/plan.hpp"

namespace kiln::kernels {

// Panels lie depth by depth, so that a work item reads four rows, or four columns, at once. The padding keeps the
// writes of a panel that is turned around on the way in out of each other's banks. While one pair of panels is
// multiplied, the next one is loaded into registers and then put into the other half of the shared arrays.
//
// Of a tile 8 or 16 work items wide, 8 x 4 neighbours are a warp: fewer different numbers are read at once so.
//
// The pragma is NVIDIA's; OpenGL has no other way to ask for loops to be unrolled.
const std::string_view tile_source = R"(#if UNROLL_PANELS && KILN_OPENGL
#pragma optionNV(unroll all)
#endif
#define STRIDE_A (TM + 4)
#define STRIDE_B (TN + 4)
#define ITEMS ((TM / RM) * (TN / RN))
#define LOADS_A (TM * TK / 4 / ITEMS)
#define LOADS_B (TN * TK / 4 / ITEMS)
#define WARPS_ACROSS (TN / RN / 8)
#define NOTHING make_float4(0.0f, 0.0f, 0.0f, 0.0f)
#define ITEM_X (local_index / 32 % WARPS_ACROSS * 8 + local_index % 8)
#define ITEM_Y (local_index / 32 / WARPS_ACROSS * 4 + local_index % 32 / 8)
#define ITEM_ROW(i) ((i) / 4 * (4 * TM / RM) + item_y * 4 + (i) % 4)
#define ITEM_COLUMN(j) ((j) * (4 * TN / RN) + item_x * 4)
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

#define MULTIPLY_PANELS(k) { \
  int stage = 0; \
  FETCH_A(0) \
  FETCH_B(0) \
  STAGE_A(0) \
  STAGE_B(0) \
  group_barrier(); \
  for (int start = 0; start < (k); start += TK) { \
    bool more = start + TK < (k); \
    if (more) { \
      FETCH_A(start + TK) \
      FETCH_B(start + TK) \
    } \
    UNROLL_DEPTH for (int d = 0; d < TK; ++d) { \
      float4 down[RM / 4]; \
      float4 across[RN / 4]; \
      UNROLL for (int i = 0; i < RM / 4; ++i) \
        down[i] = panel_a[(stage * TK + d) * (STRIDE_A / 4) + i * (TM / RM) + item_y]; \
      UNROLL for (int j = 0; j < RN / 4; ++j) \
        across[j] = panel_b[(stage * TK + d) * (STRIDE_B / 4) + j * (TN / RN) + item_x]; \
      UNROLL for (int i = 0; i < RM / 4; ++i) { \
        UNROLL for (int j = 0; j < RN / 4; ++j) { \
          sum[4 * i][j] += down[i].x * across[j]; \
          sum[4 * i + 1][j] += down[i].y * across[j]; \
          sum[4 * i + 2][j] += down[i].z * across[j]; \
          sum[4 * i + 3][j] += down[i].w * across[j]; \
        } \
      } \
    } \
    stage = 1 - stage; \
    if (more) { \
      STAGE_A(stage) \
      STAGE_B(stage) \
    } \
    group_barrier(); \
  } \
}
)";

std::uint64_t Tile::shared_bytes() const {
  return std::uint64_t{2} * static_cast<std::uint64_t>(depth * (rows + 4 + columns + 4)) * sizeof(float);
}

std::string Tile::name() const {
  return fmt::format("tm{}_tn{}_tk{}_rm{}_rn{}{}", rows, columns, depth, item_rows, item_columns,
                     unroll ? "_u" : "");
}

bool Tile::fits(const DeviceLimits& limits) const {
  return shared_bytes() <= limits.shared_bytes && items() <= limits.max_group_items &&
         items() <= limits.max_group_size[0];
}

bool Tile::sound() const {
  if (rows % item_rows != 0 || columns % item_columns != 0 || item_rows % 4 != 0 || item_columns % 4 != 0)
    return false;
  const int across = columns / item_columns;
  const int down = rows / item_rows;
  const int all = across * down;
  return across % 8 == 0 && down % 4 == 0 && rows * depth % (4 * all) == 0 && columns * depth % (4 * all) == 0;
}

Tile Tile::on(const DeviceInfo& device) const {
  Tile tile = *this;
  tile.unroll = device.language == Language::cuda || device.language == Language::hip;
  return tile;
}

std::vector<TuneParameter> Tile::tunable() {
  return {{"tm", {32, 64, 128, 256}}, {"tn", {32, 64, 128, 256}}, {"tk", {4, 8, 16, 32}},
          {"rm", {4, 8, 16}},         {"rn", {4, 8, 16}},         {"u", {0, 1}}};
}

std::map<std::string, std::string> Tile::parameters() const {
  return {{"TM", std::to_string(rows)},      {"TN", std::to_string(columns)},      {"TK", std::to_string(depth)},
          {"RM", std::to_string(item_rows)}, {"RN", std::to_string(item_columns)}, {"UNROLL_PANELS", flag(unroll)}};
}

std::vector<SharedArray> Tile::shared() const {
  return {{"panel_a", Type::f32x4, {"(2 * TK * (TM + 4) / 4)"}},
          {"panel_b", Type::f32x4, {"(2 * TK * (TN + 4) / 4)"}}};
}

Tile tile_for(const DeviceInfo& device, std::int64_t rows, std::int64_t columns, std::int64_t batch) {
  const Tile small = Tile{}.on(device);
  if (device.software) return small;
  struct Choice {
    Tile tile;
    /// How many groups there must be.
    std::int64_t groups;
  };
  // A large GPU runs some 130 groups of 256 work items at once, or twice as many.
  constexpr std::array<Choice, 3> choices = {{
      {{.rows = 128, .columns = 128, .depth = 8, .item_rows = 8, .item_columns = 8}, 192},
      {{.rows = 64, .columns = 128, .depth = 8, .item_rows = 8, .item_columns = 8}, 256},
      {{.rows = 64, .columns = 64, .depth = 16, .item_rows = 4, .item_columns = 4}, 64},
  }};
  for (const auto& [tile, groups] : choices) {
    // What hangs over the edge is work for nothing.
    if (tile.fits(device.limits) &&
        quotient_up(rows, tile.rows) * quotient_up(columns, tile.columns) * batch >= groups &&
        2 * rows > tile.rows && 2 * columns > tile.columns)
      return tile.on(device);
  }
  return small;
}

bool is_slow_to_scatter(const DeviceInfo& device) {
  return !device.software && (device.language == Language::glsl || device.language == Language::vulkan);
}

}  // namespace kiln::kernels
