#include "kernels/conv2d.hpp"

#include <fmt/format.h>

#include "kernels/native.hpp"
#include "kernels/plan.hpp"

namespace kiln::kernels {
namespace {

// Computes the convolution as a matrix product (implicit GEMM): the filters, one per row, by a matrix with a column
// per output pixel and a row per tap, an input pixel in one channel. That matrix is never stored: a work item loads
// one column of the panel, or four, and computes the positions of its pixels once per tile. Consecutive tiles have
// different filters and the same pixels, so that they find the input in the cache.
//
// If the variant is turned, four elements at the same depth, of four filters or four output pixels, are loaded one
// by one and stored to a panel at once. With ROWS_OF_QUADS the four pixels are in one row, and only the first
// position is computed. With FILTER_BITS the filter size is known, and bits precompute which of its rows and
// columns are inside the image: four bits, one per pixel, for each row and each column.
constexpr std::string_view conv2d_source = R"(
#define TAPS (FILTER_H * FILTER_W)
#if TURNED
#define PIXELS 4
#define W_DEPTH(q) ((q) % TK)
#define W_ROW(q) ((q) / TK * 4)
#define PUT_W PUT_ALONG_ROWS
#define QUAD_OF_W(r, d) make_float4(AT_W(r, d), AT_W((r) + 1, d), AT_W((r) + 2, d), AT_W((r) + 3, d))
#else
#define PIXELS 1
#define W_DEPTH(q) ((q) % (TK / 4) * 4)
#define W_ROW(q) ((q) / (TK / 4))
#define PUT_W PUT_ALONG_DEPTH
#define QUAD_OF_W(r, d) make_float4(AT_W(r, d), AT_W(r, (d) + 1), AT_W(r, (d) + 2), AT_W(r, (d) + 3))
#endif
#define PANEL_COLUMN (local_index % (TN / PIXELS) * PIXELS)
#define TAP_STEP (ITEMS / (TN / PIXELS))
#define TAP_LOADS (TK / TAP_STEP)
#define AT_W(r, d) LOAD_IF((d) < k, w, w_first + min(top + (r), m - 1) * k + (d))

#if VECTORS && !TURNED
#define FETCH_A(begin) \
  UNROLL for (int i = 0; i < LOADS_A; ++i) { \
    int q = local_index + i * ITEMS; \
    int r = min(top + W_ROW(q), m - 1); \
    int d = (begin) + W_DEPTH(q); \
    LOAD_QUAD_IF(next_a[i], d < k, w, (w_first + r * k + d) >> 2) \
  }
#else
#define FETCH_A(begin) \
  UNROLL for (int i = 0; i < LOADS_A; ++i) { \
    int q = local_index + i * ITEMS; \
    int d = (begin) + W_DEPTH(q); \
    next_a[i] = QUAD_OF_W(W_ROW(q), d); \
  }
#endif
#define STAGE_A(stage) \
  UNROLL for (int i = 0; i < LOADS_A; ++i) { \
    int q = local_index + i * ITEMS; \
    PUT_W(panel_a, STRIDE_A, stage, W_DEPTH(q), W_ROW(q), next_a[i]) \
  }

#if ROWS_OF_QUADS
#define PLACES 1
#define PLACE(e) 0
#define BESIDE(e) ((e) * stride_w)
#else
#define PLACES PIXELS
#define PLACE(e) e
#define BESIDE(e) 0
#endif
#define ROW_INSIDE(e, filter_row) (to_uint(first_row[PLACE(e)] + (filter_row) * dilation_h) < to_uint(rows))
#define COLUMN_INSIDE(e, filter_column) \
  (to_uint(first_column[PLACE(e)] + BESIDE(e) + (filter_column) * dilation_w) < to_uint(width))
#define PIXEL_PLACE(e) (first_place[PLACE(e)] + BESIDE(e) + offset)
#if FILTER_BITS
#define INSIDE rows_inside >> (4 * filter_row) & columns_inside >> (4 * filter_column) & -to_int(tap < k)
#define LOAD_PIXEL(e, into) into = LOAD_BY(-(inside >> (e) & 1), x, PIXEL_PLACE(e));
#else
#define INSIDE -to_int(tap < k)
#define LOAD_PIXEL(e, into) \
  into = LOAD_BY(inside & -to_int(ROW_INSIDE(e, filter_row)) & -to_int(COLUMN_INSIDE(e, filter_column)), \
                 x, PIXEL_PLACE(e));
#endif
#if TURNED
#define LOADED float4
#define LOAD_PIXELS(into) \
  LOAD_PIXEL(0, into.x) \
  LOAD_PIXEL(1, into.y) \
  LOAD_PIXEL(2, into.z) \
  LOAD_PIXEL(3, into.w)
#define PUT_X PUT_ALONG_ROWS
#else
#define LOADED float
#define LOAD_PIXELS(into) LOAD_PIXEL(0, into)
#define PUT_X(panel, stride, stage, d, c, value) ELEMENT(panel, ((stage) * TK + (d)) * stride + (c)) = value;
#endif
#define FETCH_B(begin) \
  UNROLL for (int i = 0; i < TAP_LOADS; ++i) { \
    int tap = (begin) + first_tap + i * TAP_STEP; \
    int channel = to_int(to_uint(tap) / to_uint(TAPS)); \
    int in_filter = tap - channel * TAPS; \
    int filter_row = to_int(to_uint(in_filter) / to_uint(FILTER_W)); \
    int filter_column = in_filter - filter_row * FILTER_W; \
    int inside = INSIDE; \
    int offset = (channel * height + filter_row * dilation_h) * width + filter_column * dilation_w; \
    LOAD_PIXELS(next_b[i]) \
  }
#define STAGE_B(stage) \
  UNROLL for (int i = 0; i < TAP_LOADS; ++i) { \
    PUT_X(panel_b, STRIDE_B, stage, first_tap + i * TAP_STEP, PANEL_COLUMN, next_b[i]) \
  }

KERNEL {
  int item_x = ITEM_X;
  int item_y = ITEM_Y;
  // Where each work item has a column of its own, all work on the same tap, and the compiler knows it.
  int first_tap = TAP_STEP == 1 ? 0 : local_index / (TN / PIXELS);
  int tiles_across = (pixels + TN - 1) / TN;
  int tiles_down = (m + TM - 1) / TM;
  int tiles = tiles_across * tiles_down;
  for (int tile = group_id_x; tile < tiles * channel_groups; tile += group_count_x) {
    int channel_group = tile / tiles;
    int top = tile % tiles % tiles_down * TM;
    int left = tile % tiles / tiles_down * TN;
    int w_first = channel_group * m * k;

    int first_pixel = left + PANEL_COLUMN;
    int first_row[PLACES];
    int first_column[PLACES];
    int first_place[PLACES];
    UNROLL for (int e = 0; e < PLACES; ++e) {
      int pixel = e == 0 ? first_pixel : min(first_pixel + e, pixels - 1);
      int image = pixel / out_plane;
      int in_plane = pixel - image * out_plane;
      int out_row = in_plane / out_width;
      first_row[e] = out_row * stride_h - pad_h;
      first_column[e] = (in_plane - out_row * out_width) * stride_w - pad_w;
      first_place[e] =
          ((image * channel_groups + channel_group) * channels * height + first_row[e]) * width + first_column[e];
    }
    // A pixel past the last has all its taps outside the image; one that only fills up four is the last again.
    int rows = first_pixel < pixels ? height : 0;
#if FILTER_BITS
    int rows_inside = 0;
    int columns_inside = 0;
    UNROLL for (int e = 0; e < PIXELS; ++e) {
      UNROLL for (int f = 0; f < FILTER_H; ++f) rows_inside |= to_int(ROW_INSIDE(e, f)) << (4 * f + e);
      UNROLL for (int f = 0; f < FILTER_W; ++f) columns_inside |= to_int(COLUMN_INSIDE(e, f)) << (4 * f + e);
    }
#endif

    float4 next_a[LOADS_A];
    LOADED next_b[TAP_LOADS];
    float4 sum[RM][RN / 4];
    CLEAR_SUM
    MULTIPLY_PANELS(k)
    UNROLL for (int j = 0; j < RN / 4; ++j) {
#if VECTORS
      int at = left + ITEM_COLUMN(j);
      int out_image = at / out_plane;
      int place = (out_image * channel_groups + channel_group) * m * out_plane + (at - out_image * out_plane);
      UNROLL for (int i = 0; i < RM; ++i) {
        int row = top + ITEM_ROW(i);
        if (row < m && at < pixels) {
          float add = has_bias != 0 ? bias[channel_group * m + row] : 0.0f;
          result[(place + row * out_plane) >> 2] = sum[i][j] + make_float4(add, add, add, add);
        }
      }
#else
      for (int e = 0; e < 4; ++e) {
        int at = left + ITEM_COLUMN(j) + e;
        int out_image = at / out_plane;
        int place = (out_image * channel_groups + channel_group) * m * out_plane + (at - out_image * out_plane);
        UNROLL for (int i = 0; i < RM; ++i) {
          int row = top + ITEM_ROW(i);
          float value = e == 0 ? sum[i][j].x : e == 1 ? sum[i][j].y : e == 2 ? sum[i][j].z : sum[i][j].w;
          if (row < m && at < pixels)
            result[place + row * out_plane] = has_bias != 0 ? value + bias[channel_group * m + row] : value;
        }
      }
#endif
    }
  }
}
)";

}  // namespace

std::string Conv2dVariant::name() const {
  const std::string filters = filter_height == 0 ? "any" : fmt::format("{}x{}", filter_height, filter_width);
  return fmt::format("conv2d_{}_{}{}{}{}", filters, winograd ? "winograd4_" : "", tile.name(), vectors ? "_v4" : "",
                     !turned         ? ""
                     : rows_of_quads ? "_turned4"
                                     : "_turned");
}

Kernel conv2d_kernel(const Conv2dVariant& variant) {
  const auto type = [](bool vectors) { return vectors ? Type::f32x4 : Type::f32; };
  auto parameters = variant.tile.parameters();
  parameters["VECTORS"] = flag(variant.vectors);
  parameters["TURNED"] = flag(variant.turned);
  const auto has_bits = [](int extent) { return extent > 0 && extent <= 8; };
  parameters["FILTER_BITS"] =
      flag(variant.turned && has_bits(variant.filter_height) && has_bits(variant.filter_width));
  parameters["ROWS_OF_QUADS"] = flag(variant.turned && variant.rows_of_quads);
  // If the filter size is not a constant, use the scalars.
  parameters["FILTER_H"] =
      variant.filter_height == 0 ? std::string("filter_h") : std::to_string(variant.filter_height);
  parameters["FILTER_W"] =
      variant.filter_width == 0 ? std::string("filter_w") : std::to_string(variant.filter_width);
  return {.name = variant.name(),
          .buffers = {{"x"},
                      {"w", type(variant.vectors && !variant.turned)},
                      {"bias"},
                      {"result", type(variant.vectors), Access::write}},
          .scalars = {{"m"},
                      {"k"},
                      {"pixels"},
                      {"out_plane"},
                      {"out_width"},
                      {"channels"},
                      {"height"},
                      {"width"},
                      {"filter_h"},
                      {"filter_w"},
                      {"stride_h"},
                      {"stride_w"},
                      {"pad_h"},
                      {"pad_w"},
                      {"dilation_h"},
                      {"dilation_w"},
                      {"channel_groups"},
                      {"has_bias"}},
          .shared = variant.tile.shared(),
          .group_size = {variant.tile.items(), 1, 1},
          .parameters = std::move(parameters),
          .source = std::string(native_source) + std::string(tile_source) + std::string(conv2d_source)};
}

}  // namespace kiln::kernels
