// Launches the kernels of an OpenCL source file with Kiln and with the driver's own calls, for ./dev corpus
// --launch.
//
//     opencl_launches FILE OPTIONS [KERNEL...]
//
// OPTIONS is the string that clBuildProgram gets; KERNEL is a kernel to leave out. Arguments are made up by their
// types: images of 64 x 64, buffers of 1 MiB, small numbers. Every kernel is launched by OpenCL alone, twice, and
// by Kiln from 16 threads, each with memory of its own, and everything that the kernel can write is compared.
// Prints a line before each kernel, because it may crash, and one after it:
//
//     running NAME
//     equal|different|refused|skipped NAME [REASON]
//
// Exits with 1 if a kernel is different or refused, and with 2 if the file cannot be compiled.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <kiln/cache.hpp>
#include <kiln/opencl.hpp>

#include "backend/opencl/library.hpp"
#include "base/dynamic_library.hpp"

namespace {

using kiln::opencl::error_name;

constexpr std::size_t side = 64;
constexpr std::size_t buffer_bytes = std::size_t{1} << 20;
constexpr std::size_t image_bytes = side * side * 4 * sizeof(float);
constexpr std::array<std::size_t, 2> global = {side, side};
constexpr std::array<std::size_t, 2> group = {8, 8};
constexpr int thread_count = 16;

int complain(const std::string& text) {
  std::cerr << text << '\n';
  return 2;
}

/// Numbers from 0 to 1.
std::vector<float> numbers(std::size_t bytes) {
  std::vector<float> made(bytes / sizeof(float));
  for (std::size_t i = 0; i < made.size(); ++i) made[i] = static_cast<float>(i * 37 % 101) / 101;
  return made;
}

/// The functions that Kiln does not use.
struct MoreOpenCl {
  explicit MoreOpenCl(const kiln::base::DynamicLibrary& library)
      : create_image(library.function<decltype(clCreateImage)>("clCreateImage")),
        create_sampler(library.function<decltype(clCreateSampler)>("clCreateSampler")),
        release_sampler(library.function<decltype(clReleaseSampler)>("clReleaseSampler")),
        read_image(library.function<decltype(clEnqueueReadImage)>("clEnqueueReadImage")) {}
  decltype(clCreateImage)* create_image;
  decltype(clCreateSampler)* create_sampler;
  decltype(clReleaseSampler)* release_sampler;
  decltype(clEnqueueReadImage)* read_image;
};

struct OpenCl {
  const kiln::opencl::Library& cl;
  const MoreOpenCl& more;
  cl_context context;
  cl_device_id device;
};

/// A value of the parameter's size: images are 64 wide and high, blocks have the size of groups, tables of colours
/// 8 levels, other integers are 1, other numbers 0.5.
std::vector<std::byte> value_of(const kiln::Parameter& parameter) {
  std::vector<std::byte> bytes(parameter.bytes);
  const auto fill = [&](auto number) {
    for (std::size_t at = 0; at + sizeof number <= bytes.size(); at += sizeof number)
      std::memcpy(bytes.data() + at, &number, sizeof number);
  };
  const std::string& name = parameter.name;
  const bool is_extent = name == "width" || name == "height" || name == "w" || name == "h" ||
                         name.ends_with("width") || name.ends_with("height") || name == "wd" || name == "ht";
  if (parameter.type.starts_with("float") || parameter.type.starts_with("half"))
    fill(0.5F);
  else if (parameter.type.starts_with("double"))
    fill(0.5);
  else if (parameter.bytes >= sizeof(std::int32_t))
    fill(static_cast<std::int32_t>(is_extent ? side : name == "blocksize" ? group[0] : name == "level" ? 8 : 1));
  return bytes;
}

/// The memory and the values of one launch.
class Given {
 public:
  /// Null if a parameter has a type that nothing is made up for; `why` then says which.
  static std::unique_ptr<Given> make(const OpenCl& opencl, const std::vector<kiln::Parameter>& parameters,
                                     std::string& why) {
    auto given = std::make_unique<Given>(opencl);
    for (const kiln::Parameter& parameter : parameters) {
      Each each{.kind = parameter.kind};
      cl_int error = CL_SUCCESS;
      if (parameter.kind == "buffer") {
        auto content = numbers(buffer_bytes);
        each.memory = opencl.cl.clCreateBuffer(opencl.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                                               buffer_bytes, content.data(), &error);
      } else if (parameter.kind == "image" && parameter.type.find("image2d_t") != std::string::npos) {
        auto content = numbers(image_bytes);
        const cl_image_format format{CL_RGBA, CL_FLOAT};
        cl_image_desc of{};
        of.image_type = CL_MEM_OBJECT_IMAGE2D;
        of.image_width = of.image_height = side;
        each.memory = opencl.more.create_image(opencl.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, &format,
                                               &of, content.data(), &error);
      } else if (parameter.kind == "sampler") {
        each.sampler = opencl.more.create_sampler(opencl.context, CL_FALSE, CL_ADDRESS_CLAMP_TO_EDGE,
                                                  CL_FILTER_NEAREST, &error);
      } else if (parameter.kind == "local memory") {
        each.bytes.resize(8192);
      } else if (parameter.kind == "value" && parameter.bytes > 0) {
        each.bytes = value_of(parameter);
      } else {
        why = fmt::format("its parameter {} {} is not made up", parameter.type, parameter.name);
        return nullptr;
      }
      if (error != CL_SUCCESS) {
        why = error_name(error);
        return nullptr;
      }
      given->all_.push_back(std::move(each));
    }
    return given;
  }
  explicit Given(const OpenCl& opencl) : opencl_(opencl) {}
  ~Given() {
    for (const Each& each : all_) {
      if (each.memory != nullptr) opencl_.cl.clReleaseMemObject(each.memory);
      if (each.sampler != nullptr) opencl_.more.release_sampler(each.sampler);
    }
  }
  Given(const Given&) = delete;
  Given& operator=(const Given&) = delete;

  cl_int set(cl_kernel kernel) const {
    for (cl_uint i = 0; i < all_.size(); ++i) {
      const Each& each = all_[i];
      cl_int error = CL_SUCCESS;
      if (each.memory != nullptr)
        error = opencl_.cl.clSetKernelArg(kernel, i, sizeof each.memory, &each.memory);
      else if (each.sampler != nullptr)
        error = opencl_.cl.clSetKernelArg(kernel, i, sizeof each.sampler, &each.sampler);
      else
        error = opencl_.cl.clSetKernelArg(kernel, i, each.bytes.size(),
                                          each.kind == "local memory" ? nullptr : each.bytes.data());
      if (error != CL_SUCCESS) return error;
    }
    return CL_SUCCESS;
  }
  /// `wrapped` keeps the buffers of the arguments.
  std::vector<kiln::Argument> arguments(kiln::Device& device,
                                        std::vector<std::unique_ptr<kiln::Buffer>>& wrapped) const {
    std::vector<kiln::Argument> made;
    for (const Each& each : all_) {
      if (each.kind == "buffer") {
        wrapped.push_back(kiln::opencl::wrap(device, each.memory).value());
        made.emplace_back(wrapped.back());
      } else if (each.kind == "image") {
        made.push_back(kiln::opencl::image(each.memory));
      } else if (each.kind == "sampler") {
        made.push_back(kiln::opencl::sampler(each.sampler));
      } else if (each.kind == "local memory") {
        made.emplace_back(kiln::local(each.bytes.size()));
      } else {
        made.push_back(kiln::by_value(each.bytes));
      }
    }
    return made;
  }
  /// What all memory holds once the queue has ended.
  std::vector<std::vector<std::byte>> contents(cl_command_queue queue) const {
    std::vector<std::vector<std::byte>> read;
    for (const Each& each : all_) {
      if (each.memory == nullptr) continue;
      auto& bytes = read.emplace_back(each.kind == "buffer" ? buffer_bytes : image_bytes);
      const std::array<std::size_t, 3> origin = {0, 0, 0};
      const std::array<std::size_t, 3> region = {side, side, 1};
      if (each.kind == "buffer")
        opencl_.cl.clEnqueueReadBuffer(queue, each.memory, CL_TRUE, 0, bytes.size(), bytes.data(), 0, nullptr,
                                       nullptr);
      else
        opencl_.more.read_image(queue, each.memory, CL_TRUE, origin.data(), region.data(), 0, 0, bytes.data(), 0,
                                nullptr, nullptr);
    }
    return read;
  }

 private:
  struct Each {
    std::string kind;
    cl_mem memory = nullptr;
    cl_sampler sampler = nullptr;
    std::vector<std::byte> bytes = {};
  };
  const OpenCl& opencl_;
  std::vector<Each> all_;
};

using Contents = std::vector<std::vector<std::byte>>;

/// What a kernel writes when OpenCL alone launches it; nullopt after an error.
std::optional<Contents> launch_alone(const OpenCl& opencl, cl_program program, const std::string& name,
                                     const Given& given, std::string& why) {
  cl_int error = CL_SUCCESS;
  cl_kernel kernel = opencl.cl.clCreateKernel(program, name.c_str(), &error);
  cl_command_queue queue = opencl.cl.clCreateCommandQueue(opencl.context, opencl.device, 0, nullptr);
  if (error == CL_SUCCESS) error = given.set(kernel);
  if (error == CL_SUCCESS)
    error = opencl.cl.clEnqueueNDRangeKernel(queue, kernel, 2, nullptr, global.data(), group.data(), 0, nullptr,
                                             nullptr);
  if (error == CL_SUCCESS) error = opencl.cl.clFinish(queue);
  std::optional<Contents> result;
  if (error == CL_SUCCESS)
    result = given.contents(queue);
  else
    why = fmt::format("OpenCL refuses it ({})", error_name(error));
  if (kernel != nullptr) opencl.cl.clReleaseKernel(kernel);
  opencl.cl.clReleaseCommandQueue(queue);
  return result;
}

/// Whether launches by OpenCL alone, from as many threads as Kiln's, do not all write what is expected.
bool differs_alone(const OpenCl& opencl, cl_program alone, const std::string& name,
                   const std::vector<kiln::Parameter>& parameters, const Contents& expected) {
  std::atomic<bool> differs = false;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < thread_count; ++thread)
    threads.emplace_back([&] {
      for (int round = 0; round < 16 && !differs; ++round) {
        std::string why;
        const auto given = Given::make(opencl, parameters, why);
        if (given != nullptr && launch_alone(opencl, alone, name, *given, why) != expected) differs = true;
      }
    });
  for (std::thread& thread : threads) thread.join();
  return differs;
}

/// Compares the launches of a kernel. Returns the line to print.
std::string compare(const OpenCl& opencl, cl_program alone, kiln::Device& device, kiln::Program& program,
                    const std::string& name) {
  const auto skip = [&](const std::string& why) { return fmt::format("skipped {} {}", name, why); };
  kiln::Module* const module = program.module().entry(name);
  if (module == nullptr) return fmt::format("refused {} Kiln does not find it", name);
  const auto parameters = device.parameters(*module);
  if (!parameters) return fmt::format("refused {} {}", name, parameters.error().message());
  std::string why;
  std::array<std::optional<Contents>, 2> expected;
  for (auto& result : expected) {
    const auto given = Given::make(opencl, *parameters, why);
    if (given == nullptr) return skip(why);
    result = launch_alone(opencl, alone, name, *given, why);
    if (!result) return skip(why);
  }
  constexpr const char* unstable = "launches by OpenCL alone differ from each other";
  if (expected[0] != expected[1]) return skip(unstable);
  std::vector<std::string> problems(thread_count);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < thread_count; ++thread)
    threads.emplace_back([&, thread] {
      std::string& problem = problems[static_cast<std::size_t>(thread)];
      const auto given = Given::make(opencl, *parameters, problem);
      if (given == nullptr) return;
      std::vector<std::unique_ptr<kiln::Buffer>> wrapped;
      const auto launched = device.launch(
          *module,
          {.groups = {side / 8, side / 8}, .group_size = {8, 8}, .arguments = given->arguments(device, wrapped)});
      if (!launched) {
        problem = fmt::format("refused {} {}", name, launched.error().message());
        return;
      }
      cl_command_queue queue = opencl.cl.clCreateCommandQueue(opencl.context, opencl.device, 0, nullptr);
      if (given->contents(queue) != *expected[0]) problem = fmt::format("different {}", name);
      opencl.cl.clReleaseCommandQueue(queue);
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& problem : problems) {
    if (problem.empty()) continue;
    // Two equal launches do not prove that a kernel has no races.
    if (differs_alone(opencl, alone, name, *parameters, *expected[0])) return skip(unstable);
    return problem;
  }
  const auto untouched = Given::make(opencl, *parameters, why);
  cl_command_queue queue = opencl.cl.clCreateCommandQueue(opencl.context, opencl.device, 0, nullptr);
  const bool writes = untouched->contents(queue) != *expected[0];
  opencl.cl.clReleaseCommandQueue(queue);
  return writes ? fmt::format("equal {}", name) : skip("it writes nothing with these arguments");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return complain("usage: opencl_launches FILE OPTIONS [KERNEL...]");
  const std::vector<std::string> left_out(argv + 3, argv + argc);
  std::ifstream file(argv[1], std::ios::binary);
  if (!file) return complain(fmt::format("cannot read {}", argv[1]));
  const std::string source(std::istreambuf_iterator<char>(file), {});
  const auto library = kiln::opencl::Library::open();
  if (!library) return complain(library.error().message());
  const auto loaded = kiln::base::DynamicLibrary::open("libOpenCL.so.1").value();
  const MoreOpenCl more(loaded);
  const auto& cl = **library;
  cl_platform_id platform = nullptr;
  cl_device_id device = nullptr;
  cl_int error = cl.clGetPlatformIDs(1, &platform, nullptr);
  if (error == CL_SUCCESS) error = cl.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr);
  if (error != CL_SUCCESS) return complain(fmt::format("no OpenCL device: {}", error_name(error)));
  const OpenCl opencl{cl, more, cl.clCreateContext(nullptr, 1, &device, nullptr, nullptr, &error), device};
  if (opencl.context == nullptr) return complain(error_name(error));

  const char* text = source.data();
  const std::size_t size = source.size();
  cl_program alone = cl.clCreateProgramWithSource(opencl.context, 1, &text, &size, &error);
  if (error == CL_SUCCESS) error = cl.clBuildProgram(alone, 1, &device, argv[2], nullptr, nullptr);
  if (error != CL_SUCCESS) return complain(fmt::format("OpenCL alone: {}", error_name(error)));
  const auto adopted = kiln::opencl::adopt(opencl.context, device);
  if (!adopted) return complain(adopted.error().message());
  kiln::Cache cache(*adopted, {.disk = false});
  auto program = cache.get(kiln::Request({.name = std::string(argv[1]).substr(std::string(argv[1]).rfind('/') + 1),
                                          .source = source,
                                          .language = kiln::Language::opencl,
                                          .options = {argv[2]}}));
  if (!program) return complain(program.error().describe());
  bool all_equal = true;
  for (const std::string& name : program->module().entries()) {
    if (std::ranges::find(left_out, name) != left_out.end()) continue;
    std::cout << "running " << name << std::endl;
    const std::string line = compare(opencl, alone, **adopted, *program, name);
    std::cout << line << std::endl;
    all_equal = all_equal && (line.starts_with("equal") || line.starts_with("skipped"));
  }
  // Drivers end with the process.
  std::cout.flush();
  std::_Exit(all_equal ? 0 : 1);
}
