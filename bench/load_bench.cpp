// What it costs to get a program that is not in memory but was compiled before, until it can be launched, with
// every API there is here. The same program is loaded again and again, of which drivers make the most; warm_bench
// has what a new process pays.
//
// `disk`: in turn, so that both meet the same machine, with the median of each as a counter,
//   `kiln_us`: Cache::get of a program that was evicted from memory, so that the disk level answers, and
//   `bare_us`: reading a file with the driver's binary and nothing else, and the driver's calls that load it:
//   glProgramBinary; clCreateProgramWithBinary, clBuildProgram and clCreateKernel; cuModuleLoadData and
//   cuModuleGetFunction; vkCreatePipelineCache, vkCreateShaderModule and vkCreateComputePipelines.
// `driver_cache`: on OpenGL, compiling and linking from source where the driver has kept the result in a shader
// cache of its own, which is what a second start costs without Kiln.
//
// `Time` is wall time for one program, the mean of many. Dropping the program again is not part of it.

#include <chrono>
#include <fstream>

#include <epoxy/gl.h>
#include <fmt/format.h>

#include <kiln/cache.hpp>
#include <kiln/opengl.hpp>

#include "backend/source_text.hpp"
#include "bare.hpp"
#include "fixtures.hpp"
#include "programs.hpp"
#include "report.hpp"

namespace kiln::bench {
namespace {

using Clock = IterationTimes::Clock;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

constexpr std::size_t program_count = 8;

/// An API with a device of this machine, and a cache for it.
struct Api {
  std::string name;
  /// The driver's calls of `bare`, for people.
  std::string calls;
  std::shared_ptr<Device> device;
  std::unique_ptr<Cache> cache;
  /// OpenGL's context, in which all of this happens.
  std::optional<opengl::Current> current = {};
};

/// A program that Kiln has on disk, whose binary also lies in a file of its own.
struct Subject {
  Api* api;
  std::string name;
  Request request;
  std::unique_ptr<Bare> bare;
  std::filesystem::path file;
  std::chrono::nanoseconds compile_time;

  std::string label() const { return fmt::format("{}/{}", api->name, name); }
};

std::optional<Api> open_api(const std::string& name, const std::string& calls,
                            const std::filesystem::path& folder) {
  auto device = open_device(name);
  if (!device || (*device)->identity().formats.empty()) {
    fmt::print(stderr, "load_bench leaves out {}: {}\n", name,
               device ? "its driver gives out no binaries" : device.error().message());
    return {};
  }
  benchmark::AddCustomContext(name, (*device)->identity().device);
  Api api{name, calls, *device, std::make_unique<Cache>(*device, CacheOptions{.directory = folder / "kiln"})};
  if (name == "opengl") api.current.emplace(opengl::make_current(**device).value());
  return api;
}

Subject prepare(Api& api, const std::filesystem::path& folder, const Kernel& kernel) {
  Request request = kernel.request(*api.device).value();
  const auto compile_time = api.cache->get(request).value().compile_time();
  Compiled compiled = api.device->compile(request).value();
  auto bare = Bare::make(api.name, std::move(compiled.module), compiled.binary.value());
  std::filesystem::path file = folder / (api.name + "." + kernel.name);
  const auto image = bare->image();
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(image.data()), static_cast<std::streamsize>(image.size()));
  return {&api, kernel.name, std::move(request), std::move(bare), std::move(file), compile_time};
}

void load(benchmark::State& state, const Subject& subject) {
  Cache& cache = *subject.api->cache;
  std::vector<double> kiln;
  std::vector<double> bare;
  for (auto _ : state) {
    cache.evict(subject.request);
    auto start = Clock::now();
    const auto program = cache.get(subject.request);
    if (program) prepare_launch(program->module());
    kiln.push_back(microseconds_since(start));
    if (!program || program->origin() != Origin::disk) {
      state.SkipWithError("the program did not come from disk");
      break;
    }
    start = Clock::now();
    const bool loaded = subject.bare->load(read_whole(subject.file));
    bare.push_back(microseconds_since(start));
    if (!loaded) {
      state.SkipWithError("the driver refused its own binary");
      break;
    }
    subject.bare->unload();
    state.SetIterationTime(kiln.back() / 1e6);
  }
  state.counters["kiln_us"] = median(std::move(kiln));
  state.counters["bare_us"] = median(std::move(bare));
}

void load_from_driver_cache(benchmark::State& state, const Subject& subject) {
  const std::string source = backend::with_defines(subject.request);
  IterationTimes times(state);
  for (auto _ : state) {
    const auto start = Clock::now();
    const GLuint shader = glCreateShader(GL_COMPUTE_SHADER);
    const char* text = source.c_str();
    glShaderSource(shader, 1, &text, nullptr);
    glCompileShader(shader);
    const GLuint id = glCreateProgram();
    glAttachShader(id, shader);
    glLinkProgram(id);
    GLint linked = 0;
    glGetProgramiv(id, GL_LINK_STATUS, &linked);
    times.add_since(start);
    glDeleteShader(shader);
    glDeleteProgram(id);
    if (linked == 0) {
      state.SkipWithError("the program does not link");
      break;
    }
  }
}

void conclude(const Api& api, const std::vector<Subject>& subjects, const Measured& measured, Figures& figures) {
  std::vector<double> over_bare;
  std::vector<double> under_driver;
  std::vector<double> under_compiling;
  figures.section(fmt::format("{}: Kiln's disk hit / (reading the file + {}), wall time", api.name, api.calls));
  for (const Subject& subject : subjects) {
    if (subject.api != &api) continue;
    const std::string disk = fmt::format("disk/{}", subject.label());
    const auto kiln = measured.counter(disk, "kiln_us");
    const auto bare = measured.counter(disk, "bare_us");
    const auto to_bare = ratio(kiln, bare);
    figures.add(fmt::format("{}.{}.ratio", api.name, subject.name),
                kiln && bare ? fmt::format("{}: {:.1f} us / {:.1f} us", subject.name, *kiln, *bare) : subject.name,
                to_bare, "x");
    if (to_bare) over_bare.push_back(*to_bare);
    if (const auto to_driver =
            ratio(measured.counter(fmt::format("driver_cache/{}", subject.label()), "median_us"), kiln))
      under_driver.push_back(*to_driver);
    if (kiln) under_compiling.push_back(static_cast<double>(subject.compile_time.count()) / 1000 / *kiln);
  }
  const auto add = [&](std::string_view name, std::string text, const std::vector<double>& values,
                       std::optional<Target> target = {}) {
    if (!values.empty())
      figures.add(fmt::format("{}.median.{}", api.name, name), std::move(text), median(values), "x", target);
  };
  add("ratio", "median of the programs", over_bare, at_most(1.5));
  add("driver_cache_ratio", "without Kiln: the driver's own shader cache / kiln, median", under_driver);
  add("compile_ratio", "without Kiln: compiling it once / kiln, median", under_compiling);
}

int run(int argc, char** argv) {
  CommandLine command_line(argc, argv, 9, 0.02);
  const TemporaryFolder folder;
  // This process starts with an empty cache of the driver's, and fills it.
  use_driver_cache(folder.path() / "driver");

  std::vector<std::unique_ptr<Api>> apis;
  const auto open = [&](const std::string& name, const std::string& calls) {
    if (auto api = open_api(name, calls, folder.path())) apis.push_back(std::make_unique<Api>(std::move(*api)));
  };
  open("opengl", "glProgramBinary");
  open("opencl", "clCreateProgramWithBinary, clBuildProgram, clCreateKernel");
  open("vulkan", "vkCreatePipelineCache, vkCreateShaderModule, vkCreateComputePipelines");
  open("cuda", "cuModuleLoadData, cuModuleGetFunction");
  open("hip", "hipModuleLoadData, hipModuleGetFunction");
  std::vector<Subject> subjects;
  for (const auto& api : apis) {
    for (const Kernel& kernel : programs(program_count)) subjects.push_back(prepare(*api, folder.path(), kernel));
    api->cache->flush();
  }

  for (const Subject& subject : subjects) {
    const auto add = [&](std::string_view name, auto function) {
      add_case(fmt::format("{}/{}", name, subject.label()), function)
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
    };
    add("disk", [&](benchmark::State& state) { load(state, subject); });
    if (subject.api->name == "opengl")
      add("driver_cache", [&](benchmark::State& state) { load_from_driver_cache(state, subject); });
  }
  return command_line.run([&](const Measured& measured, Figures& figures) {
    for (const auto& api : apis) conclude(*api, subjects, measured, figures);
  });
}

}  // namespace
}  // namespace kiln::bench

int main(int argc, char** argv) { return kiln::bench::guarded(kiln::bench::run, argc, argv); }
