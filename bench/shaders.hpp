#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace kiln::bench {

/// A GLSL compute program of the size that people write.
struct Shader {
  std::string name = {};
  std::string source = {};
};

/// `count` different programs: convolutions, matrix products and attention, unrolled in different shapes.
std::vector<Shader> shaders(std::size_t count);

/// The smallest program that does something: adds one to a number.
Shader tiny_shader();

}  // namespace kiln::bench
