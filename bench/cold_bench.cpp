// How long processes that start together take to compile 48 small CUDA kernels, from an empty cache, until each of
// them has all. Devices and NVRTC are open by then. Without a GPU, NVRTC compiles for sm_90 and nothing is loaded.
//
// `nvrtc/N`: N processes of one thread each, without Kiln, each of which compiles its share and nothing else.
// `kiln/N`: Cache::preload() in N processes with one directory.
// `kiln/threads`: the same in one process, with a thread for each processor.
// `staggered`: the processes begin 100 ms after each other. `unequal`: they have different lists. `slow`: one
// kernel takes some 20 times as long as the others. `stopped`: one process is stopped (SIGSTOP) while it compiles;
// the time is that of the others. `cupy`, `triton`: kernels of those packages in as many processes, where python3
// has them.
//
// `API/THREADS`, with `--long`: preload() in one process, first from an empty cache, then from disk.
//
// Counters: `compiles` of all processes, and `most`, the largest number of one process.

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kiln/cache.hpp>
#include <kiln/device.hpp>

#include "backend/cuda/cuda.hpp"
#include "backend/cuda/rtc.hpp"
#include "backend/offline.hpp"
#include "backend/source_text.hpp"
#include "child.hpp"
#include "fixtures.hpp"
#include "programs.hpp"
#include "report.hpp"

namespace kiln::bench {
namespace {

constexpr std::size_t kernel_count = 48;
constexpr std::string_view child_flag = "--kiln_child";
constexpr const char* offline_architecture = "sm_90";
using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

/// A kernel that takes NVRTC much longer than the others.
Request slow_kernel() {
  std::string source = "extern \"C\" __global__ void slow(float* x) {\n  float a = x[threadIdx.x], b = a, c = a;\n";
  for (int i = 0; i < 40; ++i)
    source +=
        fmt::format("  a = sinf(a * {0}.5f + b); b = fmaf(c, a, {0}.25f); c = a > b ? c / {0}.125f : b;\n", i);
  source += "  x[threadIdx.x] = a + b + c;\n}\n";
  return Request({.name = "slow", .source = source, .language = Language::cuda});
}

std::vector<Request> kernels(const std::string& which) {
  std::vector<Request> requests;
  for (const Kernel& kernel : small_programs(kernel_count))
    requests.push_back(kernel.request(Language::cuda).value());
  if (which == "slow") requests.push_back(slow_kernel());
  return requests;
}

/// Says that this process is ready and waits for the parent.
void wait_for_start() {
  std::cout << "ready" << std::endl;
  std::string line;
  std::getline(std::cin, line);
}

/// What a child is to do.
struct Task {
  std::string mode;
  std::string which;
  std::string directory;
  std::size_t index = 0;
  std::size_t count = 1;
  unsigned threads = 0;

  std::vector<std::string> command() const {
    return {this_program(),        std::string(child_flag), mode, which, directory, std::to_string(index),
            std::to_string(count), std::to_string(threads)};
  }
};

int compile_without_kiln(const Task& task) {
  const auto nvrtc = cuda::open_nvrtc(std::numeric_limits<int>::max()).value();
  const std::vector<Request> requests = kernels(task.which);
  wait_for_start();
  std::size_t compiles = 0;
  for (std::size_t i = task.index; i < requests.size(); i += task.count, ++compiles)
    nvrtc
        ->compile(requests[i], {fmt::format("--gpu-architecture={}", offline_architecture)},
                  cuda::Rtc::Output::code)
        .value();
  std::cout << compiles << std::endl;
  return 0;
}

int preload(const Task& task) {
  std::shared_ptr<Backend> backend;
  if (auto device = open_device("cuda"))
    backend = std::move(*device);
  else
    backend = backend::open_offline(offline_architecture, {}).value();
  std::vector<Request> requests = kernels(task.which);
  // Each process lacks other kernels of the list.
  if (task.which == "unequal")
    for (std::size_t i = 0; i < 4; ++i)
      requests.erase(requests.begin() + static_cast<std::ptrdiff_t>(4 * task.index));
  CacheOptions options{.directory = task.directory, .threads = task.threads};
  if (task.which == "stopped") options.lock_timeout = std::chrono::seconds(2);
  Cache cache(backend, std::move(options));
  wait_for_start();
  const auto report = cache.preload(requests);
  for (const Error& error : report.errors) std::cerr << error.message() << '\n';
  std::cout << cache.stats().compiles << std::endl;
  return report.errors.empty() ? 0 : 1;
}

/// Compiles the kernels for the API `task.which`, and loads them from disk. Writes the milliseconds of both.
int scale(const Task& task) {
  // The drivers' own caches would hide the compilations.
  for (const char* variable : {"MESA_SHADER_CACHE_DISABLE", "CUDA_CACHE_DISABLE"}) setenv(variable, "1", 1);
  setenv("__GL_SHADER_DISK_CACHE", "0", 1);
  setenv("POCL_CACHE_DIR", (task.directory + "/pocl").c_str(), 1);
  const auto device = open_device(task.which).value();
  std::vector<Request> requests;
  for (const Kernel& kernel : small_programs(kernel_count)) requests.push_back(kernel.request(*device).value());
  wait_for_start();
  for (int round = 0; round < 2; ++round) {
    Cache cache(device, {.directory = task.directory, .threads = task.threads});
    const auto start = Clock::now();
    const auto report = cache.preload(requests);
    std::cout << milliseconds_since(start) << std::endl;
    if (!report.errors.empty()) return 1;
  }
  return 0;
}

/// A child with pipes to its standard streams.
class Child {
 public:
  explicit Child(std::vector<std::string> command) {
    std::array<int, 2> in = {};
    std::array<int, 2> out = {};
    if (pipe2(in.data(), O_CLOEXEC) != 0 || pipe2(out.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    std::vector<char*> words;
    for (std::string& word : command) words.push_back(word.data());
    words.push_back(nullptr);
    const int failed = posix_spawnp(&process_, words[0], &actions, nullptr, words.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    to_ = fdopen(in[1], "w");
    from_ = fdopen(out[0], "r");
    if (failed != 0) throw std::runtime_error("cannot start " + command[0]);
  }
  Child(Child&& other) noexcept
      : process_(std::exchange(other.process_, 0)),
        to_(std::exchange(other.to_, nullptr)),
        from_(std::exchange(other.from_, nullptr)) {}
  ~Child() {
    if (process_ == 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    fclose(to_);
    fclose(from_);
  }

  /// The next line that it writes; empty at the end.
  std::string line() {
    std::array<char, 256> text = {};
    if (fgets(text.data(), text.size(), from_) == nullptr) return "";
    return std::string(text.data()).substr(0, std::string_view(text.data()).find('\n'));
  }
  void start() {
    fputs("go\n", to_);
    fflush(to_);
  }
  void send(int signal) const { kill(process_, signal); }

 private:
  pid_t process_ = 0;
  FILE* to_ = nullptr;
  FILE* from_ = nullptr;
};

struct Outcome {
  double milliseconds = 0;
  std::vector<double> compiles = {};
};

/// Runs commands at once. Nothing if one does not get ready.
std::optional<Outcome> run_together(const std::vector<std::vector<std::string>>& commands, const std::string& how) {
  std::vector<Child> children;
  children.reserve(commands.size());
  for (const auto& command : commands) children.emplace_back(command);
  for (Child& child : children)
    if (child.line() != "ready") return std::nullopt;
  Outcome outcome;
  const auto start = Clock::now();
  for (Child& child : children) {
    child.start();
    if (how == "staggered") std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  if (how == "stopped") {
    // While it compiles.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    children.front().send(SIGSTOP);
  }
  for (Child& child : children) {
    if (how == "stopped" && &child == &children.front()) continue;
    const std::string compiles = child.line();
    if (compiles.empty()) return std::nullopt;
    outcome.compiles.push_back(std::stod(compiles));
  }
  outcome.milliseconds = milliseconds_since(start);
  if (how == "stopped") {
    children.front().send(SIGCONT);
    outcome.compiles.push_back(std::stod(children.front().line()));
  }
  return outcome;
}

/// Adds a case. `command` makes the command of process i, given an empty directory.
void add(const std::string& name, std::size_t processes, const std::string& how,
         const std::function<std::vector<std::string>(std::size_t i, const std::string& directory)>& command) {
  add_case(name,
           [=](benchmark::State& state) {
             for ([[maybe_unused]] auto _ : state) {
               const TemporaryFolder folder;
               std::vector<std::vector<std::string>> commands;
               for (std::size_t i = 0; i < processes; ++i) commands.push_back(command(i, folder.path().string()));
               const auto outcome = run_together(commands, how);
               if (!outcome) {
                 state.SkipWithError("it did not run");
                 return;
               }
               state.SetIterationTime(outcome->milliseconds / 1e3);
               double total = 0;
               for (const double compiles : outcome->compiles) total += compiles;
               state.counters["ms"] = outcome->milliseconds;
               state.counters["compiles"] = total;
               state.counters["most"] = *std::ranges::max_element(outcome->compiles);
             }
           })
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond)
      ->Iterations(1);
}

/// Adds a case for an API and a number of threads: the counters `compile_ms` and `load_ms`.
void add_scale(const std::string& api, unsigned threads) {
  add_case(fmt::format("{}/{}", api, threads),
           [=](benchmark::State& state) {
             for ([[maybe_unused]] auto _ : state) {
               const TemporaryFolder folder;
               Child child(Task{"scale", api, folder.path().string(), 0, 1, threads}.command());
               if (child.line() != "ready") return state.SkipWithError("there is no device");
               child.start();
               const std::string compile = child.line();
               const std::string load = child.line();
               if (load.empty()) return state.SkipWithError("it did not run");
               state.SetIterationTime(std::stod(compile) / 1e3);
               state.counters["compile_ms"] = std::stod(compile);
               state.counters["load_ms"] = std::stod(load);
             }
           })
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond)
      ->Iterations(1);
}

constexpr std::array apis = {"cuda", "vulkan", "opengl", "opencl"};
constexpr std::array thread_counts = {1U, 2U, 4U, 8U, 16U};

constexpr std::string_view cupy_script = R"(
import os, pathlib, sys
os.environ['CUPY_CACHE_DIR'] = sys.argv[1] + '/cupy'
import cupy
cupy.zeros(1).sum().get()
files = sorted(pathlib.Path(sys.argv[2]).glob('*.cu'))
print('ready', flush=True)
sys.stdin.readline()
for file in files:
    cupy.RawKernel(file.read_text(), file.stem, options=('--std=c++17',)).compile()
print(len(files), flush=True)
)";

/// Triton reads the source of its kernels from a file.
constexpr std::string_view triton_script = R"(
import os, sys
os.environ['TRITON_CACHE_DIR'] = sys.argv[1] + '/triton'
import torch, triton
import triton.language as tl

@triton.jit
def scale(x, y, n, VARIANT: tl.constexpr):
    i = tl.program_id(0) * 128 + tl.arange(0, 128)
    tl.store(y + i, tl.load(x + i, mask=i < n) * VARIANT + tl.sqrt(VARIANT * 1.0), mask=i < n)

x = torch.ones(128, device='cuda')
print('ready', flush=True)
sys.stdin.readline()
for i in range(48):
    scale[(1,)](x, x, 128, VARIANT=i + 2)
print(48, flush=True)
)";

std::string nvrtc(std::size_t processes) { return fmt::format("nvrtc/{}", processes); }
std::string kiln(std::size_t processes) { return fmt::format("kiln/{}", processes); }

int run(int argc, char** argv) {
  if (argc == 8 && argv[1] == child_flag) {
    const Task task{.mode = argv[2],
                    .which = argv[3],
                    .directory = argv[4],
                    .index = std::stoul(argv[5]),
                    .count = std::stoul(argv[6]),
                    .threads = static_cast<unsigned>(std::stoul(argv[7]))};
    if (task.mode == "scale") return scale(task);
    return task.mode == "nvrtc" ? compile_without_kiln(task) : preload(task);
  }
  CommandLine command_line(argc, argv, 3, 0);
  const std::size_t cores = std::max(std::thread::hardware_concurrency(), 2U);
  const std::size_t processes = std::min<std::size_t>(cores, 8);
  if (const auto found = cuda::open_nvrtc(std::numeric_limits<int>::max()); !found) {
    fmt::print("cold_bench measures nothing: {}\n", found.error().message());
    return 0;
  }

  const auto add_kiln = [&](const std::string& name, std::size_t count, unsigned threads, const std::string& how) {
    add(name, count, how, [=](std::size_t i, const std::string& directory) {
      return Task{"kiln", how.empty() ? "all" : how, directory, i, count, threads}.command();
    });
  };
  const auto add_nvrtc = [&](const std::string& name, std::size_t count, const std::string& which) {
    add(name, count, "", [=](std::size_t i, const std::string& directory) {
      return Task{"nvrtc", which, directory, i, count}.command();
    });
  };
  add_nvrtc(nvrtc(1), 1, "all");
  add_nvrtc(nvrtc(processes), processes, "all");
  if (cores != processes) add_nvrtc(nvrtc(cores), cores, "all");
  add_nvrtc("nvrtc/slow", processes, "slow");
  add_kiln(kiln(1), 1, 0, "");
  add_kiln(kiln(processes), processes, 0, "");
  add_kiln("kiln/threads", 1, static_cast<unsigned>(cores), "");
  for (const char* how : {"staggered", "unequal", "slow", "stopped"})
    add_kiln(fmt::format("kiln/{}", how), processes, 0, how);

  if (command_line.is_long())
    for (const char* api : apis)
      for (const unsigned threads : thread_counts)
        if (threads <= cores) add_scale(api, threads);

  const TemporaryFolder sources;
  for (const Request& request : kernels("all"))
    std::ofstream(sources.path() / (request.entries().at(0) + ".cu")) << backend::with_defines(request);
  std::ofstream(sources.path() / "triton_kernels.py") << triton_script;
  if (run_child({"python3", "-c", "import cupy; cupy.zeros(1)"}))
    add("cupy", processes, "", [&](std::size_t, const std::string& directory) -> std::vector<std::string> {
      return {"python3", "-c", std::string(cupy_script), directory, sources.path().string()};
    });
  if (run_child({"python3", "-c", "import triton, torch; torch.ones(1, device='cuda')"}))
    add("triton", processes, "", [&](std::size_t, const std::string& directory) -> std::vector<std::string> {
      return {"python3", (sources.path() / "triton_kernels.py").string(), directory};
    });

  return command_line.run([&](const Measured& measured, Figures& figures) {
    const auto ms = [&](const std::string& name) { return measured.counter(name, "ms"); };
    figures.section(
        fmt::format("{} small CUDA kernels from an empty cache, until every process has them", kernel_count));
    for (const std::size_t count : {std::size_t{1}, processes, cores})
      figures.add(nvrtc(count), fmt::format("NVRTC alone, divided over {} processes", count), ms(nvrtc(count)),
                  "ms");
    figures.add("kiln.1", "Kiln, one process", ms(kiln(1)), "ms");
    figures.add("kiln.threads", fmt::format("Kiln, one process with {} threads", cores), ms("kiln/threads"), "ms");
    figures.add("threads.ratio", fmt::format("the same / NVRTC in {} processes", cores),
                ratio(ms("kiln/threads"), ms(nvrtc(cores))), "x", at_most(1.25));
    figures.add("kiln.n", fmt::format("Kiln, {} processes", processes), ms(kiln(processes)), "ms");
    figures.add("n.ratio", "the same / NVRTC", ratio(ms(kiln(processes)), ms(nvrtc(processes))), "x",
                at_most(1.25));
    figures.add("n.compiles", "compilations", measured.counter(kiln(processes), "compiles"), "",
                at_most(kernel_count));
    figures.add("n.most", "the most of one process", measured.counter(kiln(processes), "most"), "",
                processes == 8 ? std::optional(at_most(10)) : std::nullopt);
    for (const std::string how : {"staggered", "unequal", "slow", "stopped"}) {
      const std::string name = "kiln/" + how;
      figures.section(fmt::format("{} processes, {}", processes, how));
      figures.add(how, "Kiln", ms(name), "ms");
      figures.add(how + ".ratio", "Kiln / NVRTC",
                  ratio(ms(name), ms(how == "slow" ? "nvrtc/slow" : nvrtc(processes))), "x");
      figures.add(how + ".compiles", "compilations", measured.counter(name, "compiles"), "");
      figures.add(how + ".most", "the most of one process", measured.counter(name, "most"), "");
    }
    for (const std::string api : apis) {
      figures.section(fmt::format("{}: {} kernels by threads", api, kernel_count));
      for (const unsigned threads : thread_counts) {
        const std::string name = fmt::format("{}/{}", api, threads);
        figures.add(name + ".compile", fmt::format("compiled, {} threads", threads),
                    measured.counter(name, "compile_ms"), "ms");
        figures.add(name + ".load", fmt::format("loaded from disk, {} threads", threads),
                    measured.counter(name, "load_ms"), "ms");
      }
    }
    figures.section("others");
    for (const std::string name : {"cupy", "triton"}) {
      figures.add(name, name == "cupy" ? "CuPy" : "Triton, kernels of its own", ms(name), "ms");
      figures.add(name + ".compiles", "compilations", measured.counter(name, "compiles"), "");
    }
  });
}

}  // namespace
}  // namespace kiln::bench

int main(int argc, char** argv) { return kiln::bench::guarded(kiln::bench::run, argc, argv); }
