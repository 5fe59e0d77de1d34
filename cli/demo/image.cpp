#include <algorithm>

#include "case.hpp"

namespace kiln::cli::demo {
namespace {

// A group of TILE x TILE work items keeps its pixels, and two more on each side, in shared memory. The nearest
// pixel is used beyond the border. Then forgetful selection: of 14 values, neither the smallest nor the largest can
// be the median of 25, so both are replaced by the next value until three are left.
constexpr const char* median_source =
    R"(#define ORDER(i, j) { float low = fmin(v[i], v[j]); v[j] = fmax(v[i], v[j]); v[i] = low; }
#define ENDS(count)                                         \
  for (int i = 1; i < count; ++i) ORDER(0, i)               \
  for (int i = 1; i < count - 1; ++i) ORDER(i, count - 1)
#define NEXT(n) v[0] = tile[local_id_y + (n) / 5][local_id_x + (n) % 5];

KERNEL {
  for (int y = local_id_y; y < HALO; y += TILE)
    for (int x = local_id_x; x < HALO; x += TILE) {
      int px = clamp(group_id_x * TILE + x - 2, 0, width - 1);
      int py = clamp(group_id_y * TILE + y - 2, 0, height - 1);
      tile[y][x] = image[py * width + px];
    }
  group_barrier();

  float v[14];
  for (int n = 0; n < 14; ++n) v[n] = tile[local_id_y + n / 5][local_id_x + n % 5];
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

  if (global_id_x < width && global_id_y < height) result[global_id_y * width + global_id_x] = v[1];
}
)";

Case median() {
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
  return {.kernel = {.name = "median_5x5",
                     .buffers = {{"image"}, {"result", Type::f32, Access::write}},
                     .scalars = {{"width"}, {"height"}},
                     .shared = {{"tile", Type::f32, {"HALO", "HALO"}}},
                     .group_size = {tile, tile, 1},
                     .parameters = {{"TILE", std::to_string(tile)}, {"HALO", "(TILE + 4)"}},
                     .source = median_source},
          .groups = {(width + tile - 1) / tile, (height + tile - 1) / tile, 1},
          .scalars = {width, height},
          .inputs = {std::move(image)},
          .expected = std::move(expected)};
}

}  // namespace

std::vector<Case> image_cases() { return {median()}; }

}  // namespace kiln::cli::demo
