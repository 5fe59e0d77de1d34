// What tuning is worth where nothing was measured, and what it costs the first call, on every API there is here.
//
//     tune_bench [API…] [--long] [--kiln_json=FILE]
//
// `--long` measures more shapes and more first calls, which takes some minutes.

#include <chrono>
#include <cmath>
#include <fstream>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <kiln/cache.hpp>
#include <kiln/executor.hpp>
#include <kiln/kernels/kernels.hpp>
#include <kiln/kernels/tuner.hpp>

#include "fixtures.hpp"
#include "report.hpp"

namespace kiln::bench {
namespace {

using Clock = std::chrono::steady_clock;

/// How much is measured.
struct Extent {
  /// Shapes that nothing was measured for.
  int unseen = 10;
  int first_calls = 20;
  /// For each shape that is tuned.
  std::chrono::seconds budget = std::chrono::seconds(1);
};
constexpr Extent long_extent = {.unseen = 50, .first_calls = 100, .budget = std::chrono::seconds(10)};

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

/// What variants of a call take, by the device's clock.
class Stand {
 public:
  Stand(std::shared_ptr<Device> device, Cache& cache)
      : device_(std::move(device)), executor_(Executor::create(device_, cache, {.lanes = 1}).value()) {}

  /// The time of `a` over that of `b`, run in turns.
  double ratio(const Tunable& tunable, const Variant& a, const Variant& b) {
    std::vector<Tensor> inputs;
    for (const Shape& shape : tunable.inputs)
      inputs.push_back(
          Tensor::from(device_, shape, std::vector<float>(static_cast<std::size_t>(count_of(shape)), 0.5F))
              .value());
    std::vector<double> ratios;
    for (int round = 0; round < 7; ++round) {
      const double first = run(tunable, a, inputs);
      const double second = run(tunable, b, inputs);
      // The first round is for programs and memory to be there.
      if (round > 0) ratios.push_back(first / second);
    }
    return median(ratios);
  }

 private:
  double run(const Tunable& tunable, const Variant& variant, const std::vector<Tensor>& inputs) {
    const auto call = tunable.call(variant, inputs).value();
    return static_cast<double>(executor_->submit(call.job).get().value().compute.count());
  }

  std::shared_ptr<Device> device_;
  std::unique_ptr<Executor> executor_;
};

/// A kernel, a few sizes of it to tune, and others to choose for.
struct Case {
  std::string kernel;
  std::vector<Shape> tuned;
  Shape least;
  Shape most;
};

std::vector<Case> cases(bool small) {
  if (small)
    return {{"gemm", {{64, 64, 64}, {160, 160, 160}, {256, 64, 256}}, {33, 33, 33}, {300, 300, 300}},
            {"softmax", {{64, 256}, {256, 1024}, {64, 4096}}, {33, 130}, {500, 5000}}};
  return {{"gemm",
           {{512, 512, 512}, {2048, 2048, 2048}, {4096, 512, 1024}, {512, 4096, 1024}, {256, 256, 4096}},
           {300, 300, 300},
           {4000, 4000, 4000}},
          {"softmax", {{1024, 1024}, {8192, 8192}, {256, 65536}}, {600, 600}, {10000, 40000}}};
}

/// Sizes between those of the case, as many small as large ones.
Shape some_shape(const Case& one, std::mt19937& random) {
  Shape shape;
  for (std::size_t i = 0; i < one.least.size(); ++i) {
    std::uniform_real_distribution<double> exponent(std::log2(static_cast<double>(one.least[i])),
                                                    std::log2(static_cast<double>(one.most[i])));
    shape.push_back(static_cast<std::int64_t>(std::exp2(exponent(random))));
  }
  return shape;
}

void choose_for_unseen(const std::string& api, const std::shared_ptr<Device>& device, const Extent& extent,
                       Figures& figures) {
  for (const Case& one : cases(device->info().software)) {
    std::cerr << fmt::format("{}: tuning {} for {} shapes, then {} others\n", api, one.kernel, one.tuned.size(),
                             extent.unseen);
    const TemporaryFolder folder;
    Cache cache(device, {.directory = folder.path()});
    const auto tuner = Tuner::create(device, cache, {.policy = TunePolicy::lookup}).value();
    for (const Shape& shape : one.tuned)
      tuner->tune(tunable(*device, one.kernel, shape).value(), extent.budget).value();
    Stand stand(device, cache);
    std::mt19937 random(1);
    double sum = 0;
    int slower = 0;
    for (int i = 0; i < extent.unseen; ++i) {
      const Tunable call = tunable(*device, one.kernel, some_shape(one, random)).value();
      const Variant chosen = tuner->choose(call);
      const double gain = chosen == call.initial ? 1 : stand.ratio(call, call.initial, chosen);
      sum += std::log(gain);
      slower += gain < 0.95 ? 1 : 0;
    }
    figures.add(fmt::format("{}.{}.unseen_gain", api, one.kernel),
                fmt::format("{} on {} unseen shapes: always the default / the nearest measured, geometric mean",
                            one.kernel, extent.unseen),
                std::exp(sum / extent.unseen), "x");
    figures.add(fmt::format("{}.{}.unseen_slower", api, one.kernel), "  of them slower by more than 5 %", slower,
                "");
  }
}

/// From an open device to the first result, with the program on disk.
double first_call(const std::shared_ptr<Device>& device, const std::filesystem::path& folder, const Tensor& a,
                  TunePolicy policy) {
  const auto start = Clock::now();
  Cache cache(device, {.directory = folder});
  const auto tuner = Tuner::create(device, cache, {.policy = policy}).value();
  gemm(Runner(cache).tuned_by(*tuner), a, a).value().read().value();
  return milliseconds_since(start);
}

void time_first_calls(const std::string& api, const std::shared_ptr<Device>& device, const Extent& extent,
                      Figures& figures) {
  std::cerr << fmt::format("{}: {} first calls\n", api, 2 * extent.first_calls);
  const TemporaryFolder folder;
  const Shape shape = device->info().software ? Shape{256, 256} : Shape{2048, 2048};
  const Tensor a =
      Tensor::from(device, shape, std::vector<float>(static_cast<std::size_t>(count_of(shape)), 0.5F)).value();
  first_call(device, folder.path(), a, TunePolicy::off);
  std::vector<double> off;
  std::vector<double> background;
  // In turns, each as often the first of two: what comes after another finds it in the processor's caches.
  for (int i = 0; i < extent.first_calls; ++i) {
    if (i % 2 == 0) off.push_back(first_call(device, folder.path(), a, TunePolicy::off));
    background.push_back(first_call(device, folder.path(), a, TunePolicy::background));
    if (i % 2 != 0) off.push_back(first_call(device, folder.path(), a, TunePolicy::off));
  }
  figures.add(api + ".first_call_off", "first call of gemm, tuning off", median(off), "ms");
  figures.add(api + ".first_call", "first call, tuning in the background / off", median(background) / median(off),
              "x", at_most(1.05));
}

int run(int argc, char** argv) {
  std::vector<std::string> apis;
  std::string json;
  Extent extent;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with("--kiln_json="))
      json = argument.substr(argument.find('=') + 1);
    else if (argument == "--long")
      extent = long_extent;
    else
      apis.push_back(argument);
  }
  if (apis.empty()) apis = {"cuda", "hip", "vulkan", "opengl", "opencl"};
  Figures figures;
  for (const std::string& api : apis) {
    const auto device = open_device(api);
    if (!device) {
      std::cout << api << " was left out: " << device.error().message() << '\n';
      continue;
    }
    figures.section(fmt::format("{}, {}", api, (*device)->identity().device));
    time_first_calls(api, *device, extent, figures);
    choose_for_unseen(api, *device, extent, figures);
  }
  std::cout << figures.table();
  if (!json.empty()) std::ofstream(json) << figures.json() << '\n';
  return 0;
}

}  // namespace
}  // namespace kiln::bench

int main(int argc, char** argv) { return kiln::bench::guarded(kiln::bench::run, argc, argv); }
