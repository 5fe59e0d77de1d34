#include <algorithm>
#include <cmath>

#include "case.hpp"

namespace kiln::cli::demo {
namespace {

constexpr const char* nbody_source = R"(FUNCTION float4 pull(float4 at, float4 other, float softness) {
  float4 to = other - at;
  float mass = other.w;
  to.w = 0.0f;
  float inverse = rsqrt(dot(to, to) + softness * softness);
  return to * (mass * inverse * inverse * inverse);
}

KERNEL {
  int i = global_id_x;
  float4 own = body[min(i, count - 1)];
  float4 acceleration = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  for (int start = 0; start < count; start += GROUP_X) {
    int other = start + local_id_x;
    float4 loaded = body[min(other, count - 1)];
    if (other >= count) loaded.w = 0.0f;
    block[local_id_x] = loaded;
    group_barrier();
    for (int j = 0; j < GROUP_X; ++j) acceleration += pull(own, block[j], softening);
    group_barrier();
  }
  if (i < count) {
    float4 speed = velocity[i] + acceleration * time_step;
    speed.w = 0.0f;
    result[2 * i] = own + speed * time_step;
    result[2 * i + 1] = speed;
  }
}
)";

Case nbody() {
  constexpr std::int32_t count = 150;
  constexpr float time_step = 0.01F;
  constexpr float softening = 0.1F;
  std::vector<float> bodies = noise(4 * count, 1);
  for (std::size_t i = 0; i < count; ++i) bodies[4 * i + 3] = std::abs(bodies[4 * i + 3]) + 0.1F;
  std::vector<float> velocities = noise(4 * count, 2);

  std::vector<float> expected(8 * count);
  for (std::size_t i = 0; i < count; ++i) {
    std::array<double, 3> acceleration = {};
    for (std::size_t j = 0; j < count; ++j) {
      std::array<double, 3> to;
      double square = std::pow(double{softening}, 2.0);
      for (std::size_t axis = 0; axis < 3; ++axis) {
        to[axis] = double{bodies[4 * j + axis]} - double{bodies[4 * i + axis]};
        square += to[axis] * to[axis];
      }
      for (std::size_t axis = 0; axis < 3; ++axis)
        acceleration[axis] += to[axis] * double{bodies[4 * j + 3]} / std::pow(square, 1.5);
    }
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const double speed = double{velocities[4 * i + axis]} + double{time_step} * acceleration[axis];
      expected[8 * i + axis] = static_cast<float>(double{bodies[4 * i + axis]} + double{time_step} * speed);
      expected[8 * i + 4 + axis] = static_cast<float>(speed);
    }
    expected[8 * i + 3] = bodies[4 * i + 3];
  }
  return {.kernel = {.name = "nbody_step",
                     .buffers = {{"body", Type::f32x4},
                                 {"velocity", Type::f32x4},
                                 {"result", Type::f32x4, Access::write}},
                     .scalars = {{"count"}, {"time_step", Type::f32}, {"softening", Type::f32}},
                     .shared = {{"block", Type::f32x4, {"GROUP_X"}}},
                     .group_size = {32, 1, 1},
                     .source = nbody_source},
          .groups = {(count + 31) / 32, 1, 1},
          .scalars = {count, time_step, softening},
          .inputs = {std::move(bodies), std::move(velocities)},
          .expected = std::move(expected)};
}

}  // namespace

std::vector<Case> simulation_cases() { return {nbody()}; }

}  // namespace kiln::cli::demo
