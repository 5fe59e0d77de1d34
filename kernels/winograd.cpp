#include "kernels/winograd.hpp"

#include <algorithm>

#include "kernels/native.hpp"

namespace kiln::kernels {
namespace {

// The interpolation points are 0, P, -P, Q, -Q and infinity. With P = 5/8 and Q = 3/2, errors are about twice those
// of the plain sum; with the usual 1 and 2, four times. TRANSFORM applies to a row or a column; PUT(i, value)
// receives its elements.
//
// The three kernels use one work item per channel and filter, or per channel and piece of the image. Neighbours
// access neighbouring columns of the 36 matrices, so that reads and writes are contiguous.
constexpr std::string_view filters_source = R"(
#define NORM_P (2.0f * P * P * (P * P - Q * Q))
#define NORM_Q (2.0f * Q * Q * (Q * Q - P * P))
#define TRANSFORM(PUT, x0, x1, x2) \
  PUT(0, (1.0f / (P * P * Q * Q)) * (x0)) \
  PUT(1, (1.0f / NORM_P) * ((x0) + P * P * (x2) + P * (x1))) \
  PUT(2, (1.0f / NORM_P) * ((x0) + P * P * (x2) - P * (x1))) \
  PUT(3, (1.0f / NORM_Q) * ((x0) + Q * Q * (x2) + Q * (x1))) \
  PUT(4, (1.0f / NORM_Q) * ((x0) + Q * Q * (x2) - Q * (x1))) \
  PUT(5, x2)
#define IN_COLUMN(i, value) half_way[i][j] = value;
#define IN_ROW(i, value) transformed[(6 * j + i) * plane + at] = value;

KERNEL {
  int plane = count * depth;
  for (int at = global_id_x; at < plane; at += GROUP_X * group_count_x) {
    int row = at / depth;
    int channel = at - row * depth;
    int first = (row * channels + channel) * 9;
    float half_way[6][3];
    UNROLL for (int j = 0; j < 3; ++j) {
      float taps[3];
      UNROLL for (int i = 0; i < 3; ++i) taps[i] = LOAD_IF(channel < channels, w, first + 3 * i + j);
      TRANSFORM(IN_COLUMN, taps[0], taps[1], taps[2])
    }
    UNROLL for (int j = 0; j < 6; ++j) {
      TRANSFORM(IN_ROW, half_way[j][0], half_way[j][1], half_way[j][2])
    }
  }
}
)";

constexpr std::string_view input_source = R"(
#define TRANSFORM(PUT, x0, x1, x2, x3, x4, x5) \
  PUT(0, P * P * Q * Q * (x0) - (P * P + Q * Q) * (x2) + (x4)) \
  PUT(1, ((x4) - Q * Q * (x2)) + P * ((x3) - Q * Q * (x1))) \
  PUT(2, ((x4) - Q * Q * (x2)) - P * ((x3) - Q * Q * (x1))) \
  PUT(3, ((x4) - P * P * (x2)) + Q * ((x3) - P * P * (x1))) \
  PUT(4, ((x4) - P * P * (x2)) - Q * ((x3) - P * P * (x1))) \
  PUT(5, P * P * Q * Q * (x1) - (P * P + Q * Q) * (x3) + (x5))
#define IN_COLUMN(i, value) half_way[i][j] = value;
#define IN_ROW(i, value) transformed[(6 * j + i) * plane + at] = value;

KERNEL {
  int plane = depth * columns;
  for (int at = global_id_x; at < plane; at += GROUP_X * group_count_x) {
    int channel = at / columns;
    int tile = to_int(first_tile) + (at - channel * columns);
    int image = tile / tiles_in_image;
    int in_image = tile - image * tiles_in_image;
    int tile_row = in_image / tiles_across;
    int top = 4 * tile_row - pad_h;
    int left = 4 * (in_image - tile_row * tiles_across) - pad_w;
    // What fills the matrices up has all its pixels outside the image.
    int rows_inside = channel < channels && tile < tiles ? height : 0;
    int place = ((image * channels + channel) * height + top) * width + left;
    float half_way[6][6];
    UNROLL for (int j = 0; j < 6; ++j) {
      float pixels[6];
      UNROLL for (int i = 0; i < 6; ++i) {
        int inside = to_int(to_uint(top + i) < to_uint(rows_inside)) & to_int(to_uint(left + j) < to_uint(width));
        pixels[i] = LOAD_BY(-inside, x, place + i * width + j);
      }
      TRANSFORM(IN_COLUMN, pixels[0], pixels[1], pixels[2], pixels[3], pixels[4], pixels[5])
    }
    UNROLL for (int j = 0; j < 6; ++j) {
      TRANSFORM(IN_ROW, half_way[j][0], half_way[j][1], half_way[j][2], half_way[j][3], half_way[j][4], half_way[j][5])
    }
  }
}
)";

constexpr std::string_view output_source = R"(
#define TRANSFORM(PUT, x0, x1, x2, x3, x4, x5) \
  PUT(0, (x0) + ((x1) + (x2)) + ((x3) + (x4))) \
  PUT(1, P * ((x1) - (x2)) + Q * ((x3) - (x4))) \
  PUT(2, P * P * ((x1) + (x2)) + Q * Q * ((x3) + (x4))) \
  PUT(3, P * P * P * ((x1) - (x2)) + Q * Q * Q * ((x3) - (x4)) + (x5))
#define IN_COLUMN(i, value) half_way[i][j] = value;
#define IN_ROW(i, value) pixels[i] = value;

KERNEL {
  int plane = count * columns;
  for (int at = global_id_x; at < plane; at += GROUP_X * group_count_x) {
    int row = at / columns;
    int tile = to_int(first_tile) + (at - row * columns);
    if (tile < tiles) {
      int image = tile / tiles_in_image;
      int in_image = tile - image * tiles_in_image;
      int tile_row = in_image / tiles_across;
      int top = 4 * tile_row;
      int left = 4 * (in_image - tile_row * tiles_across);
      int place = ((image * count + row) * out_height + top) * out_width + left;
      float add = has_bias != 0 ? bias[row] : 0.0f;
      float half_way[4][6];
      UNROLL for (int j = 0; j < 6; ++j) {
        float sums[6];
        UNROLL for (int i = 0; i < 6; ++i) sums[i] = products[(6 * i + j) * plane + at];
        TRANSFORM(IN_COLUMN, sums[0], sums[1], sums[2], sums[3], sums[4], sums[5])
      }
      UNROLL for (int j = 0; j < 4; ++j) {
        float pixels[4];
        TRANSFORM(IN_ROW, half_way[j][0], half_way[j][1], half_way[j][2], half_way[j][3], half_way[j][4],
                  half_way[j][5])
        if (top + j < out_height) {
#if VECTORS
          result[(place + j * out_width) >> 2] =
              make_float4(pixels[0] + add, pixels[1] + add, pixels[2] + add, pixels[3] + add);
#else
          UNROLL for (int i = 0; i < 4; ++i) {
            if (left + i < out_width) result[place + j * out_width + i] = pixels[i] + add;
          }
#endif
        }
      }
    }
  }
}
)";

constexpr std::int64_t matrices = winograd_products;
constexpr std::uint32_t items = 128;

std::int64_t up_to_four(std::int64_t count) { return quotient_up(count, 4) * 4; }

std::int64_t tiles_across(const Conv2dSize& size) { return quotient_up(size.out_width, 4); }
std::int64_t tiles_in_image(const Conv2dSize& size) { return quotient_up(size.out_height, 4) * tiles_across(size); }

/// The number of rows of the transformed input, and of columns of the transformed filters.
std::int64_t depth_of(const Conv2dSize& size) { return up_to_four(size.channels); }

Kernel transform(const char* name, std::vector<KernelBuffer> buffers, std::vector<KernelScalar> scalars,
                 std::string_view source) {
  return {.name = std::string("conv2d_3x3_winograd4_") + name,
          .buffers = std::move(buffers),
          .scalars = std::move(scalars),
          .group_size = {items, 1, 1},
          .parameters = {{"P", "0.625f"}, {"Q", "1.5f"}},
          .source = std::string(native_source) + std::string(source)};
}

}  // namespace

WinogradSlices winograd_slices(const Conv2dSize& size) {
  // At most 64 MiB each for a slice's input and output, unless that makes slices so narrow that products are slow.
  constexpr std::int64_t most_floats = std::int64_t{1} << 24;
  constexpr std::int64_t least_columns = 512;
  const std::int64_t tiles = size.images * tiles_in_image(size);
  const std::int64_t rows = std::max<std::int64_t>({depth_of(size), size.filters, 1});
  const std::int64_t most = std::max(most_floats / (matrices * rows), least_columns);
  const std::int64_t count = quotient_up(tiles, most);
  return {.tiles = tiles, .count = count, .columns = count == 0 ? 0 : up_to_four(quotient_up(tiles, count))};
}

bool takes_winograd(const Conv2dSize& size, const Conv2dOptions& options) {
  constexpr std::array<int, 2> ones = {1, 1};
  if (!options.allow_winograd || size.filter_height != 3 || size.filter_width != 3 || options.stride != ones ||
      options.dilation != ones || options.groups != 1)
    return false;
  const std::int64_t columns = winograd_slices(size).columns;
  return matrices * std::max({size.filters * depth_of(size), size.filters * columns, depth_of(size) * columns}) <=
         Tensor::max_count;
}

Kernel winograd_filters_kernel() {
  return transform("filters", {{"w"}, {"transformed", Type::f32, Access::write}},
                   {{"count"}, {"channels"}, {"depth"}}, filters_source);
}

Kernel winograd_input_kernel() {
  return transform("input", {{"x"}, {"transformed", Type::f32, Access::write}},
                   {{"channels"},
                    {"depth"},
                    {"height"},
                    {"width"},
                    {"pad_h"},
                    {"pad_w"},
                    {"tiles_across"},
                    {"tiles_in_image"},
                    {"first_tile", Type::u32},
                    {"tiles"},
                    {"columns"}},
                   input_source);
}

Kernel winograd_output_kernel(bool vectors) {
  Kernel kernel = transform(vectors ? "output_v4" : "output",
                            {{"products"}, {"bias"}, {"result", vectors ? Type::f32x4 : Type::f32, Access::write}},
                            {{"count"},
                             {"out_height"},
                             {"out_width"},
                             {"tiles_across"},
                             {"tiles_in_image"},
                             {"first_tile", Type::u32},
                             {"tiles"},
                             {"columns"},
                             {"has_bias"}},
                            output_source);
  kernel.parameters["VECTORS"] = flag(vectors);
  return kernel;
}

void add_winograd(Plan& plan, const GemmVariant& variant, const Conv2dSize& size, const Conv2dOptions& options,
                  const WinogradMemory& memory) {
  const auto [tiles, slices, columns] = winograd_slices(size);
  const std::int64_t depth = depth_of(size);
  const std::int64_t of_filters = size.filters * depth;
  const std::int64_t of_input = depth * columns;
  const std::int64_t of_output = size.filters * columns;
  const auto filters = plan.scratch(matrices * of_filters);
  const auto input = plan.scratch(matrices * of_input);
  const auto output = plan.scratch(matrices * of_output);
  const GemmSize product{
      .batch = matrices, .m = size.filters, .n = columns, .k = depth, .a_batch = of_filters, .b_batch = of_input};
  // The work of transforming `elements` elements of each matrix, each from or to `beside` elements of a tensor.
  const auto work = [](std::int64_t elements, double flops, std::int64_t beside) {
    const auto count = static_cast<double>(elements);
    return Work{.flops = flops * count, .bytes = 4 * count * static_cast<double>(matrices + beside)};
  };
  const auto groups = [](std::int64_t elements) { return groups_for(quotient_up(elements, items)); };
  plan.step(winograd_filters_kernel(), groups(of_filters), {memory.w, filters},
            {number(size.filters), number(size.channels), number(depth)}, work(of_filters, 9 * 10, 9));
  for (std::int64_t first = 0; first < tiles; first += columns) {
    plan.step(winograd_input_kernel(), groups(of_input), {memory.x, input},
              {number(size.channels), number(depth), number(size.height), number(size.width),
               number(options.padding[0]), number(options.padding[1]), number(tiles_across(size)),
               number(tiles_in_image(size)), static_cast<std::uint32_t>(first), number(tiles), number(columns)},
              work(of_input, 12 * 16, 16));
    add_gemm(plan, "gemm", variant, product, {.a = filters, .b = input, .c = filters, .result = output}, 1, 0);
    plan.step(winograd_output_kernel(variant.vectors && size.out_width % 4 == 0), groups(of_output),
              {output, memory.bias, memory.result},
              {number(size.filters), number(size.out_height), number(size.out_width), number(tiles_across(size)),
               number(tiles_in_image(size)), static_cast<std::uint32_t>(first), number(tiles), number(columns),
               number(options.bias ? 1 : 0)},
              work(of_output, 10 * 13, 16));
  }
}

}  // namespace kiln::kernels
