#include <algorithm>

#include "kernel.hpp"

namespace kiln::cli::demo {
namespace {

// A group of TILE x TILE threads holds its pixels, and two more on each side, in shared memory; beyond the border
// the nearest pixel counts. Then forgetful selection: of 14 values neither the least nor the greatest can be the
// median of 25, so both are dropped for the next value, until three are left.
constexpr const char* median_source = R"(#version 430
layout(local_size_x = TILE, local_size_y = TILE) in;
layout(std430, binding = 0) readonly buffer Input { float image[]; };
layout(std430, binding = 1) writeonly buffer Output { float result[]; };
layout(std140, binding = 0) uniform Parameters { int width; int height; };

const int RADIUS = 2;
const int HALO = TILE + 2 * RADIUS;
shared float tile[HALO][HALO];
float v[14];

#define ORDER(i, j) { float low = min(v[i], v[j]); v[j] = max(v[i], v[j]); v[i] = low; }
#define ENDS(count)                                         \
  for (int i = 1; i < count; ++i) ORDER(0, i)               \
  for (int i = 1; i < count - 1; ++i) ORDER(i, count - 1)
#define NEXT(n) v[0] = tile[here.y + (n) / 5][here.x + (n) % 5];

void main() {
  ivec2 here = ivec2(gl_LocalInvocationID.xy);
  ivec2 origin = ivec2(gl_WorkGroupID.xy) * TILE - RADIUS;
  for (int y = here.y; y < HALO; y += TILE)
    for (int x = here.x; x < HALO; x += TILE) {
      ivec2 p = clamp(origin + ivec2(x, y), ivec2(0), ivec2(width, height) - 1);
      tile[y][x] = image[p.y * width + p.x];
    }
  barrier();

  for (int n = 0; n < 14; ++n) v[n] = tile[here.y + n / 5][here.x + n % 5];
  ENDS(14) NEXT(14)
  ENDS(13) NEXT(15)
  ENDS(12) NEXT(16)
  ENDS(11) NEXT(17)
  ENDS(10) NEXT(18)
  ENDS(9) NEXT(19)
  ENDS(8) NEXT(20)
  ENDS(7) NEXT(21)
  ENDS(6) NEXT(22)
  ENDS(5) NEXT(23)
  ENDS(4) NEXT(24)
  ENDS(3)

  ivec2 at = ivec2(gl_GlobalInvocationID.xy);
  if (at.x < width && at.y < height) result[at.y * width + at.x] = v[1];
}
)";

Kernel median() {
  constexpr int width = 37;
  constexpr int height = 29;
  constexpr int tile = 8;
  std::vector<float> image = noise(std::size_t{width} * height, 1);
  std::vector<float> expected;
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) {
      std::vector<float> around;
      for (int dy = -2; dy <= 2; ++dy)
        for (int dx = -2; dx <= 2; ++dx) {
          const int row = std::clamp(y + dy, 0, height - 1);
          const int column = std::clamp(x + dx, 0, width - 1);
          around.push_back(image[static_cast<std::size_t>(row * width + column)]);
        }
      std::sort(around.begin(), around.end());
      expected.push_back(around[around.size() / 2]);
    }
  return {.request =
              Request({.name = "median_5x5", .source = median_source, .defines = {{"TILE", std::to_string(tile)}}}),
          .groups = {(width + tile - 1) / tile, (height + tile - 1) / tile, 1},
          .parameters = bytes_of(std::array{width, height}),
          .inputs = {std::move(image)},
          .expected = std::move(expected)};
}

}  // namespace

std::vector<Kernel> image_kernels() { return {median()}; }

}  // namespace kiln::cli::demo
