// What a second process pays for 20 small programs that an earlier one compiled, on every API there is here: from
// asking until a program can be launched, a program. The device is open by then.
//
// `kiln/API`: Cache::get, from disk.
// `bare/API`: reading a file with the driver's binary and the driver's own calls, as in load_bench. The driver has
// loaded one program before, so that what its first costs is not counted.
// `cupy`: the same CUDA sources as cupy.RawKernel with its on-disk cache, where python3 has CuPy.
//
// Every iteration is a process. `mean_us` is what the programs took together over their number, `median_us` the
// median program, `first_us` the first, which with Kiln also pays for what the process had not used before.

#include <chrono>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include <fmt/format.h>

#include <kiln/cache.hpp>
#include <kiln/opengl.hpp>

#include "backend/source_text.hpp"
#include "bare.hpp"
#include "child.hpp"
#include "fixtures.hpp"
#include "programs.hpp"
#include "report.hpp"
#include "store/disk_store.hpp"

namespace kiln::bench {
namespace {

constexpr std::size_t program_count = 20;
constexpr std::string_view kiln_flag = "--kiln_get_all";
constexpr std::string_view bare_flag = "--kiln_load_all";
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

/// Calls `load` for each of `things`: what each took, in microseconds.
std::string timed(const auto& things, const auto& load) {
  std::string times;
  for (const auto& thing : things) {
    const auto start = std::chrono::steady_clock::now();
    [[maybe_unused]] const auto loaded = load(thing);
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
    times += fmt::format("{}\n", time.count());
  }
  return times;
}

/// OpenGL's context is current as long as this lives, as it is in programs that draw.
std::optional<opengl::Current> current_of(Device& device) {
  if (device.identity().api != "opengl") return {};
  return opengl::make_current(device).value();
}

std::string get_all(const std::string& api, const std::filesystem::path& directory) {
  const auto device = open_device(api).value();
  const auto current = current_of(*device);
  std::vector<Request> requests;
  for (const Kernel& kernel : small_programs(program_count)) requests.push_back(kernel.request(*device).value());
  Cache cache(device, {.directory = directory});
  return timed(requests, [&](const Request& request) {
    Program program = cache.get(request).value();
    prepare_launch(program.module());
    return program;
  });
}

std::string load_all(const std::string& api, const std::filesystem::path& directory) {
  const auto device = open_device(api).value();
  const auto current = current_of(*device);
  auto kernels = small_programs(program_count + 1);
  const std::shared_ptr<Module> other = device->compile(kernels.back().request(*device).value()).value().module;
  prepare_launch(*other);
  kernels.pop_back();
  const auto store = store::DiskStore::open(directory, device->identity(), Log()).value();
  const auto files = directory.parent_path();
  std::vector<std::pair<std::filesystem::path, std::unique_ptr<Bare>>> subjects;
  for (const Kernel& kernel : kernels) {
    const auto entry = store->get(kernel.request(*device).value().key()).value().value();
    auto bare = Bare::make(api, other, entry.binary);
    const auto file = files / fmt::format("{}.{}", api, kernel.name);
    const auto image = bare->image();
    std::ofstream(file, std::ios::binary)
        .write(reinterpret_cast<const char*>(image.data()), static_cast<std::streamsize>(image.size()));
    subjects.emplace_back(file, std::move(bare));
  }
  return timed(subjects, [](const auto& subject) {
    if (!subject.second->load(read_whole(subject.first))) throw std::runtime_error("the driver refused a binary");
    return true;
  });
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
    figures.add(name + ".median_ms", "  the median program", milliseconds(name, "median_us"), "ms");
    figures.add(name + ".first_ms", "  the first program", milliseconds(name, "first_us"), "ms");
  };
  const auto median_ratio = [&](const std::string& a, const std::string& b) {
    return ratio(measured.counter(a, "median_us"), measured.counter(b, "median_us"));
  };
  for (const std::string api : apis) {
    if (!measured.counter("kiln/" + api, "mean_us")) continue;
    figures.section(fmt::format("{}: {} small programs in a second process, a program", api, program_count));
    add("kiln/" + api, api == "cuda" ? std::optional(at_most(0.10)) : std::nullopt);
    add("bare/" + api);
    figures.add(api + ".ratio", "kiln / bare, the median program", median_ratio("kiln/" + api, "bare/" + api), "x",
                at_most(1.5));
  }
  figures.section("CuPy's cache on disk, the same programs");
  add("cupy");
  figures.add("cupy_ratio", "cupy / kiln on CUDA",
              ratio(measured.counter("cupy", "mean_us"), measured.counter("kiln/cuda", "mean_us")), "x");
}

int run(int argc, char** argv) {
  if (argc == 4 && (argv[1] == kiln_flag || argv[1] == bare_flag)) {
    fmt::print("{}", (argv[1] == kiln_flag ? get_all : load_all)(argv[2], argv[3]));
    return 0;
  }
  CommandLine command_line(argc, argv, 9, 0);
  const TemporaryFolder folder;
  const auto add = [](const std::string& name, std::vector<std::string> command) {
    // The first process compiles, and is not counted; where it cannot, it says why.
    if (const auto cold = run_child(command); !cold) {
      fmt::print(stderr, "warm_bench leaves out {}: {}\n", name, cold.error().message());
      return false;
    }
    benchmark::RegisterBenchmark(name.c_str(), second_process, std::move(command))
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond)
        ->Iterations(1);
    return true;
  };
  const auto directory = (folder.path() / "kiln").string();
  for (const char* api : apis)
    if (add(fmt::format("kiln/{}", api), {this_program(), std::string(kiln_flag), api, directory}))
      add(fmt::format("bare/{}", api), {this_program(), std::string(bare_flag), api, directory});

  for (const Kernel& kernel : small_programs(program_count)) {
    const Request request = kernel.request(Language::cuda).value();
    std::ofstream(folder.path() / (request.entry() + ".cu")) << backend::with_defines(request);
  }
  setenv("CUPY_CACHE_DIR", (folder.path() / "cupy").c_str(), 1);
  add("cupy", {"python3", "-c", std::string(cupy_script), folder.path().string()});
  return command_line.run(conclude);
}

}  // namespace
}  // namespace kiln::bench

int main(int argc, char** argv) { return kiln::bench::guarded(kiln::bench::run, argc, argv); }
