// Builds an OpenCL source file with the driver's own calls, for ./dev corpus: the alternative to `kiln compile`.
//
//     opencl_build FILE OPTIONS
//
// OPTIONS is the string that clBuildProgram gets. Prints the milliseconds that the build took. Exits with 1 and
// prints the build log if the build fails, and with 2 if there is no device or no such file.

#include <chrono>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include <fmt/format.h>

#include "backend/opencl/library.hpp"

namespace {

int complain(const std::string& text, int status) {
  std::cerr << text << '\n';
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return complain("usage: opencl_build FILE OPTIONS", 2);
  std::ifstream file(argv[1], std::ios::binary);
  if (!file) return complain(fmt::format("cannot read {}", argv[1]), 2);
  const std::string source(std::istreambuf_iterator<char>(file), {});
  const auto library = kiln::opencl::Library::open();
  if (!library) return complain(library.error().message(), 2);
  const auto& cl = **library;
  cl_platform_id platform = nullptr;
  cl_device_id device = nullptr;
  cl_int error = cl.clGetPlatformIDs(1, &platform, nullptr);
  if (error == CL_SUCCESS) error = cl.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr);
  if (error != CL_SUCCESS) return complain(fmt::format("no OpenCL device: {}", kiln::opencl::error_name(error)), 2);
  cl_context context = cl.clCreateContext(nullptr, 1, &device, nullptr, nullptr, &error);
  if (context == nullptr) return complain(kiln::opencl::error_name(error), 2);
  const auto start = std::chrono::steady_clock::now();
  const char* text = source.data();
  const std::size_t size = source.size();
  cl_program program = cl.clCreateProgramWithSource(context, 1, &text, &size, &error);
  if (error == CL_SUCCESS) error = cl.clBuildProgram(program, 1, &device, argv[2], nullptr, nullptr);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  if (error != CL_SUCCESS) {
    std::size_t length = 0;
    cl.clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, nullptr, &length);
    std::string log(length, '\0');
    cl.clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, length, log.data(), nullptr);
    return complain(fmt::format("{}\n{}", kiln::opencl::error_name(error), log.c_str()), 1);
  }
  fmt::print("{:.3f}\n", took.count());
  return 0;
}
