#include <algorithm>
#include <cmath>

#include "kernel.hpp"

namespace kiln::cli::demo {
namespace {

constexpr const char* nbody_source = R"(#version 430
layout(local_size_x = BLOCK) in;
layout(std430, binding = 0) readonly buffer Bodies { vec4 body[]; };
layout(std430, binding = 1) readonly buffer Velocities { vec4 velocity[]; };
layout(std430, binding = 2) writeonly buffer Output { vec4 result[]; };
layout(std140, binding = 0) uniform Parameters { int count; float step; float softening; };

shared vec4 block[BLOCK];

vec3 pull(vec3 at, vec4 other) {
  vec3 to = other.xyz - at;
  float inverse = inversesqrt(dot(to, to) + softening * softening);
  return to * (other.w * inverse * inverse * inverse);
}

void main() {
  int i = int(gl_GlobalInvocationID.x);
  vec4 own = body[min(i, count - 1)];
  vec3 acceleration = vec3(0.0);
  for (int start = 0; start < count; start += BLOCK) {
    int other = start + int(gl_LocalInvocationID.x);
    block[gl_LocalInvocationID.x] = other < count ? body[other] : vec4(0.0);
    barrier();
    for (int j = 0; j < BLOCK; j += UNROLL)
      for (int u = 0; u < UNROLL; ++u) acceleration += pull(own.xyz, block[j + u]);
    barrier();
  }
  if (i >= count) return;
  vec3 speed = velocity[i].xyz + step * acceleration;
  result[2 * i] = vec4(own.xyz + step * speed, own.w);
  result[2 * i + 1] = vec4(speed, 0.0);
}
)";

Kernel nbody() {
  struct {
    std::int32_t count = 150;
    float step = 0.01F;
    float softening = 0.1F;
  } const parameters;
  const std::size_t count = 150;
  std::vector<float> bodies = noise(4 * count, 1);
  for (std::size_t i = 0; i < count; ++i) bodies[4 * i + 3] = std::abs(bodies[4 * i + 3]) + 0.1F;
  std::vector<float> velocities = noise(4 * count, 2);

  std::vector<float> expected(8 * count);
  for (std::size_t i = 0; i < count; ++i) {
    std::array<double, 3> acceleration = {};
    for (std::size_t j = 0; j < count; ++j) {
      std::array<double, 3> to;
      double square = std::pow(double{parameters.softening}, 2.0);
      for (std::size_t axis = 0; axis < 3; ++axis) {
        to[axis] = double{bodies[4 * j + axis]} - double{bodies[4 * i + axis]};
        square += to[axis] * to[axis];
      }
      for (std::size_t axis = 0; axis < 3; ++axis)
        acceleration[axis] += to[axis] * double{bodies[4 * j + 3]} / std::pow(square, 1.5);
    }
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const double speed = double{velocities[4 * i + axis]} + double{parameters.step} * acceleration[axis];
      expected[8 * i + axis] = static_cast<float>(double{bodies[4 * i + axis]} + double{parameters.step} * speed);
      expected[8 * i + 4 + axis] = static_cast<float>(speed);
    }
    expected[8 * i + 3] = bodies[4 * i + 3];
  }
  return {.request = Request(
              {.name = "nbody_step", .source = nbody_source, .defines = {{"BLOCK", "32"}, {"UNROLL", "16"}}}),
          .groups = {(150 + 31) / 32, 1, 1},
          .parameters = bytes_of(parameters),
          .inputs = {std::move(bodies), std::move(velocities)},
          .expected = std::move(expected)};
}

}  // namespace

std::vector<Kernel> simulation_kernels() { return {nbody()}; }

}  // namespace kiln::cli::demo
