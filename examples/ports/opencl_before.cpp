// A program that uses OpenCL alone. opencl_after.cpp is the same program with Kiln.
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <iostream>
#include <string>
#include <vector>

const char* source = R"(
__kernel void saxpy(int n, float a, __global const float* x, __global float* y) {
  int i = get_global_id(0);
  if (i < n) y[i] += a * x[i];
}
)";

int main() {
  cl_platform_id platform = nullptr;
  cl_device_id device = nullptr;
  if (clGetPlatformIDs(1, &platform, nullptr) != CL_SUCCESS) return 77;
  if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr) != CL_SUCCESS) return 77;
  cl_context context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, nullptr);
  cl_command_queue queue = clCreateCommandQueue(context, device, 0, nullptr);

  // Compiles in every process.
  cl_program program = clCreateProgramWithSource(context, 1, &source, nullptr, nullptr);
  if (clBuildProgram(program, 1, &device, "", nullptr, nullptr) != CL_SUCCESS) {
    std::size_t length = 0;
    clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, nullptr, &length);
    std::string log(length, '\0');
    clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, length, log.data(), nullptr);
    std::cerr << log;
    return 1;
  }
  cl_kernel saxpy = clCreateKernel(program, "saxpy", nullptr);

  const int n = 1000;
  std::vector<float> x(n, 2.0F);
  std::vector<float> y(n, 1.0F);
  cl_mem_flags copied = CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR;
  cl_mem x_memory = clCreateBuffer(context, copied, n * sizeof(float), x.data(), nullptr);
  cl_mem y_memory = clCreateBuffer(context, copied, n * sizeof(float), y.data(), nullptr);

  // Arguments are state of the kernel, so only one thread at a time may use it.
  const float a = 3;
  clSetKernelArg(saxpy, 0, sizeof n, &n);
  clSetKernelArg(saxpy, 1, sizeof a, &a);
  clSetKernelArg(saxpy, 2, sizeof x_memory, &x_memory);
  clSetKernelArg(saxpy, 3, sizeof y_memory, &y_memory);
  const std::size_t items = 1024;
  const std::size_t group = 64;
  clEnqueueNDRangeKernel(queue, saxpy, 1, nullptr, &items, &group, 0, nullptr, nullptr);

  clEnqueueReadBuffer(queue, y_memory, CL_TRUE, 0, n * sizeof(float), y.data(), 0, nullptr, nullptr);
  std::cout << y[0] << ' ' << y[n - 1] << '\n';

  clReleaseMemObject(y_memory);
  clReleaseMemObject(x_memory);
  clReleaseKernel(saxpy);
  clReleaseProgram(program);
  clReleaseCommandQueue(queue);
  clReleaseContext(context);
  return y[0] == 7 && y[n - 1] == 7 ? 0 : 1;
}
