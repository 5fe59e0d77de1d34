// An application with a cl_context of its own: Kiln adopts it, and the application uses the cl_program it gets.
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <array>
#include <iostream>

#include <kiln/cache.hpp>
#include <kiln/opencl.hpp>

constexpr const char* source = "kernel void square(global uint* d) { uint i = get_global_id(0); d[i] = i * i; }";

int main() try {
  cl_platform_id platform = nullptr;
  cl_device_id device = nullptr;
  if (clGetPlatformIDs(1, &platform, nullptr) != CL_SUCCESS) return 77;
  if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr) != CL_SUCCESS) return 77;
  cl_context context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, nullptr);
  cl_command_queue queue = clCreateCommandQueue(context, device, 0, nullptr);

  kiln::Cache cache(kiln::opencl::adopt(context, device).value());
  kiln::Request request(
      {.name = "squares", .source = source, .entries = {"square"}, .language = kiln::Language::opencl});
  kiln::Program squares = cache.get(request).value();
  cl_kernel kernel = clCreateKernel(squares.as<kiln::opencl::Module>().program(), "square", nullptr);

  constexpr std::size_t count = 8;
  std::array<cl_uint, count> numbers = {};
  cl_mem buffer = clCreateBuffer(context, CL_MEM_WRITE_ONLY, sizeof numbers, nullptr, nullptr);
  clSetKernelArg(kernel, 0, sizeof buffer, &buffer);
  clEnqueueNDRangeKernel(queue, kernel, 1, nullptr, &count, nullptr, 0, nullptr, nullptr);
  clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof numbers, numbers.data(), 0, nullptr, nullptr);
  for (cl_uint number : numbers) std::cout << number << ' ';
} catch (const kiln::Failure& failure) {
  std::cerr << failure.what() << '\n';
  return 1;
}
