// How fast the kernels of the library are, on every API there is here: GFLOP/s, or GB/s of those that compute
// little. Each is run in 5 rounds of a tenth of a second; the median run counts, by the device's clock
// where it has one. On a CPU the shapes are small ones.
//
// With --tune each is tuned as well, for so many seconds, and measured again with what was found. With --vendor the
// figures are compared with those of a file, which tools/vendor-figures writes of NVIDIA's own libraries (cuBLAS
// and cuDNN in fp32, without tensor cores); without it, on an NVIDIA H200, with what these were measured at once.
// --only, once or more often, takes the cases that have TEXT in their names.
//
//     kernel_bench [API…] [--tune=SECONDS] [--vendor=FILE] [--only=TEXT] [--kiln_json=FILE]

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <kiln/cache.hpp>
#include <kiln/kernels/kernels.hpp>
#include <kiln/kernels/tuner.hpp>
#include <kiln/slot.hpp>

#include "fixtures.hpp"
#include "report.hpp"

namespace kiln::bench {
namespace {

/// One call, and how fast the vendor's library does the same on an H200, in GFLOP/s or GB/s.
struct Case {
  std::string name;
  std::function<Result<Tensor>(Runner)> call;
  bool moves = false;
  std::optional<double> vendor = {};
  /// What a tuned one is to reach of that; 0 where another case of the same is to.
  double tuned = 0;
  bool tunable = true;
  /// What the call comes to, where its steps do it with less or more.
  std::optional<double> work = {};
};

using Seconds = std::chrono::duration<double>;

constexpr std::string_view winograd_suffix = ", Winograd";

/// A job's programs and memory, to be run again and again.
class Repeated {
 public:
  Repeated(Device& device, Cache& cache, Job job) : device_(device), job_(std::move(job)) {
    for (JobMemory& memory : job_.memory)
      if (memory.buffer == nullptr) memory.buffer = device.allocate(memory.bytes).value();
    std::vector<const Buffer*> memory;
    for (const JobMemory& one : job_.memory) memory.push_back(one.buffer.get());
    for (const Step& step : job_.steps) {
      programs_.push_back(cache.get(step.request).value());
      launches_.push_back(step.launch.with(memory));
    }
    if (auto slot = device.open_slot()) slot_ = std::move(*slot);
  }

  const Job& job() const { return job_; }

  /// What each of `times` runs took, in seconds.
  std::vector<double> run(std::size_t times) {
    std::vector<double> seconds;
    if (slot_ == nullptr) {
      for (std::size_t i = 0; i < times; ++i) seconds.push_back(since_start([this] { launch_all(device_); }));
      return seconds;
    }
    const double wall = since_start([&] {
      for (std::size_t i = 0; i < times; ++i) launch_all(*slot_);
      slot_->submit().value();
      slot_->wait().value();
    });
    const std::vector<Ran> ran = slot_->times();
    if (ran.size() != times * launches_.size()) return {wall / static_cast<double>(times)};
    for (std::size_t i = 0; i < ran.size(); i += launches_.size())
      seconds.push_back(Seconds(ran[i + launches_.size() - 1].end - ran[i].begin).count());
    return seconds;
  }

 private:
  void launch_all(auto& on) {
    for (std::size_t i = 0; i < launches_.size(); ++i) on.launch(programs_[i].module(), launches_[i]).value();
  }
  static double since_start(const auto& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return Seconds(std::chrono::steady_clock::now() - start).count();
  }

  Device& device_;
  Job job_;
  std::vector<Program> programs_;
  std::vector<Launch> launches_;
  std::unique_ptr<Slot> slot_;
};

/// A call as the runner makes it, to be run again and again.
std::unique_ptr<Repeated> repeated(Device& device, Cache& cache, const Case& one, Tuner* tuner) {
  std::optional<Job> job;
  const Runner keep(device, [&job](Job made) -> Result<Pending> {
    job.emplace(std::move(made));
    return Pending();
  });
  // The result's memory is the job's.
  one.call(tuner != nullptr ? keep.tuned_by(*tuner) : keep).value();
  return std::make_unique<Repeated>(device, cache, std::move(*job));
}

/// How fast each of some forms of a call is, in GFLOP/s or GB/s. They take turns, for what else a machine does
/// changes from one moment to the next.
std::vector<double> speeds(Device& device, const Case& one, const std::vector<Repeated*>& forms) {
  constexpr int rounds = 5;
  constexpr double all_rounds = 0.5;
  constexpr auto warm_up = std::chrono::seconds(1);
  // A GPU that had nothing to do runs at a fraction of its clock, and takes its time to go faster.
  const auto start = std::chrono::steady_clock::now();
  while (!device.info().software && std::chrono::steady_clock::now() - start < warm_up) forms.front()->run(10);
  std::vector<std::vector<double>> seconds(forms.size());
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < forms.size(); ++i) {
      const double first = median(forms[i]->run(2));
      const double least = device.info().software ? 3.0 : 5.0;
      const auto times = static_cast<std::size_t>(std::clamp(all_rounds / rounds / first, least, 100.0));
      seconds[i].push_back(median(forms[i]->run(times)));
    }
  std::vector<double> figures;
  for (std::size_t i = 0; i < forms.size(); ++i) {
    double work = one.work.value_or(0);
    if (!one.work)
      for (const Step& step : forms[i]->job().steps) work += one.moves ? step.bytes : step.flops;
    figures.push_back(work / median(seconds[i]) / 1e9);
  }
  return figures;
}

class Cases {
 public:
  explicit Cases(std::shared_ptr<Device> device) : device_(std::move(device)) {}

  std::vector<Case> all() const {
    const bool small = device_->info().software;
    std::vector<Case> cases;
    if (small) {
      cases.push_back(gemm(256, {}));
      cases.push_back(conv2d(1, 16, 32, 16, 3, {}));
      cases.push_back(attention(1, 2, 128, 64, false, {}));
      cases.push_back(attention(1, 2, 128, 64, true, {}));
      cases.push_back(softmax(512, {}));
      cases.push_back(reduce(512));
      cases.push_back(scan(512));
      cases.push_back(copy(1 << 18));
      return cases;
    }
    cases.push_back(gemm(128, 128, 16384, {}));
    cases.push_back(gemm(512, {}));
    cases.push_back(gemm(1024, 26e3));
    cases.push_back(gemm(2048, {}));
    cases.push_back(gemm(4096, 49e3));
    cases.push_back(conv2d(1, 64, 224, 64, 3, 25.8e3));
    cases.push_back(conv2d(32, 64, 56, 64, 3, 29.2e3));
    cases.push_back(conv2d(32, 256, 28, 256, 3, 70.1e3));
    cases.push_back(conv2d(8, 64, 112, 64, 5, 34.8e3));
    cases.push_back(winograd(1, 64, 224, 64, 25.8e3));
    cases.push_back(winograd(32, 64, 56, 64, 29.2e3));
    cases.push_back(winograd(32, 256, 28, 256, 70.1e3));
    cases.push_back(attention(4, 16, 2048, 64, false, 33.7e3));
    cases.push_back(attention(4, 16, 2048, 64, true, 28.7e3));
    cases.push_back(attention(4, 16, 2048, 128, false, {}));
    cases.push_back(one_query(32, 16384, 128));
    cases.push_back(weighted_matmul(4, 16, 1024, 64));
    cases.push_back(softmax(8192, 1.88e3));
    cases.push_back(reduce(8192));
    cases.push_back(scan(8192));
    cases.push_back(copy(1 << 26));
    return cases;
  }

 private:
  Tensor of(Shape shape) const {
    const auto count = static_cast<std::size_t>(count_of(shape));
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i * 2654435761U % 1024) / 512 - 1;
    return Tensor::from(device_, std::move(shape), values).value();
  }
  Case gemm(int n, std::optional<double> vendor) const { return gemm(n, n, n, vendor); }
  Case gemm(int m, int n, int k, std::optional<double> vendor) const {
    return {fmt::format("gemm {}x{}x{}", m, n, k),
            [a = of({m, k}), b = of({k, n})](Runner on) { return kiln::gemm(on, a, b); }, false, vendor, 0.9};
  }
  Case conv2d(int n, int c, int extent, int k, int filter, std::optional<double> vendor,
              bool allow_winograd = false) const {
    return {
        fmt::format("conv2d {}x{}, {} of {}x{}x{}, {} filters", filter, filter, n, c, extent, extent, k),
        [x = of({n, c, extent, extent}), w = of({k, c, filter, filter}), filter, allow_winograd](Runner on) {
          return kiln::conv2d(on, x, w, {.padding = {filter / 2, filter / 2}, .allow_winograd = allow_winograd});
        },
        false, vendor, filter != 3 || allow_winograd ? 0.8 : 0};
  }
  /// The same where Winograd's algorithm is allowed, by what the plain sum has to compute.
  Case winograd(int n, int c, int extent, int k, std::optional<double> vendor) const {
    Case one = conv2d(n, c, extent, k, 3, vendor, true);
    one.name += winograd_suffix;
    one.work = 2.0 * n * k * extent * extent * 9 * c;
    return one;
  }
  Case attention(int batch, int heads, int length, int dimension, bool causal, std::optional<double> vendor) const {
    const Shape shape = {batch, heads, length, dimension};
    return {fmt::format("flash_attention {}x{}x{}x{}{}", batch, heads, length, dimension, causal ? ", causal" : ""),
            [q = of(shape), k = of(shape), v = of(shape), causal](Runner on) {
              return kiln::flash_attention(on, q, k, v, {.causal = causal});
            },
            false, vendor, 0.9};
  }
  /// As where one token is made after the other: what it takes is reading all keys and values once.
  Case one_query(int heads, int keys, int dimension) const {
    return {fmt::format("flash_attention 1x{}x1x{}, {} keys", heads, dimension, keys),
            [q = of({1, heads, 1, dimension}), k = of({1, heads, keys, dimension}),
             v = of({1, heads, keys, dimension})](Runner on) { return kiln::flash_attention(on, q, k, v); },
            true,
            {},
            0,
            false,
            8.0 * heads * keys * dimension};
  }
  Case weighted_matmul(int batch, int heads, int length, int dimension) const {
    return {fmt::format("weighted_matmul {}x{}x{}x{}", batch, heads, length, dimension),
            [w = of({batch, heads, length, length}), v = of({batch, heads, length, dimension})](Runner on) {
              return kiln::weighted_matmul(on, w, v);
            }};
  }
  Case softmax(int n, std::optional<double> vendor) const {
    return {fmt::format("softmax {}x{}", n, n),
            [x = of({n, n})](Runner on) { return kiln::softmax(on, x); },
            true,
            vendor,
            0.95,
            true,
            8.0 * n * n};
  }
  Case reduce(int n) const {
    return {fmt::format("reduce, sum, {}x{}", n, n),
            [x = of({n, n})](Runner on) { return kiln::reduce(on, x, Reduction::sum); },
            true,
            {},
            0,
            false};
  }
  Case scan(int n) const {
    return {fmt::format("scan {}x{}", n, n),
            [x = of({n, n})](Runner on) { return kiln::scan(on, x); },
            true,
            {},
            0,
            false};
  }
  Case copy(int n) const {
    return {fmt::format("copy {}", n), [x = of({n})](Runner on) { return kiln::copy(on, x); }, true, {}, 0, false};
  }

  std::shared_ptr<Device> device_;
};

/// Through which API a tuned kernel is how fast.
using Tuned = std::map<std::string, double>;

struct Options {
  std::vector<std::string> apis;
  std::chrono::seconds budget = {};
  /// How fast the vendor's library is, by a case's name.
  std::map<std::string, double> vendor;
  /// What a case's name has to have one of; anything where there are none.
  std::vector<std::string> only;
  std::string json;
};

bool is_wanted(const Options& options, const Case& one) {
  return options.only.empty() || std::ranges::any_of(options.only, [&](const std::string& text) {
           return one.name.find(text) != std::string::npos;
         });
}

/// What the vendor's library reaches in a case; `ours` says whether the device is the one of the figures here.
std::optional<double> vendor_of(const Options& options, const Case& one, bool ours) {
  if (options.vendor.empty()) return ours ? one.vendor : std::nullopt;
  const auto found = options.vendor.find(one.name.substr(0, one.name.find(winograd_suffix)));
  return found == options.vendor.end() ? std::nullopt : std::optional(found->second);
}

void measure(const std::string& api, const Options& options, Figures& figures, Tuned& by_cuda) {
  auto device = open_device(api);
  if (!device) {
    std::cout << api << " was left out: " << device.error().message() << '\n';
    return;
  }
  const DeviceInfo& info = (*device)->info();
  const std::string label = info.label.empty() ? info.identity.device : info.label;
  const bool h200 = label.find("H200") != std::string::npos;
  const TemporaryFolder folder;
  Cache cache(*device, {.directory = folder.path()});
  // As if each were called often: with its sizes as constants.
  const auto tuner =
      Tuner::create(*device, cache, {.policy = TunePolicy::exhaustive, .budget = options.budget, .frequent = 1})
          .value();
  figures.section(fmt::format("{}, {}", api, label));
  const std::vector<Case> cases = Cases(*device).all();
  for (const Case& one : cases) {
    const std::string name = api + "." + one.name;
    const std::string unit = one.moves ? "GB/s" : "GFLOP/s";
    if (!is_wanted(options, one)) continue;
    const auto vendor = vendor_of(options, one, h200);
    const auto plain = repeated(**device, cache, one, nullptr);
    std::unique_ptr<Repeated> tuned;
    if (options.budget.count() > 0 && one.tunable) tuned = repeated(**device, cache, one, tuner.get());
    const std::vector<double> speed =
        speeds(**device, one, tuned ? std::vector{plain.get(), tuned.get()} : std::vector{plain.get()});
    // What a reference system reached with conv2d, of which a GPU is to do more through every API.
    const bool to_beat = !info.software && one.name.starts_with("conv2d");
    figures.add(name, one.name, speed[0], unit, to_beat ? std::optional(at_least(625.5)) : std::nullopt);
    if (vendor)
      figures.add(name + ".of_vendor", "  / NVIDIA's library", speed[0] / *vendor, "x",
                  api == "cuda" ? std::optional(at_least(0.5)) : std::nullopt);
    // The table comes at the end, which may be far.
    std::cerr << fmt::format(
        "{} ({} of {}): {:.4g} {}{}\n", name, &one - cases.data() + 1, cases.size(), speed[0], unit,
        tuned ? fmt::format(", tuned {:.4g}, {}", speed[1], tuned->job().steps.front().request.name()) : "");
    if (!tuned) continue;
    figures.add(name + ".tuned", "  tuned: " + tuned->job().steps.front().request.name(), speed[1], unit);
    figures.add(name + ".gain", "  tuned / as it was", speed[1] / speed[0], "x");
    if (api == "cuda") by_cuda[one.name] = speed[1];
    if (vendor)
      figures.add(name + ".tuned_of_vendor", "  tuned / NVIDIA's library", speed[1] / *vendor, "x",
                  api == "cuda" && one.vendor && one.tuned > 0 ? std::optional(at_least(one.tuned)) : std::nullopt);
    if (api != "cuda" && by_cuda.contains(one.name))
      figures.add(name + ".of_cuda", "  tuned / tuned on CUDA", speed[1] / by_cuda[one.name], "x", at_least(0.8));
  }
}

/// The lines of a file of the vendor's figures: a figure and a name each.
std::map<std::string, double> vendor_figures(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::map<std::string, double> figures;
  double figure = 0;
  for (std::string name; file >> figure >> std::ws && std::getline(file, name);) figures[name] = figure;
  return figures;
}

int run(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    // `./dev bench --long` gives it to all benchmarks.
    if (argument == "--long") continue;
    const std::string value = argument.substr(argument.find('=') + 1);
    if (argument.starts_with("--kiln_json="))
      options.json = value;
    else if (argument.starts_with("--tune="))
      options.budget = std::chrono::seconds(std::stoi(value));
    else if (argument.starts_with("--vendor="))
      options.vendor = vendor_figures(value);
    else if (argument.starts_with("--only="))
      options.only.push_back(value);
    else
      options.apis.push_back(argument);
  }
  if (options.apis.empty()) options.apis = {"cuda", "hip", "vulkan", "opengl", "opencl"};
  Figures figures;
  Tuned by_cuda;
  for (const std::string& api : options.apis) measure(api, options, figures, by_cuda);
  std::cout << figures.table();
  if (!options.json.empty()) std::ofstream(options.json) << figures.json() << '\n';
  return 0;
}

}  // namespace
}  // namespace kiln::bench

int main(int argc, char** argv) { return kiln::bench::guarded(kiln::bench::run, argc, argv); }
