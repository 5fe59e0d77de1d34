// An application with a CUcontext of its own: Kiln adopts it. Here the context comes straight from the driver, so
// that building this needs no CUDA.
#include <dlfcn.h>

#include <iostream>
#include <vector>

#include <kiln/cache.hpp>
#include <kiln/cuda.hpp>

constexpr const char* source =
    "extern \"C\" __global__ void square(float* d) { d[threadIdx.x] *= d[threadIdx.x]; }";

template <class Function>
Function* find(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

int main() try {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) return 77;
  int device = 0;
  CUcontext context = nullptr;
  if (find<int(unsigned)>(driver, "cuInit")(0) != 0) return 77;
  if (find<int(int*, int)>(driver, "cuDeviceGet")(&device, 0) != 0) return 77;
  if (find<int(CUcontext*, unsigned, int)>(driver, "cuCtxCreate_v2")(&context, 0, device) != 0) return 77;

  auto adopted = kiln::cuda::adopt(context).value();
  kiln::Cache cache(adopted);
  kiln::Request request(
      {.name = "squares", .source = source, .entries = {"square"}, .language = kiln::Language::cuda});
  kiln::Program squares = cache.get(request).value();
  auto buffer = kiln::upload(*adopted, std::vector<float>{1, 2, 3, 4}).value();
  adopted->launch(squares.module(), {.group_size = {4, 1, 1}, .arguments = {buffer.get()}}).value();
  for (float value : kiln::download<float>(*adopted, *buffer).value()) std::cout << value << ' ';
} catch (const kiln::Failure& failure) {
  std::cerr << failure.what() << '\n';
  return 1;
}
