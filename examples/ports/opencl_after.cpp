// opencl_before.cpp with Kiln: the program keeps its context, queue, memory and kernel source. Kiln replaces
// clBuildProgram, clCreateKernel, clSetKernelArg and clEnqueueNDRangeKernel.
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <iostream>
#include <vector>

#include <kiln/cache.hpp>
#include <kiln/opencl.hpp>

const char* source = R"(
__kernel void saxpy(int n, float a, __global const float* x, __global float* y) {
  int i = get_global_id(0);
  if (i < n) y[i] += a * x[i];
}
)";

int main() try {
  cl_platform_id platform = nullptr;
  cl_device_id device = nullptr;
  if (clGetPlatformIDs(1, &platform, nullptr) != CL_SUCCESS) return 77;
  if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr) != CL_SUCCESS) return 77;
  cl_context context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, nullptr);
  cl_command_queue queue = clCreateCommandQueue(context, device, 0, nullptr);

  const int n = 1000;
  std::vector<float> x(n, 2.0F);
  std::vector<float> y(n, 1.0F);
  cl_mem_flags copied = CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR;
  cl_mem x_memory = clCreateBuffer(context, copied, n * sizeof(float), x.data(), nullptr);
  cl_mem y_memory = clCreateBuffer(context, copied, n * sizeof(float), y.data(), nullptr);
  {
    auto own = kiln::opencl::adopt(context, device).value();
    kiln::Cache cache(own);
    // Compiles once; later processes load the binary. Errors have the compiler's log.
    kiln::Program program =
        cache.get(kiln::Request({.name = "saxpy", .source = source, .language = kiln::Language::opencl})).value();

    auto stream = kiln::opencl::stream(*own, queue).value();
    auto wrapped_x = kiln::opencl::wrap(*own, x_memory).value();
    auto wrapped_y = kiln::opencl::wrap(*own, y_memory).value();
    // Any number of threads may launch the program, each on a queue of its own. Arguments are checked first.
    program["saxpy"](*stream, {16, 64}, n, 3.0F, wrapped_x, wrapped_y).value();

    clEnqueueReadBuffer(queue, y_memory, CL_TRUE, 0, n * sizeof(float), y.data(), 0, nullptr, nullptr);
    std::cout << y[0] << ' ' << y[n - 1] << '\n';
  }
  clReleaseMemObject(y_memory);
  clReleaseMemObject(x_memory);
  clReleaseCommandQueue(queue);
  clReleaseContext(context);
  return y[0] == 7 && y[n - 1] == 7 ? 0 : 1;
} catch (const kiln::Failure& failure) {
  std::cerr << failure.what() << '\n';
  return 1;
}
