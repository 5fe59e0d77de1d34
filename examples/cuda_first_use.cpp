// Doubles four numbers by a CUDA program. Run it twice: the second process finds the program on disk.
#include <iostream>
#include <vector>

#include <kiln/cache.hpp>
#include <kiln/device.hpp>

constexpr const char* source = R"(
extern "C" __global__ void twice(float* data) { data[blockIdx.x * blockDim.x + threadIdx.x] *= 2.0f; }
)";

int main() try {
  auto device = kiln::open_device("cuda");
  if (!device) {
    std::cerr << device.error().message() << '\n';
    return 77;  // No such device: for the tests, a reason to skip this.
  }
  kiln::Cache cache(*device);
  kiln::Request request(
      {.name = "twice", .source = source, .entries = {"twice"}, .language = kiln::Language::cuda});
  kiln::Program twice = cache.get(request).value();

  auto buffer = kiln::upload(**device, std::vector<float>{1, 2, 3, 4}).value();
  (*device)->launch(twice.module(), {.group_size = {4, 1, 1}, .arguments = {buffer.get()}}).value();
  for (float value : kiln::download<float>(**device, *buffer).value()) std::cout << value << ' ';
  std::cout << "by a program from: " << kiln::to_string(twice.origin()) << '\n';
} catch (const kiln::Failure& failure) {
  std::cerr << failure.what() << '\n';
  return 1;
}
