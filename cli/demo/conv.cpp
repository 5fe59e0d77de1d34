#include <algorithm>

#include "kernel.hpp"

namespace kiln::cli::demo {
namespace {

// A group of TILE x TILE threads holds its part of the image and the weights of BLOCK filters in shared memory;
// each thread computes STRIP pixels side by side with all of these filters, so that a pixel is loaded once for many
// uses.
constexpr const char* direct = R"(#version 430
layout(local_size_x = TILE, local_size_y = TILE) in;
layout(std430, binding = 0) readonly buffer Input { float image[]; };
layout(std430, binding = 1) readonly buffer Weights { float weights[]; };
layout(std430, binding = 2) readonly buffer Bias { float bias[]; };
layout(std430, binding = 3) writeonly buffer Output { float result[]; };
layout(std140, binding = 0) uniform Parameters { int width; int height; };

const int RADIUS = SIZE / 2;
const ivec2 HALO = ivec2(TILE * STRIP, TILE) + 2 * RADIUS;
const int PATCH = CHANNELS * SIZE * SIZE;
shared float tile[CHANNELS][HALO.y][HALO.x];
shared float block[PATCH * BLOCK];

void main() {
  ivec2 here = ivec2(gl_LocalInvocationID.xy);
  ivec2 origin = ivec2(gl_WorkGroupID.xy) * ivec2(TILE * STRIP, TILE);
  int first = int(gl_WorkGroupID.z) * BLOCK;

  for (int c = 0; c < CHANNELS; ++c)
    for (int y = here.y; y < HALO.y; y += TILE)
      for (int x = here.x; x < HALO.x; x += TILE) {
        ivec2 p = origin - RADIUS + ivec2(x, y);
        bool inside = p.x >= 0 && p.y >= 0 && p.x < width && p.y < height;
        tile[c][y][x] = inside ? image[(c * height + p.y) * width + p.x] : 0.0;
      }
  for (int i = int(gl_LocalInvocationIndex); i < PATCH * BLOCK; i += TILE * TILE)
    block[i] = weights[first * PATCH + i];
  barrier();

  float sum[BLOCK][STRIP];
  for (int b = 0; b < BLOCK; ++b)
    for (int s = 0; s < STRIP; ++s) sum[b][s] = FUSE_BIAS != 0 ? bias[first + b] : 0.0;
  for (int c = 0; c < CHANNELS; ++c)
    for (int ky = 0; ky < SIZE; ++ky) {
      float row[STRIP + SIZE - 1];
      for (int i = 0; i < STRIP + SIZE - 1; ++i) row[i] = tile[c][here.y + ky][here.x * STRIP + i];
      for (int b = 0; b < BLOCK; ++b)
        for (int kx = 0; kx < SIZE; ++kx) {
          float weight = block[((b * CHANNELS + c) * SIZE + ky) * SIZE + kx];
          for (int s = 0; s < STRIP; ++s) sum[b][s] += weight * row[s + kx];
        }
    }

  ivec2 at = origin + here * ivec2(STRIP, 1);
  if (at.y >= height) return;
  for (int b = 0; b < BLOCK; ++b)
    for (int s = 0; s < STRIP; ++s)
      if (at.x + s < width)
        result[((first + b) * height + at.y) * width + at.x + s] = FUSE_RELU != 0 ? max(sum[b][s], 0.0) : sum[b][s];
}
)";

// F(2x2, 3x3): 16 multiplications for four outputs instead of 36.
constexpr const char* winograd = R"(#version 430
layout(local_size_x = 8, local_size_y = 8) in;
layout(std430, binding = 0) readonly buffer Input { float image[]; };
layout(std430, binding = 1) readonly buffer Weights { float weights[]; };
layout(std430, binding = 2) readonly buffer Bias { float bias[]; };
layout(std430, binding = 3) writeonly buffer Output { float result[]; };
layout(std140, binding = 0) uniform Parameters { int width; int height; };

float pixel(int c, ivec2 p) {
  bool inside = p.x >= 0 && p.y >= 0 && p.x < width && p.y < height;
  return inside ? image[(c * height + p.y) * width + p.x] : 0.0;
}

mat4 transformed_tile(int c, ivec2 corner) {
  mat4 d;
  for (int y = 0; y < 4; ++y)
    for (int x = 0; x < 4; ++x) d[y][x] = pixel(c, corner + ivec2(x, y));
  mat4 rows = mat4(d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]);
  mat4 t = transpose(rows);
  return transpose(mat4(t[0] - t[2], t[1] + t[2], t[2] - t[1], t[1] - t[3]));
}

mat4 transformed_weights(int filter_index, int c) {
  int base = (filter_index * CHANNELS + c) * 9;
  mat3 g;
  for (int y = 0; y < 3; ++y)
    for (int x = 0; x < 3; ++x) g[y][x] = weights[base + y * 3 + x];
  mat4x3 rows = mat4x3(g[0], 0.5 * (g[0] + g[1] + g[2]), 0.5 * (g[0] - g[1] + g[2]), g[2]);
  mat3x4 t = transpose(rows);
  return transpose(mat4(t[0], 0.5 * (t[0] + t[1] + t[2]), 0.5 * (t[0] - t[1] + t[2]), t[2]));
}

void main() {
  ivec2 at = ivec2(gl_GlobalInvocationID.xy) * 2;
  int k = int(gl_WorkGroupID.z);
  mat4 m = mat4(0.0);
  for (int c = 0; c < CHANNELS; ++c)
    m += matrixCompMult(transformed_tile(c, at - 1), transformed_weights(k, c));

  mat2x4 rows = mat2x4(m[0] + m[1] + m[2], m[1] - m[2] - m[3]);
  for (int y = 0; y < 2; ++y) {
    vec4 r = rows[y];
    vec2 pair = vec2(r.x + r.y + r.z, r.y - r.z - r.w) + bias[k];
    for (int x = 0; x < 2; ++x)
      if (at.x + x < width && at.y + y < height)
        result[(k * height + at.y + y) * width + at.x + x] = max(pair[x], 0.0);
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

Kernel conv(const char* source, const Variant& variant) {
  const Shape shape{.width = 30, .height = 22, .channels = 3, .filters = 4, .size = variant.size};
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
  return {.request = Request({.name = variant.name,
                              .source = source,
                              .defines = {{"SIZE", std::to_string(variant.size)},
                                          {"TILE", std::to_string(variant.tile)},
                                          {"BLOCK", std::to_string(variant.block)},
                                          {"STRIP", std::to_string(variant.strip)},
                                          {"CHANNELS", std::to_string(shape.channels)},
                                          {"FUSE_BIAS", variant.bias ? "1" : "0"},
                                          {"FUSE_RELU", variant.relu ? "1" : "0"}}}),
          .groups = {groups(shape.width, variant.tile * variant.strip), groups(shape.height, variant.tile),
                     groups(shape.filters, variant.block)},
          .parameters = bytes_of(std::array{shape.width, shape.height}),
          .inputs = {std::move(image), std::move(weights), std::move(bias)},
          .expected = std::move(expected)};
}

}  // namespace

std::vector<Kernel> conv_kernels() {
  std::vector<Kernel> kernels;
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
    kernels.push_back(conv(direct, variant));
  kernels.push_back(conv(winograd, {.name = "conv2d_3x3_winograd", .tile = 16, .bias = true, .relu = true}));
  return kernels;
}

}  // namespace kiln::cli::demo
