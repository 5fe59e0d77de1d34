#include <algorithm>

#include "case.hpp"

namespace kiln::cli::demo {
namespace {

// A group of TILE x TILE work items keeps its part of the image and the weights of BLOCK filters in shared memory.
// Each work item computes STRIP adjacent pixels with all of these filters, so that a pixel is loaded once and used
// many times.
constexpr const char* direct_source = R"(KERNEL {
  int left = group_id_x * TILE * STRIP;
  int top = group_id_y * TILE;
  int first = group_id_z * BLOCK;

  for (int c = 0; c < CHANNELS; ++c)
    for (int y = local_id_y; y < HALO_Y; y += TILE)
      for (int x = local_id_x; x < HALO_X; x += TILE) {
        int px = left + x - SIZE / 2;
        int py = top + y - SIZE / 2;
        bool inside = px >= 0 && py >= 0 && px < width && py < height;
        tile[c * HALO_Y + y][x] = inside ? image[(c * height + py) * width + px] : 0.0f;
      }
  for (int i = local_index; i < PATCH * BLOCK; i += TILE * TILE) block[i] = weights[first * PATCH + i];
  group_barrier();

  float sum[BLOCK][STRIP];
  for (int b = 0; b < BLOCK; ++b)
    for (int s = 0; s < STRIP; ++s) sum[b][s] = FUSE_BIAS != 0 ? bias[first + b] : 0.0f;
  for (int c = 0; c < CHANNELS; ++c)
    for (int ky = 0; ky < SIZE; ++ky) {
      float row[STRIP + SIZE - 1];
      for (int i = 0; i < STRIP + SIZE - 1; ++i)
        row[i] = tile[c * HALO_Y + local_id_y + ky][local_id_x * STRIP + i];
      for (int b = 0; b < BLOCK; ++b)
        for (int kx = 0; kx < SIZE; ++kx) {
          float weight = block[((b * CHANNELS + c) * SIZE + ky) * SIZE + kx];
          for (int s = 0; s < STRIP; ++s) sum[b][s] += weight * row[s + kx];
        }
    }

  int x = left + local_id_x * STRIP;
  int y = top + local_id_y;
  for (int b = 0; b < BLOCK; ++b)
    for (int s = 0; s < STRIP; ++s)
      if (x + s < width && y < height)
        result[((first + b) * height + y) * width + x + s] = FUSE_RELU != 0 ? fmax(sum[b][s], 0.0f) : sum[b][s];
}
)";

// F(2x2, 3x3): 16 multiplications for four outputs instead of 36.
constexpr const char* winograd_source = R"(KERNEL {
  int left = global_id_x * 2;
  int top = global_id_y * 2;
  int k = group_id_z;
  float m[4][4];
  for (int y = 0; y < 4; ++y)
    for (int x = 0; x < 4; ++x) m[y][x] = 0.0f;

  for (int c = 0; c < CHANNELS; ++c) {
    float d[4][4];
    for (int y = 0; y < 4; ++y)
      for (int x = 0; x < 4; ++x) {
        int px = left + x - 1;
        int py = top + y - 1;
        bool inside = px >= 0 && py >= 0 && px < width && py < height;
        d[y][x] = inside ? image[(c * height + py) * width + px] : 0.0f;
      }
    // Both transforms process the columns first; the rows follow below.
    float t[4][4];
    for (int x = 0; x < 4; ++x) {
      t[0][x] = d[0][x] - d[2][x];
      t[1][x] = d[1][x] + d[2][x];
      t[2][x] = d[2][x] - d[1][x];
      t[3][x] = d[1][x] - d[3][x];
    }
    float g[4][3];
    for (int x = 0; x < 3; ++x) {
      int at = (k * CHANNELS + c) * 9 + x;
      float above = weights[at];
      float here = weights[at + 3];
      float below = weights[at + 6];
      g[0][x] = above;
      g[1][x] = 0.5f * (above + here + below);
      g[2][x] = 0.5f * (above - here + below);
      g[3][x] = below;
    }
    for (int y = 0; y < 4; ++y) {
      m[y][0] += (t[y][0] - t[y][2]) * g[y][0];
      m[y][1] += (t[y][1] + t[y][2]) * (0.5f * (g[y][0] + g[y][1] + g[y][2]));
      m[y][2] += (t[y][2] - t[y][1]) * (0.5f * (g[y][0] - g[y][1] + g[y][2]));
      m[y][3] += (t[y][1] - t[y][3]) * g[y][2];
    }
  }

  float r[2][4];
  for (int x = 0; x < 4; ++x) {
    r[0][x] = m[0][x] + m[1][x] + m[2][x];
    r[1][x] = m[1][x] - m[2][x] - m[3][x];
  }
  for (int y = 0; y < 2; ++y)
    for (int x = 0; x < 2; ++x) {
      float value = bias[k] + (x == 0 ? r[y][0] + r[y][1] + r[y][2] : r[y][1] - r[y][2] - r[y][3]);
      if (left + x < width && top + y < height)
        result[(k * height + top + y) * width + left + x] = fmax(value, 0.0f);
    }
}
)";

struct Shape {
  int width;
  int height;
  int channels;
  int filters;
  int size;
};

std::vector<float> convolve(const Shape& shape, const std::vector<float>& image,
                            const std::vector<float>& weights) {
  const auto& [width, height, channels, filters, size] = shape;
  std::vector<float> result;
  for (int k = 0; k < filters; ++k)
    for (int y = 0; y < height; ++y)
      for (int x = 0; x < width; ++x) {
        double sum = 0;
        for (int c = 0; c < channels; ++c)
          for (int ky = 0; ky < size; ++ky)
            for (int kx = 0; kx < size; ++kx) {
              const int px = x + kx - size / 2;
              const int py = y + ky - size / 2;
              if (px < 0 || py < 0 || px >= width || py >= height) continue;
              sum += double{image[static_cast<std::size_t>((c * height + py) * width + px)]} *
                     double{weights[static_cast<std::size_t>(((k * channels + c) * size + ky) * size + kx)]};
            }
        result.push_back(static_cast<float>(sum));
      }
  return result;
}

struct Variant {
  std::string name;
  int size = 3;
  int tile = 8;
  int block = 1;
  int strip = 1;
  bool bias = false;
  bool relu = false;
};

constexpr int channels = 3;

Kernel conv_kernel(const std::string& name) {
  return {.name = name,
          .buffers = {{"image"}, {"weights"}, {"bias"}, {"result", Type::f32, Access::write}},
          .scalars = {{"width"}, {"height"}},
          .parameters = {{"CHANNELS", std::to_string(channels)}}};
}

Kernel direct(const Variant& variant) {
  Kernel kernel = conv_kernel(variant.name);
  const auto tile = static_cast<std::uint32_t>(variant.tile);
  kernel.group_size = {tile, tile, 1};
  kernel.shared = {{"tile", Type::f32, {"CHANNELS * HALO_Y", "HALO_X"}}, {"block", Type::f32, {"PATCH * BLOCK"}}};
  kernel.parameters.insert({{"SIZE", std::to_string(variant.size)},
                            {"TILE", std::to_string(variant.tile)},
                            {"BLOCK", std::to_string(variant.block)},
                            {"STRIP", std::to_string(variant.strip)},
                            {"FUSE_BIAS", variant.bias ? "1" : "0"},
                            {"FUSE_RELU", variant.relu ? "1" : "0"},
                            {"HALO_X", "(TILE * STRIP + SIZE - 1)"},
                            {"HALO_Y", "(TILE + SIZE - 1)"},
                            {"PATCH", "(CHANNELS * SIZE * SIZE)"}});
  kernel.source = direct_source;
  return kernel;
}

Kernel winograd(const Variant& variant) {
  Kernel kernel = conv_kernel(variant.name);
  kernel.group_size = {8, 8, 1};
  kernel.source = winograd_source;
  return kernel;
}

Case conv(Kernel kernel, const Variant& variant) {
  const Shape shape{.width = 30, .height = 22, .channels = channels, .filters = 4, .size = variant.size};
  const auto count = [](int n) { return static_cast<std::size_t>(n); };
  std::vector<float> image = noise(count(shape.width * shape.height * shape.channels), 1);
  std::vector<float> weights = noise(count(shape.filters * shape.channels * shape.size * shape.size), 2);
  std::vector<float> bias = noise(count(shape.filters), 3);

  std::vector<float> expected = convolve(shape, image, weights);
  const std::size_t plane = count(shape.width * shape.height);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (variant.bias) expected[i] += bias[i / plane];
    if (variant.relu) expected[i] = std::max(expected[i], 0.0F);
  }

  const auto groups = [](int n, int each) { return static_cast<std::uint32_t>((n + each - 1) / each); };
  return {.kernel = std::move(kernel),
          .groups = {groups(shape.width, variant.tile * variant.strip), groups(shape.height, variant.tile),
                     groups(shape.filters, variant.block)},
          .scalars = {shape.width, shape.height},
          .inputs = {std::move(image), std::move(weights), std::move(bias)},
          .expected = std::move(expected)};
}

}  // namespace

std::vector<Case> conv_cases() {
  std::vector<Case> cases;
  for (const Variant& variant : {
           Variant{.name = "conv2d_3x3_t8", .size = 3, .tile = 8, .strip = 2},
           Variant{.name = "conv2d_3x3_t8_relu", .size = 3, .tile = 8, .block = 2, .strip = 2, .relu = true},
           Variant{.name = "conv2d_3x3_t16_bias_relu",
           .size = 3,
           .tile = 16,
           .block = 4,
           .strip = 2,
           .bias = true,
           .relu = true},
           Variant{.name = "conv2d_5x5_t8_bias_relu",
           .size = 5,
           .tile = 8,
           .block = 2,
           .strip = 4,
           .bias = true,
           .relu = true},
       })
    cases.push_back(conv(direct(variant), variant));
  const Variant tiles{.name = "conv2d_3x3_winograd", .tile = 16, .bias = true, .relu = true};
  cases.push_back(conv(winograd(tiles), tiles));
  return cases;
}

}  // namespace kiln::cli::demo
