// What a second process pays for 20 small programs that an earlier one compiled, on every API there is here: from
// asking until a program can be launched, a program. The device is open by then.
//
// `API`: one program by Cache::get, from disk, one from a bundle, one from a bundle without compression, and one by
// reading a file with the driver's binary and the driver's own calls, as in load_bench, in turn, so that all meet
// the same process: `kiln_…`, `bundle_…`, `plain_…` and `bare_…`. `cupy`: the CUDA sources as cupy.RawKernel with
// its on-disk cache, where python3 has CuPy.
//
// Every iteration is a process. `mean_us` is what the programs took together over their number, `median_us` the
// median program, `first_us` the first. Kiln's first is the first of all, and pays for what the process had not
// used before.

#include <chrono>
#include <fstream>
#include <iterator>
#include <numeric>
#include <sstream>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <kiln/cache.hpp>
#include <kiln/opengl.hpp>

#include "backend/source_text.hpp"
#include "bare.hpp"
#include "child.hpp"
#include "fixtures.hpp"
#include "programs.hpp"
#include "report.hpp"
#include "store/bundle.hpp"
#include "store/disk_store.hpp"

namespace kiln::bench {
namespace {

constexpr std::size_t program_count = 20;
constexpr std::string_view compile_flag = "--kiln_compile_all";
constexpr std::string_view load_flag = "--kiln_load_all";
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

double microseconds(const auto& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

/// OpenGL's context is current as long as this lives, as it is in programs that draw.
std::optional<opengl::Current> current_of(Device& device) {
  if (device.identity().api != "opengl") return {};
  return opengl::make_current(device).value();
}

std::filesystem::path bundle_in(const std::filesystem::path& directory, const std::string& api,
                                store::Packing packing) {
  return directory.parent_path() / (api + (packing == store::Packing::plain ? "_plain.kiln" : ".kiln"));
}

/// The first process: compiles all there are, and writes bundles with the same entries.
void compile_all(const std::string& api, const std::filesystem::path& directory) {
  const auto device = open_device(api).value();
  {
    Cache cache(device, {.directory = directory});
    for (const Kernel& kernel : small_programs(4 * program_count + 1))
      cache.get(kernel.request(*device).value()).value();
  }
  const std::shared_ptr<store::DiskStore> disk =
      store::DiskStore::open(directory, device->identity(), Log()).value();
  for (const store::Packing packing : {store::Packing::compressed, store::Packing::plain}) {
    store::BundleContents bundle{.identities = {device->identity()}};
    for (const store::StoredItem& item : disk->list().value())
      bundle.entries.push_back({.key = item.key.digest, .read = [disk, packing, key = item.key, device]() {
                                  const auto sealed = disk->get({device->identity().digest(), key}).value().value();
                                  const auto opened = store::open_entry(sealed).value();
                                  return Result(store::seal_entry(opened.label, opened.entry, packing));
                                }});
    store::write_bundle(bundle_in(directory, api, packing), bundle).value();
  }
}

/// The second one: writes what each program took, in microseconds: first those from disk, then those from the
/// bundles, then all others.
void load_all(const std::string& api, const std::filesystem::path& directory) {
  const auto device = open_device(api).value();
  const auto current = current_of(*device);
  std::vector<Request> requests;
  for (const Kernel& kernel : small_programs(4 * program_count + 1))
    requests.push_back(kernel.request(*device).value());
  const auto store = store::DiskStore::open(directory, device->identity(), Log()).value();
  const auto binary = [&](std::size_t i) { return stored_binary(*store, device->identity(), requests[i].key()); };
  std::vector<std::unique_ptr<Bare>> bare;
  std::vector<std::filesystem::path> files;
  const std::shared_ptr<Module> other = device->load(binary(4 * program_count)).value();
  for (std::size_t i = 3 * program_count; i < 4 * program_count; ++i) {
    bare.push_back(Bare::make(api, other, binary(i)));
    files.push_back(directory.parent_path() / fmt::format("{}.{}", api, i));
    const auto image = bare.back()->image();
    std::ofstream(files.back(), std::ios::binary)
        .write(reinterpret_cast<const char*>(image.data()), static_cast<std::streamsize>(image.size()));
  }
  Cache cache(device, {.directory = directory});
  const auto bundled = [&](store::Packing packing) {
    return std::make_unique<Cache>(
        device, CacheOptions{.disk = false, .bundles = {{Bundle{bundle_in(directory, api, packing)}}}});
  };
  const auto compressed = bundled(store::Packing::compressed);
  const auto plain = bundled(store::Packing::plain);
  std::vector<double> kilns;
  std::vector<double> from_bundle;
  std::vector<double> from_plain;
  std::vector<double> others;
  for (std::size_t i = 0; i < program_count; ++i) {
    kilns.push_back(microseconds([&] { prepare_launch(cache.get(requests[i]).value().module()); }));
    const auto time = [&](Cache& from, std::size_t program) {
      return microseconds([&] { prepare_launch(from.get(requests[program]).value().module()); });
    };
    from_bundle.push_back(time(*compressed, program_count + i));
    from_plain.push_back(time(*plain, 2 * program_count + i));
    others.push_back(microseconds([&] {
      if (!bare[i]->load(read_whole(files[i]))) throw std::runtime_error("the driver refused a binary");
    }));
  }
  if (cache.stats().disk_hits != program_count || compressed->stats().bundle_hits != program_count ||
      plain->stats().bundle_hits != program_count)
    throw std::runtime_error("not all programs came from disk or from the bundle");
  fmt::print("{} {} {} {}", fmt::join(kilns, " "), fmt::join(from_bundle, " "), fmt::join(from_plain, " "),
             fmt::join(others, " "));
}

/// Adds counters for the times of some programs.
void count(benchmark::State& state, const std::string& prefix, std::vector<double> times) {
  state.counters[prefix + "mean_us"] =
      std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
  state.counters[prefix + "first_us"] = times.front();
  state.counters[prefix + "median_us"] = median(std::move(times));
}

/// Runs the command, which writes the times of 20 programs for each of `prefixes`.
void second_process(benchmark::State& state, const std::vector<std::string>& command,
                    const std::vector<std::string>& prefixes) {
  for (auto _ : state) {
    const auto output = run_child(command);
    if (!output) {
      state.SkipWithError(output.error().message().c_str());
      break;
    }
    std::istringstream words(*output);
    const std::vector<double> times{std::istream_iterator<double>(words), {}};
    if (times.size() != prefixes.size() * program_count) {
      state.SkipWithError("the process did not load all programs");
      break;
    }
    for (std::size_t i = 0; i < prefixes.size(); ++i) {
      const auto begin = times.begin() + static_cast<std::ptrdiff_t>(i * program_count);
      count(state, prefixes[i], std::vector(begin, begin + program_count));
    }
    state.SetIterationTime(std::accumulate(times.begin(), times.end(), 0.0) / 1e6);
  }
}

void conclude(const Measured& measured, Figures& figures) {
  const auto counter = [&](const std::string& name, const std::string& what) {
    return measured.counter(name, what);
  };
  const auto add = [&](const std::string& name, const std::string& prefix, const std::string& text,
                       std::optional<Target> target = {}) {
    const auto milliseconds = [&](const std::string& what) {
      const auto microseconds = counter(name, prefix + what);
      return microseconds ? std::optional(*microseconds / 1000) : std::nullopt;
    };
    figures.add(name + "." + prefix + "mean_ms", text, milliseconds("mean_us"), "ms", target);
    figures.add(name + "." + prefix + "median_ms", "  the median program", milliseconds("median_us"), "ms");
    figures.add(name + "." + prefix + "first_ms", "  the first program", milliseconds("first_us"), "ms");
  };
  for (const std::string api : apis) {
    if (!counter(api, "kiln_mean_us")) continue;
    figures.section(fmt::format("{}: {} small programs in a second process, a program", api, program_count));
    add(api, "kiln_", "Kiln", api == "cuda" ? std::optional(at_most(0.10)) : std::nullopt);
    add(api, "bundle_", "Kiln, from a bundle");
    add(api, "plain_", "Kiln, from a bundle without compression");
    add(api, "bare_", "the driver's own calls");
    figures.add(api + ".ratio", "Kiln / the driver's own calls, the median program",
                ratio(counter(api, "kiln_median_us"), counter(api, "bare_median_us")), "x", at_most(1.5));
    figures.add(api + ".bundle_ratio", "Kiln from a bundle / the driver's own calls, the median program",
                ratio(counter(api, "bundle_median_us"), counter(api, "bare_median_us")), "x", at_most(1.15));
    figures.add(api + ".plain_ratio", "the same without compression",
                ratio(counter(api, "plain_median_us"), counter(api, "bare_median_us")), "x", at_most(1.15));
    figures.add(api + ".bundle_to_disk", "Kiln from a bundle / Kiln from disk, the median program",
                ratio(counter(api, "bundle_median_us"), counter(api, "kiln_median_us")), "x", at_most(1));
  }
  figures.section("CuPy's cache on disk");
  add("cupy", "", "CuPy");
  figures.add("cupy.median_ratio", "CuPy / Kiln on CUDA, the median program",
              ratio(counter("cupy", "median_us"), counter("cuda", "kiln_median_us")), "x");
}

int run(int argc, char** argv) {
  if (argc == 4 && (argv[1] == compile_flag || argv[1] == load_flag)) {
    (argv[1] == compile_flag ? compile_all : load_all)(argv[2], argv[3]);
    return 0;
  }
  CommandLine command_line(argc, argv, 9, 0);
  const TemporaryFolder folder;
  const auto add = [](const std::string& name, const std::vector<std::string>& first,
                      const std::vector<std::string>& second, const std::vector<std::string>& prefixes) {
    if (const auto cold = run_child(first); !cold) {
      fmt::print(stderr, "warm_bench leaves out {}: {}\n", name, cold.error().message());
      return;
    }
    add_case(name, [second, prefixes](benchmark::State& state) { second_process(state, second, prefixes); })
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond)
        ->Iterations(1);
  };
  const auto directory = (folder.path() / "kiln").string();
  for (const std::string api : apis)
    add(api, {this_program(), std::string(compile_flag), api, directory},
        {this_program(), std::string(load_flag), api, directory}, {"kiln_", "bundle_", "plain_", "bare_"});

  for (const Kernel& kernel : small_programs(program_count)) {
    const Request request = kernel.request(Language::cuda).value();
    std::ofstream(folder.path() / (request.entries().at(0) + ".cu")) << backend::with_defines(request);
  }
  setenv("CUPY_CACHE_DIR", (folder.path() / "cupy").c_str(), 1);
  const std::vector<std::string> cupy = {"python3", "-c", std::string(cupy_script), folder.path().string()};
  add("cupy", cupy, cupy, {""});
  return command_line.run(conclude);
}

}  // namespace
}  // namespace kiln::bench

int main(int argc, char** argv) { return kiln::bench::guarded(kiln::bench::run, argc, argv); }
