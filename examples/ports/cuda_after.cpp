// cuda_before.cpp with Kiln: the program keeps its context, stream, memory and kernel source. Kiln replaces NVRTC,
// cuModuleLoadData and cuLaunchKernel.
#include <cuda.h>

#include <iostream>
#include <vector>

#include <kiln/cache.hpp>
#include <kiln/cuda.hpp>

const char* source = R"(
extern "C" __global__ void saxpy(int n, float a, const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
)";

int main() try {
  CUdevice device = 0;
  if (cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&device, 0) != CUDA_SUCCESS) return 77;
  CUcontext context = nullptr;
  cuDevicePrimaryCtxRetain(&context, device);
  cuCtxSetCurrent(context);
  CUstream stream = nullptr;
  cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);

  int n = 1000;
  std::vector<float> x(1000, 2.0F);
  std::vector<float> y(1000, 1.0F);
  CUdeviceptr x_memory = 0;
  CUdeviceptr y_memory = 0;
  cuMemAlloc(&x_memory, 4000);
  cuMemAlloc(&y_memory, 4000);
  cuMemcpyHtoDAsync(x_memory, x.data(), 4000, stream);
  cuMemcpyHtoDAsync(y_memory, y.data(), 4000, stream);
  {
    auto own = kiln::cuda::adopt(context).value();
    kiln::Cache cache(own);
    // Compiles once, for this GPU; later processes load the cubin. Errors have the compiler's log.
    kiln::Program program =
        cache.get(kiln::Request({.name = "saxpy", .source = source, .language = kiln::Language::cuda})).value();

    // Arguments are checked against the kernel. An address is a value of 8 bytes.
    auto launches = kiln::cuda::stream(*own, stream).value();
    program["saxpy"](*launches, {16, 64}, n, 3.0F, x_memory, y_memory).value();

    cuMemcpyDtoHAsync(y.data(), y_memory, 4000, stream);
    cuStreamSynchronize(stream);
    std::cout << y[0] << ' ' << y[999] << '\n';
  }
  cuMemFree(y_memory);
  cuMemFree(x_memory);
  cuStreamDestroy(stream);
  cuDevicePrimaryCtxRelease(device);
  return y[0] == 7 && y[999] == 7 ? 0 : 1;
} catch (const kiln::Failure& failure) {
  std::cerr << failure.what() << '\n';
  return 1;
}
