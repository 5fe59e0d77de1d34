// Doubles four numbers on the GPU. Run it twice: the second process finds the program on disk.
#include <iostream>
#include <vector>

#include <kiln/cache.hpp>
#include <kiln/device.hpp>

constexpr const char* glsl = R"(#version 430
layout(local_size_x = 4) in;
layout(std430, binding = 0) buffer Data { float data[]; };
void main() { data[gl_GlobalInvocationID.x] *= 2.0; }
)";

int main() try {
  auto gpu = kiln::open_device().value();
  kiln::Cache cache(gpu);
  kiln::Program twice = cache.get(kiln::Request({.name = "twice", .source = glsl})).value();

  auto buffer = kiln::upload(*gpu, std::vector<float>{1, 2, 3, 4}).value();
  gpu->launch(twice.module(), {.buffers = {buffer.get()}}).value();
  const std::vector<float> doubled = kiln::download<float>(*gpu, *buffer).value();
  for (float value : doubled) std::cout << value << ' ';
  std::cout << "by a program from: " << kiln::to_string(twice.origin()) << '\n';

  cache.flush();
  std::cout << cache.stats().to_line() << '\n';
} catch (const kiln::Failure& failure) {
  std::cerr << failure.what() << '\n';
  return 1;
}
