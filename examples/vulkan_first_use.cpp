// Doubles four numbers by a Vulkan program. Run it twice: the second process finds the program on disk.
#include <iostream>
#include <vector>

#include <kiln/cache.hpp>
#include <kiln/device.hpp>

constexpr const char* source = R"(#version 450
layout(local_size_x = 4) in;
layout(std430, set = 0, binding = 0) buffer Data { float data[]; };
void main() { data[gl_GlobalInvocationID.x] *= 2.0; }
)";

int main() try {
  auto device = kiln::open_device("vulkan");
  if (!device) {
    std::cerr << device.error().message() << '\n';
    return 77;  // No such device: for the tests, a reason to skip this.
  }
  kiln::Cache cache(*device);
  kiln::Request request({.name = "twice", .source = source, .language = kiln::Language::vulkan_glsl});
  kiln::Program twice = cache.get(request).value();

  auto buffer = kiln::upload(**device, std::vector<float>{1, 2, 3, 4}).value();
  (*device)->launch(twice.module(), {.arguments = {buffer.get()}}).value();
  for (float value : kiln::download<float>(**device, *buffer).value()) std::cout << value << ' ';
  std::cout << "by a program from: " << kiln::to_string(twice.origin()) << '\n';
} catch (const kiln::Failure& failure) {
  std::cerr << failure.what() << '\n';
  return 1;
}
