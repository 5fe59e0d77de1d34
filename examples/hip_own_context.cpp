// An application with a hipCtx_t of its own: Kiln adopts it. Here the context comes straight from the driver, so
// that building this needs no ROCm.
#include <dlfcn.h>

#include <iostream>
#include <vector>

#include <kiln/cache.hpp>
#include <kiln/hip.hpp>

constexpr const char* source =
    "extern \"C\" __global__ void square(float* d) { d[threadIdx.x] *= d[threadIdx.x]; }";

template <class Function>
Function* find(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

int main() try {
  void* driver = dlopen("libamdhip64.so.5", RTLD_NOW);
  if (driver == nullptr) return 77;
  int device = 0;
  hipCtx_t context = nullptr;
  if (find<int(unsigned)>(driver, "hipInit")(0) != 0) return 77;
  if (find<int(int*, int)>(driver, "hipDeviceGet")(&device, 0) != 0) return 77;
  if (find<int(hipCtx_t*, unsigned, int)>(driver, "hipCtxCreate")(&context, 0, device) != 0) return 77;

  auto adopted = kiln::hip::adopt(context).value();
  kiln::Cache cache(adopted);
  kiln::Request request(
      {.name = "squares", .source = source, .entries = {"square"}, .language = kiln::Language::hip});
  kiln::Program squares = cache.get(request).value();
  auto buffer = kiln::upload(*adopted, std::vector<float>{1, 2, 3, 4}).value();
  adopted->launch(squares.module(), {.group_size = {4, 1, 1}, .arguments = {buffer.get()}}).value();
  for (float value : kiln::download<float>(*adopted, *buffer).value()) std::cout << value << ' ';
} catch (const kiln::Failure& failure) {
  std::cerr << failure.what() << '\n';
  return 1;
}
