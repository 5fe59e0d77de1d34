// What Kiln adds to a launch: a kernel with eight arguments of different kinds, launched on the caller's own stream
// or queue by Kiln, and by the driver's own call with arguments that are prepared once.
//
// `cuda/kiln`, `cuda/driver`, `opencl/kiln`, `opencl/driver`: nanoseconds of the host for one launch. The device is
// waited for after each batch, outside of the measured time.

#include <array>
#include <cstdint>

#include <fmt/format.h>

#include <kiln/cache.hpp>
#include <kiln/cuda.hpp>
#include <kiln/device.hpp>
#include <kiln/opencl.hpp>

#include "backend/opencl/device.hpp"
#include "base/dynamic_library.hpp"
#include "fixtures.hpp"
#include "report.hpp"

namespace kiln::bench {
namespace {

constexpr int batch = 200;

struct Pair {
  std::int32_t first = 1;
  float second = 2;
};

/// int, float, buffer, double, struct, buffer, short, 64-bit int.
constexpr std::string_view arguments =
    "(int n, float a, GLOBAL const float* x, double d, struct Pair p, "
    "GLOBAL float* y, short s, LONG l)";

std::string source_of(Language language) {
  const bool opencl = language == Language::opencl;
  return fmt::format(
      "{}struct Pair {{ int first; float second; }};\n{}void mixed{} {{\n"
      "  if (n > 0) y[0] = x[0] + a + (float)d + p.first + p.second + s + (float)l;\n}}\n",
      opencl ? "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n#define GLOBAL __global\n#define LONG long\n"
             : "#define GLOBAL\n#define LONG long long\n",
      opencl ? "__kernel " : "extern \"C\" __global__ ", arguments);
}

/// Measures batches of launches.
template <class LaunchOne, class Wait>
void measure(benchmark::State& state, LaunchOne launch, Wait wait) {
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < batch; ++i) launch();
    state.SetIterationTime(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / batch);
    wait();
  }
}

/// The kernel and its memory.
struct Fixture {
  explicit Fixture(const std::shared_ptr<Device>& on)
      : device(on),
        cache(device, {.directory = folder.path() / "kiln"}),
        program(
            cache
                .get(Request(
                    {.name = "mixed", .source = source_of(on->info().language), .language = on->info().language}))
                .value()),
        x(upload(*device, std::vector<float>(64)).value()),
        y(upload(*device, std::vector<float>(64)).value()) {}

  void launch(Stream& stream) const { program["mixed"](stream, {1, 64}, n, a, x, d, p, y, s, l).value(); }

  std::shared_ptr<Device> device;
  TemporaryFolder folder;
  Cache cache;
  Program program;
  std::unique_ptr<Buffer> x;
  std::unique_ptr<Buffer> y;
  std::int32_t n = 1;
  float a = 2;
  double d = 3;
  Pair p;
  std::int16_t s = 4;
  std::int64_t l = 5;
};

void add_cuda(const std::shared_ptr<Device>& device) {
  const auto fixture = std::make_shared<Fixture>(device);
  const auto library = std::make_shared<base::DynamicLibrary>(base::DynamicLibrary::open("libcuda.so.1").value());
  // The default stream of a context is used from the context that is current.
  CUcontext context = nullptr;
  library->function<int(CUcontext*, int)>("cuDevicePrimaryCtxRetain")(&context, 0);
  library->function<int(CUcontext)>("cuCtxSetCurrent")(context);
  CUstream native = nullptr;
  library->function<int(CUstream*, unsigned)>("cuStreamCreate")(&native, 1);
  const auto wait = [library, native] { library->function<int(CUstream)>("cuStreamSynchronize")(native); };
  const auto stream = std::shared_ptr<Stream>(cuda::stream(*device, native).value());
  add_case("cuda/kiln", [=](benchmark::State& state) {
    measure(
        state, [&] { fixture->launch(*stream); }, wait);
  })->UseManualTime();
  add_case("cuda/driver", [=](benchmark::State& state) {
    auto* launch = library->function<int(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                         unsigned, CUstream, void**, void**)>("cuLaunchKernel");
    Fixture& f = *fixture;
    std::uintptr_t x = cuda::memory(*f.x);
    std::uintptr_t y = cuda::memory(*f.y);
    std::array<void*, 8> list = {&f.n, &f.a, &x, &f.d, &f.p, &y, &f.s, &f.l};
    CUfunction function = f.program.entry("mixed").value().as<cuda::Module>().function();
    measure(
        state, [&] { launch(function, 1, 1, 1, 64, 1, 1, 0, native, list.data(), nullptr); }, wait);
  })->UseManualTime();
}

void add_opencl(const std::shared_ptr<Device>& device) {
  const auto fixture = std::make_shared<Fixture>(device);
  const auto& context = dynamic_cast<opencl::ClDevice&>(*device).context();
  const opencl::Library& cl = context->cl();
  cl_command_queue queue = cl.clCreateCommandQueue(context->context(), context->device(), 0, nullptr);
  const auto wait = [&cl, queue] { cl.clFinish(queue); };
  const auto stream = std::shared_ptr<Stream>(opencl::stream(*device, queue).value());
  add_case("opencl/kiln", [=](benchmark::State& state) {
    measure(
        state, [&] { fixture->launch(*stream); }, wait);
  })->UseManualTime();
  add_case("opencl/driver", [=, &cl](benchmark::State& state) {
    const Fixture& f = *fixture;
    cl_program program = f.program.as<opencl::Module>().program();
    cl_kernel kernel = cl.clCreateKernel(program, "mixed", nullptr);
    cl_mem x = opencl::memory(*f.x);
    cl_mem y = opencl::memory(*f.y);
    const std::size_t size = 64;
    const auto launch = [&] {
      // A kernel object keeps its arguments, but applications set them for each launch.
      cl.clSetKernelArg(kernel, 0, sizeof f.n, &f.n);
      cl.clSetKernelArg(kernel, 1, sizeof f.a, &f.a);
      cl.clSetKernelArg(kernel, 2, sizeof x, &x);
      cl.clSetKernelArg(kernel, 3, sizeof f.d, &f.d);
      cl.clSetKernelArg(kernel, 4, sizeof f.p, &f.p);
      cl.clSetKernelArg(kernel, 5, sizeof y, &y);
      cl.clSetKernelArg(kernel, 6, sizeof f.s, &f.s);
      cl.clSetKernelArg(kernel, 7, sizeof f.l, &f.l);
      cl.clEnqueueNDRangeKernel(queue, kernel, 1, nullptr, &size, &size, 0, nullptr, nullptr);
    };
    measure(state, launch, wait);
    cl.clReleaseKernel(kernel);
  })->UseManualTime();
}

void conclude(const Measured& measured, Figures& figures) {
  figures.section("A launch with eight arguments on the caller's stream");
  for (const std::string api : {"cuda", "opencl"}) {
    const auto ns = [&](const char* way) { return measured.real_ns(api + "/" + way); };
    figures.add(api + ".kiln_ns", api + ", Kiln", ns("kiln"), "ns");
    figures.add(api + ".driver_ns", api + ", the driver's own call", ns("driver"), "ns");
    figures.add(api + ".more_ns", api + ", Kiln - driver", difference(ns("kiln"), ns("driver")), "ns",
                api == "cuda" ? std::optional(at_most(1000)) : std::nullopt);
  }
}

int run(int argc, char** argv) {
  CommandLine command_line(argc, argv, 9, 0);
  for (const std::string api : {"cuda", "opencl"}) {
    const auto device = open_device(api);
    if (!device)
      fmt::print(stderr, "launch_bench leaves out {}: {}\n", api, device.error().message());
    else if (api == "cuda")
      add_cuda(*device);
    else
      add_opencl(*device);
  }
  return command_line.run(conclude);
}

}  // namespace
}  // namespace kiln::bench

int main(int argc, char** argv) { return kiln::bench::guarded(kiln::bench::run, argc, argv); }
