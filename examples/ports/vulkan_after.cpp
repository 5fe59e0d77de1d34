// vulkan_before.cpp with Kiln: the program keeps its device, queue, command buffer, buffers and shader source. Kiln
// replaces shaderc, the pipeline and its layouts, descriptor sets, push constants, the dispatch and its barriers.
#include "vulkan_context.hpp"

#include <iostream>
#include <vector>

#include <kiln/cache.hpp>
#include <kiln/vulkan.hpp>

const char* source = R"(#version 450
layout(local_size_x = 64) in;
layout(push_constant) uniform Parameters { int n; float a; };
layout(std430, binding = 0) readonly buffer X { float x[]; };
layout(std430, binding = 1) buffer Y { float y[]; };
void main() {
  uint i = gl_GlobalInvocationID.x;
  if (i < n) y[i] += a * x[i];
}
)";

int main() try {
  Context context;
  if (!context.open()) return 77;

  const int n = 1000;
  const HostBuffer x(context, std::vector<float>(n, 2.0F));
  const HostBuffer y(context, std::vector<float>(n, 1.0F));
  {
    auto device = kiln::vulkan::adopt({.instance = context.instance,
                                       .physical = context.physical,
                                       .device = context.device,
                                       .queue = context.queue,
                                       .queue_family = Context::family})
                      .value();
    kiln::Cache cache(device);
    // Compiles once; later processes load SPIR-V and the driver's pipeline cache. Errors have the compiler's log.
    kiln::Program program =
        cache.get(kiln::Request({.name = "saxpy", .source = source, .language = kiln::Language::vulkan_glsl}))
            .value();

    // Layouts are read from the SPIR-V. A launch without all resources is an error.
    auto wrapped_x = kiln::vulkan::wrap(*device, x.handle, n * sizeof(float)).value();
    auto wrapped_y = kiln::vulkan::wrap(*device, y.handle, n * sizeof(float)).value();
    auto stream = kiln::vulkan::stream(*device, context.commands).value();
    context.begin();
    program["main"](*stream, {16}, n, 3.0F, wrapped_x, wrapped_y).value();
    context.submit_and_wait();
    std::cout << y.content[0] << ' ' << y.content[n - 1] << '\n';
  }
  return y.content[0] == 7 && y.content[n - 1] == 7 ? 0 : 1;
} catch (const std::exception& failure) {
  std::cerr << failure.what() << '\n';
  return 1;
}
