#include "kernels/tune/bench.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>

#include <fmt/format.h>

#include "base/try.hpp"

namespace kiln::tune {
namespace {

using Clock = std::chrono::steady_clock;

/// The target duration of a job, short relative to other work of the device.
constexpr std::chrono::nanoseconds job_time = std::chrono::milliseconds(10);
constexpr int most_runs = 32;
constexpr int first_runs = 3;
/// A variant that takes this many times as long as the best is not measured more precisely.
constexpr double hopeless = 1.5;
/// The number of rounds in which close variants are compared.
constexpr int rounds = 5;

std::chrono::nanoseconds median(std::vector<std::chrono::nanoseconds> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return std::max(*middle, std::chrono::nanoseconds(1));
}

constexpr std::byte no_number{0xff};
constexpr double infinity = std::numeric_limits<double>::infinity();

/// Fills the call's output and scratch memory with NaN, because it may contain the results of another variant.
Result<void> spoil(Tunable::Call& call) {
  for (JobMemory& memory : call.job.memory)
    if (memory.buffer == nullptr && memory.upload.empty() && !memory.fill)
      memory.fill = [](std::span<std::byte> bytes) { std::ranges::fill(bytes, no_number); };
  const std::vector<std::byte> nothing(call.result.buffer()->size(), no_number);
  return call.result.device()->write(*call.result.buffer(), nothing);
}

}  // namespace

Result<std::unique_ptr<Bench>> Bench::create(Executor& executor, std::shared_ptr<Device> device,
                                             const Tunable& tunable, const TuneOptions& options,
                                             std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Tensor> inputs;
  for (const Shape& shape : tunable.inputs) {
    if (count_of(shape) > Tensor::max_count)
      return Error(ErrorCode::unsupported, fmt::format("{}: {} has more than {} elements", tunable.kernel,
                                                       to_string(shape), Tensor::max_count));
    std::vector<float> values(static_cast<std::size_t>(count_of(shape)));
    for (float& value : values) value = static_cast<float>(random() >> 40) * 0x1p-23F - 1;
    auto tensor = KILN_TRY(Tensor::from(device, shape, values));
    inputs.push_back(std::move(tensor));
  }
  auto bench = std::make_unique<Bench>(executor, tunable, options, std::move(inputs));
  const auto call = KILN_TRY(bench->call(tunable.initial));
  KILN_TRY(bench->run(call, 1));
  auto expected = KILN_TRY(call.result.read());
  bench->expected_ = std::move(expected);
  double squares = 0;
  for (const float value : bench->expected_) squares += std::isfinite(value) ? double{value} * double{value} : 0;
  bench->size_ = std::sqrt(squares / static_cast<double>(std::max<std::size_t>(bench->expected_.size(), 1)));
  return bench;
}

Result<Tunable::Call> Bench::call(const Variant& variant) const {
  try {
    return tunable_.call(variant, inputs_);
  } catch (const Failure& failure) {
    return failure.error();
  } catch (const std::exception& exception) {
    return Error(ErrorCode::invalid_request, exception.what());
  }
}

void Bench::compile(const std::vector<Variant>& variants) {
  std::vector<Request> requests;
  for (const Variant& variant : variants)
    if (const auto made = call(variant))
      for (const Step& step : made->job.steps) requests.push_back(step.request);
  const auto start = Clock::now();
  // Compile errors appear again in measure().
  executor_.cache().preload(requests);
  busy_ += Clock::now() - start;
}

Result<std::vector<std::chrono::nanoseconds>> Bench::run(const Tunable::Call& call, int runs) {
  Job job = call.job;
  const std::vector<Step> once = job.steps;
  for (int i = 1; i < runs; ++i) job.steps.insert(job.steps.end(), once.begin(), once.end());
  job.time_limit = options_.time_limit * runs;
  const auto start = Clock::now();
  const auto report = executor_.submit(std::move(job)).get();
  const auto took = Clock::now() - start;
  if (!report) {
    stuck_ = stuck_ || report.error().code() == ErrorCode::timed_out;
    return report.error();
  }
  std::vector<std::chrono::nanoseconds> times(static_cast<std::size_t>(runs));
  // Without a device clock, use the host's; its overhead is the same for all variants.
  if (report->steps.size() != once.size() * times.size()) {
    std::fill(times.begin(), times.end(), std::chrono::duration_cast<std::chrono::nanoseconds>(took) / runs);
    busy_ += took;
    return times;
  }
  for (std::size_t i = 0; i < report->steps.size(); ++i) times[i / once.size()] += report->steps[i];
  busy_ += report->compute;
  return times;
}

std::string Bench::problem_of(const std::vector<float>& result) const {
  if (result.size() != expected_.size())
    return fmt::format("it computes {} elements and not {}", result.size(), expected_.size());
  const auto is_close = [this](float got, float wanted) {
    const double apart = std::abs(double{got} - double{wanted});
    return apart <= tunable_.tolerance * std::max(size_, std::abs(double{wanted})) && apart < infinity;
  };
  // Branch-free, because there are millions of elements.
  std::size_t close = 0;
  for (std::size_t i = 0; i < result.size(); ++i) close += is_close(result[i], expected_[i]) ? 1 : 0;
  if (close == result.size()) return {};
  for (std::size_t i = 0; i < result.size(); ++i) {
    const float wanted = expected_[i];
    const float got = result[i];
    if (!is_close(got, wanted) && got != wanted && !(std::isnan(wanted) && std::isnan(got)))
      return fmt::format("element {} is {} and should be {}", i, got, wanted);
  }
  return {};
}

Result<TuneTrial> Bench::measure(const Variant& variant, std::optional<std::chrono::nanoseconds> best) {
  TuneTrial trial{.variant = variant};
  const auto failed = [&](const Error& error) -> Result<TuneTrial> {
    if (!stuck_ && !is_healthy()) return error;
    trial.problem = error.message();
    return trial;
  };
  const auto made = call(variant);
  if (!made) return failed(made.error());
  Tunable::Call spoilt = *made;
  KILN_TRY(spoil(spoilt));
  const auto first = run(spoilt, 1);
  if (!first) return failed(first.error());
  const auto check = [&]() -> Result<bool> {
    const auto result = KILN_TRY(made->result.read());
    trial.problem = problem_of(result);
    return trial.problem.empty();
  };
  if (const auto right = check(); !right || !*right) return right ? Result<TuneTrial>(trial) : right.error();
  const auto some = run(*made, first_runs);
  if (!some) return failed(some.error());
  trial.time = median(*some);
  if (best && static_cast<double>(trial.time.count()) > hopeless * static_cast<double>(best->count())) return trial;
  const auto runs = static_cast<int>(std::clamp<std::int64_t>(job_time / trial.time, first_runs, most_runs));
  const auto more = run(*made, runs);
  if (!more) return failed(more.error());
  trial.time = median(*more);
  // A single correct result may be chance.
  KILN_TRY(check());
  if (!trial.problem.empty()) trial.time = {};
  return trial;
}

bool Bench::is_healthy() {
  const auto made = call(tunable_.initial);
  return made && run(*made, 1).ok();
}

Result<void> Bench::compare(std::vector<TuneTrial*> trials) {
  std::vector<std::vector<std::chrono::nanoseconds>> times(trials.size());
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < trials.size(); ++i) {
      const auto made = KILN_TRY(call(trials[i]->variant));
      const auto runs = std::clamp<std::int64_t>(job_time / trials[i]->time, 1, most_runs);
      const auto ran = KILN_TRY(run(made, static_cast<int>(runs)));
      times[i].push_back(median(ran));
    }
  for (std::size_t i = 0; i < trials.size(); ++i) trials[i]->time = median(times[i]);
  return {};
}

}  // namespace kiln::tune
