// What the headers of a toolkit cost in a second process: making the Request, which finds and checks every file
// that the source can include, and getting the program from disk. On the CUDA device if there is one, else for
// sm_90 with NVRTC alone, without loading into a driver.
//
// `plain`, `fp16`, `cub`: a source of 4 KB without headers, one with cuda_fp16.h, and one with CUB's BlockReduce.
// Every iteration is a process. `request_us` is the Request, `get_us` the get, `compile_ms` what the compiler took
// in the first process.

#include <chrono>
#include <iterator>
#include <sstream>
#include <stdexcept>

#include <fmt/format.h>

#include <kiln/cache.hpp>
#include <kiln/device.hpp>

#include "backend/offline.hpp"
#include "child.hpp"
#include "fixtures.hpp"
#include "report.hpp"

namespace kiln::bench {
namespace {

constexpr std::string_view child_flag = "--kiln_child";

Request::Fields fields_of(const std::string& name) {
  Request::Fields fields{.name = name, .language = Language::cuda};
  if (name == "fp16") {
    fields.source =
        "#include <cuda_fp16.h>\nextern \"C\" __global__ void scale(__half* x) { x[threadIdx.x] *= __half(2); }\n";
  } else if (name == "cub") {
    fields.source =
        "#include <cub/block/block_reduce.cuh>\n"
        "extern \"C\" __global__ void sum(const float* in, float* out) {\n"
        "  using Reduce = cub::BlockReduce<float, 128>;\n"
        "  __shared__ typename Reduce::TempStorage storage;\n"
        "  const float sum = Reduce(storage).Sum(in[blockIdx.x * 128 + threadIdx.x]);\n"
        "  if (threadIdx.x == 0) out[blockIdx.x] = sum;\n"
        "}\n";
  } else {
    for (int i = 0; i < 64; ++i)
      fields.source +=
          fmt::format("__device__ float step_{:02}(float x) {{ return x * {:02}.0f + 1.0f; }}\n", i, i);
    fields.source += "extern \"C\" __global__ void plain(float* x) { x[threadIdx.x] = step_00(x[threadIdx.x]); }\n";
  }
  return fields;
}

std::shared_ptr<Backend> open_backend() {
  if (auto device = open_device("cuda")) return *device;
  return backend::open_offline("sm_90").value();
}

double microseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

/// Writes the microseconds of the Request and of the get, and the milliseconds that the program took to compile.
void run_child_process(const std::string& name, const std::string& directory) {
  const auto backend = open_backend();
  Cache cache(backend, {.directory = directory});
  Request::Fields fields = fields_of(name);
  const auto start = std::chrono::steady_clock::now();
  const Request request(std::move(fields));
  const double made = microseconds_since(start);
  const auto begin = std::chrono::steady_clock::now();
  const Program program = cache.get(request).value();
  const double got = microseconds_since(begin);
  fmt::print("{} {} {} {}", made, got, std::chrono::duration<double, std::milli>(program.compile_time()).count(),
             program.origin() == Origin::compiled ? 1 : 0);
}

void second_process(benchmark::State& state, const std::vector<std::string>& command) {
  for (auto _ : state) {
    const auto output = run_child(command);
    std::istringstream words(output ? *output : "");
    const std::vector<double> figures{std::istream_iterator<double>(words), {}};
    if (figures.size() != 4 || figures[3] != 0) {
      state.SkipWithError(output ? "the program was compiled again" : output.error().message().c_str());
      break;
    }
    state.SetIterationTime((figures[0] + figures[1]) / 1e6);
    state.counters["request_us"] = figures[0];
    state.counters["get_us"] = figures[1];
    state.counters["both_ms"] = (figures[0] + figures[1]) / 1e3;
    state.counters["compile_ms"] = figures[2];
  }
}

void conclude(const Measured& measured, Figures& figures) {
  struct Case {
    std::string name;
    std::string text;
    std::optional<Target> target;
  };
  figures.section("A source in a second process");
  figures.add("plain.request_us", "Request of 4 KB without headers", measured.counter("plain", "request_us"), "us",
              at_most(10));
  for (const Case& one : {Case{"fp16", "cuda_fp16.h", at_most(2)}, Case{"cub", "CUB's BlockReduce", at_most(5)}}) {
    const auto both = measured.counter(one.name, "both_ms");
    figures.add(one.name + ".both_ms", "Request and get with " + one.text, both, "ms", one.target);
    figures.add(one.name + ".request_us", "  the Request", measured.counter(one.name, "request_us"), "us");
    figures.add(one.name + ".ratio", "  compiling / Request and get",
                ratio(measured.counter(one.name, "compile_ms"), both), "x");
  }
}

int run(int argc, char** argv) {
  if (argc == 4 && argv[1] == child_flag) {
    run_child_process(argv[2], argv[3]);
    return 0;
  }
  CommandLine command_line(argc, argv, 9, 0);
  const TemporaryFolder folder;
  // Records of included files are kept in the default directory.
  setenv("KILN_CACHE_DIR", (folder.path() / "default").c_str(), 1);
  for (const std::string name : {"plain", "fp16", "cub"}) {
    const std::vector<std::string> command = {this_program(), std::string(child_flag), name,
                                              (folder.path() / "kiln").string()};
    if (const auto first = run_child(command); !first) {
      fmt::print(stderr, "headers_bench leaves out {}: {}\n", name, first.error().message());
      continue;
    }
    add_case(name, [command](benchmark::State& state) { second_process(state, command); })
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond)
        ->Iterations(1);
  }
  return command_line.run(conclude);
}

}  // namespace
}  // namespace kiln::bench

int main(int argc, char** argv) { return kiln::bench::guarded(kiln::bench::run, argc, argv); }
