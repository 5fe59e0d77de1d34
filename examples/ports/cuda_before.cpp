// A program that uses NVRTC and the CUDA driver alone. cuda_after.cpp is the same program with Kiln.
#include <cuda.h>
#include <nvrtc.h>

#include <iostream>
#include <string>
#include <vector>

const char* source = R"(
extern "C" __global__ void saxpy(int n, float a, const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
)";

int main() {
  CUdevice device = 0;
  if (cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&device, 0) != CUDA_SUCCESS) return 77;
  CUcontext context = nullptr;
  cuDevicePrimaryCtxRetain(&context, device);
  cuCtxSetCurrent(context);
  CUstream stream = nullptr;
  cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);

  // Compiles in every process.
  int major = 0;
  int minor = 0;
  cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
  const std::string architecture = "--gpu-architecture=sm_" + std::to_string(major) + std::to_string(minor);
  const char* options[] = {architecture.c_str()};
  nvrtcProgram compiling = nullptr;
  nvrtcCreateProgram(&compiling, source, "saxpy.cu", 0, nullptr, nullptr);
  if (nvrtcCompileProgram(compiling, 1, options) != NVRTC_SUCCESS) {
    std::size_t length = 0;
    nvrtcGetProgramLogSize(compiling, &length);
    std::string log(length, '\0');
    nvrtcGetProgramLog(compiling, log.data());
    std::cerr << log;
    return 1;
  }
  std::size_t bytes = 0;
  nvrtcGetCUBINSize(compiling, &bytes);
  std::vector<char> cubin(bytes);
  nvrtcGetCUBIN(compiling, cubin.data());
  nvrtcDestroyProgram(&compiling);
  CUmodule module = nullptr;
  CUfunction saxpy = nullptr;
  cuModuleLoadData(&module, cubin.data());
  cuModuleGetFunction(&saxpy, module, "saxpy");

  int n = 1000;
  std::vector<float> x(1000, 2.0F);
  std::vector<float> y(1000, 1.0F);
  CUdeviceptr x_memory = 0;
  CUdeviceptr y_memory = 0;
  cuMemAlloc(&x_memory, 4000);
  cuMemAlloc(&y_memory, 4000);
  cuMemcpyHtoDAsync(x_memory, x.data(), 4000, stream);
  cuMemcpyHtoDAsync(y_memory, y.data(), 4000, stream);

  // Nothing checks that the list fits the kernel.
  float a = 3;
  void* arguments[] = {&n, &a, &x_memory, &y_memory};
  cuLaunchKernel(saxpy, 16, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr);

  cuMemcpyDtoHAsync(y.data(), y_memory, 4000, stream);
  cuStreamSynchronize(stream);
  std::cout << y[0] << ' ' << y[999] << '\n';

  cuMemFree(y_memory);
  cuMemFree(x_memory);
  cuModuleUnload(module);
  cuStreamDestroy(stream);
  cuDevicePrimaryCtxRelease(device);
  return y[0] == 7 && y[999] == 7 ? 0 : 1;
}
