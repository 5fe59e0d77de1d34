// A shared library that runs its kernel on memory and streams of PyTorch or CuPy. saxpy.py calls it.
#include <cstdint>
#include <iostream>
#include <memory>

#include <kiln/cache.hpp>
#include <kiln/cuda.hpp>

namespace {

const char* source = R"(
extern "C" __global__ void saxpy(int n, float a, const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
)";

struct Kiln {
  // On the primary context, which PyTorch and CuPy use too.
  std::shared_ptr<kiln::Device> device = kiln::open_device("cuda").value();
  kiln::Cache cache{device};
};

}  // namespace

// Adds `a` times x to y. Enqueued on `stream`, a CUstream; not waited for. Returns 1 after an error.
extern "C" int saxpy(int n, float a, std::uint64_t x, std::uint64_t y, void* stream) try {
  static Kiln kiln;
  const kiln::Program program =
      kiln.cache.get(kiln::Request({.name = "saxpy", .source = source, .language = kiln::Language::cuda})).value();
  const auto on = kiln::cuda::stream(*kiln.device, static_cast<CUstream>(stream)).value();
  program["saxpy"](*on, {static_cast<std::uint32_t>((n + 255) / 256), 256}, n, a, x, y).value();
  return 0;
} catch (const kiln::Failure& failure) {
  std::cerr << failure.what() << '\n';
  return 1;
}
