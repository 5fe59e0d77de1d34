// What a second process pays for 20 small programs that an earlier one compiled, on every API there is here: from
// asking Kiln until the program can be launched, a program. The device is open by then, as it is for others.
//
// `kiln/API`: Cache::get from disk; on CUDA and HIP the function is looked up too.
// `cupy`: the same CUDA sources as cupy.RawKernel with its on-disk cache, where python3 has CuPy.
//
// Every iteration is a process. `mean_us` is what the programs took together over their number, `median_us` the
// median program, `first_us` the first, which also pays for what the process had not used before.

#include <chrono>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include <kiln/cache.hpp>
#include <kiln/cuda.hpp>
#include <kiln/hip.hpp>

#include "child.hpp"
#include "fixtures.hpp"
#include "programs.hpp"
#include "report.hpp"

namespace kiln::bench {
namespace {

constexpr std::size_t program_count = 20;
constexpr std::string_view child_flag = "--kiln_warm";
constexpr std::array apis = {"cuda", "hip", "vulkan", "opengl", "opencl"};

/// Asks CuPy for the programs in the folder of its first argument: writes what each took, in microseconds.
constexpr std::string_view cupy_script = R"(
import pathlib, sys, time
import cupy
cupy.zeros(1).sum().get()
for file in sorted(pathlib.Path(sys.argv[1]).glob('*.cu')):
    code = file.read_text()
    start = time.perf_counter()
    cupy.RawKernel(code, file.stem, options=('--std=c++17',)).compile()
    print((time.perf_counter() - start) * 1e6)
)";

/// Gets the programs: what each took, in microseconds.
std::string get_all(const std::string& api, const std::filesystem::path& directory) {
  const auto device = open_device(api).value();
  std::vector<Request> requests;
  for (const Kernel& kernel : small_programs(program_count)) requests.push_back(kernel.request(*device).value());
  Cache cache(device, {.directory = directory});
  std::string times;
  for (const Request& request : requests) {
    const auto start = std::chrono::steady_clock::now();
    const Program program = cache.get(request).value();
    if (auto* cuda = dynamic_cast<cuda::Module*>(&program.module())) (void)cuda->function();
    if (auto* hip = dynamic_cast<hip::Module*>(&program.module())) (void)hip->function();
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
    times += fmt::format("{}\n", time.count());
  }
  return times;
}

void second_process(benchmark::State& state, const std::vector<std::string>& command) {
  for (auto _ : state) {
    const auto output = run_child(command);
    if (!output) {
      state.SkipWithError(output.error().message().c_str());
      break;
    }
    std::istringstream lines(*output);
    std::vector<double> times;
    double sum = 0;
    for (double time = 0; lines >> time; sum += time) times.push_back(time);
    if (times.size() != program_count) {
      state.SkipWithError("the process did not get all programs");
      break;
    }
    state.SetIterationTime(sum / 1e6 / program_count);
    state.counters["mean_us"] = sum / program_count;
    state.counters["first_us"] = times.front();
    state.counters["median_us"] = median(std::move(times));
  }
}

void conclude(const Measured& measured, Figures& figures) {
  const auto milliseconds = [&](const std::string& name, std::string_view counter) {
    const auto microseconds = measured.counter(name, counter);
    return microseconds ? std::optional(*microseconds / 1000) : std::nullopt;
  };
  const auto add = [&](const std::string& name, std::optional<Target> target = {}) {
    figures.add(name + ".mean_ms", name, milliseconds(name, "mean_us"), "ms", target);
    figures.add(name + ".median_ms", name + ", the median program", milliseconds(name, "median_us"), "ms");
    figures.add(name + ".first_ms", name + ", the first program", milliseconds(name, "first_us"), "ms");
  };
  figures.section(fmt::format("{} small programs in a second process, a program", program_count));
  for (const std::string api : apis)
    if (measured.counter("kiln/" + api, "mean_us"))
      add("kiln/" + api, api == "cuda" ? std::optional(at_most(0.10)) : std::nullopt);
  add("cupy");
  figures.add("cupy_ratio", "cupy / kiln on CUDA",
              ratio(measured.counter("cupy", "mean_us"), measured.counter("kiln/cuda", "mean_us")), "x");
}

int run(int argc, char** argv) {
  if (argc == 4 && argv[1] == child_flag) {
    fmt::print("{}", get_all(argv[2], argv[3]));
    return 0;
  }
  CommandLine command_line(argc, argv, 9, 0);
  const TemporaryFolder folder;
  const auto add = [](const std::string& name, std::vector<std::string> command) {
    // The first process compiles, and is not counted; where it cannot, it says why.
    if (const auto cold = run_child(command); !cold) {
      fmt::print(stderr, "warm_bench leaves out {}: {}\n", name, cold.error().message());
      return;
    }
    benchmark::RegisterBenchmark(name.c_str(), second_process, std::move(command))
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond)
        ->Iterations(1);
  };
  const auto directory = (folder.path() / "kiln").string();
  for (const char* api : apis)
    add(fmt::format("kiln/{}", api), {this_program(), std::string(child_flag), api, directory});

  for (const Kernel& kernel : small_programs(program_count))
    std::ofstream(folder.path() / (kernel.name + ".cu")) << kernel.emit(Language::cuda).value();
  setenv("CUPY_CACHE_DIR", (folder.path() / "cupy").c_str(), 1);
  add("cupy", {"python3", "-c", std::string(cupy_script), folder.path().string()});
  return command_line.run(conclude);
}

}  // namespace
}  // namespace kiln::bench

int main(int argc, char** argv) { return kiln::bench::guarded(kiln::bench::run, argc, argv); }
