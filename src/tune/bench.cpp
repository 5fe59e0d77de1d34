#include "tune/bench.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include <fmt/format.h>

namespace kiln::tune {
namespace {

using Clock = std::chrono::steady_clock;

/// A job of so many runs is short beside what else the device has to do.
constexpr std::chrono::nanoseconds job_time = std::chrono::milliseconds(10);
constexpr int most_runs = 32;
constexpr int first_runs = 3;
/// What takes so many times as long as the best is not measured any better.
constexpr double hopeless = 1.5;
/// How often those that are close to each other are measured again.
constexpr int rounds = 5;

std::chrono::nanoseconds median(std::vector<std::chrono::nanoseconds> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return std::max(*middle, std::chrono::nanoseconds(1));
}

/// Fills a tensor with NaN: memory may come back with the right result of another variant in it.
Result<void> spoil(const Tensor& tensor) {
  const std::vector<std::byte> nothing(tensor.buffer()->size(), std::byte{0xff});
  return tensor.device()->write(*tensor.buffer(), nothing);
}

/// Whether it is the variant that failed, and not the device or the host.
bool of_the_variant(ErrorCode code) {
  return code == ErrorCode::compile_failed || code == ErrorCode::unsupported ||
         code == ErrorCode::invalid_request || code == ErrorCode::timed_out;
}

}  // namespace

Result<std::unique_ptr<Bench>> Bench::create(Executor& executor, std::shared_ptr<Device> device,
                                             const Tunable& tunable, const TuneOptions& options,
                                             std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Tensor> inputs;
  for (const Shape& shape : tunable.inputs) {
    std::vector<float> values(static_cast<std::size_t>(count_of(shape)));
    for (float& value : values) value = static_cast<float>(random() >> 40) * 0x1p-23F - 1;
    auto tensor = Tensor::from(device, shape, values);
    if (!tensor) return std::move(tensor).error();
    inputs.push_back(std::move(*tensor));
  }
  auto bench = std::make_unique<Bench>(executor, tunable, options, std::move(inputs));
  const auto call = bench->call(tunable.initial);
  if (!call) return call.error();
  if (auto ran = bench->run(*call, 1); !ran) return std::move(ran).error();
  auto expected = call->result.read();
  if (!expected) return std::move(expected).error();
  bench->expected_ = std::move(*expected);
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
  // What does not compile says so when it is measured.
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
    stuck_ = report.error().code() == ErrorCode::timed_out;
    return report.error();
  }
  std::vector<std::chrono::nanoseconds> times(static_cast<std::size_t>(runs));
  // A device without a clock: the host's, which is as much longer for all.
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
  for (std::size_t i = 0; i < result.size(); ++i) {
    const double wanted = expected_[i];
    const double got = result[i];
    if (std::isnan(wanted) && std::isnan(got)) continue;
    if (got == wanted || std::abs(got - wanted) <= tunable_.tolerance * std::max(1.0, std::abs(wanted))) continue;
    return fmt::format("element {} is {} and should be {}", i, got, wanted);
  }
  return {};
}

Result<TuneTrial> Bench::measure(const Variant& variant, std::optional<std::chrono::nanoseconds> best) {
  TuneTrial trial{.variant = variant};
  const auto failed = [&trial](const Error& error) -> Result<TuneTrial> {
    if (!of_the_variant(error.code())) return error;
    trial.problem = error.message();
    return trial;
  };
  const auto made = call(variant);
  if (!made) return failed(made.error());
  if (auto spoilt = spoil(made->result); !spoilt) return std::move(spoilt).error();
  const auto first = run(*made, 1);
  if (!first) return failed(first.error());
  const auto result = made->result.read();
  if (!result) return result.error();
  trial.problem = problem_of(*result);
  if (!trial.problem.empty()) return trial;
  const auto some = run(*made, first_runs);
  if (!some) return failed(some.error());
  trial.time = median(*some);
  if (best && static_cast<double>(trial.time.count()) > hopeless * static_cast<double>(best->count())) return trial;
  const auto more =
      run(*made, static_cast<int>(std::clamp<std::int64_t>(job_time / trial.time, first_runs, most_runs)));
  if (!more) return failed(more.error());
  trial.time = median(*more);
  return trial;
}

Result<void> Bench::compare(std::vector<TuneTrial*> trials) {
  std::vector<std::vector<std::chrono::nanoseconds>> times(trials.size());
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < trials.size(); ++i) {
      const auto made = call(trials[i]->variant);
      if (!made) return made.error();
      const auto runs = std::clamp<std::int64_t>(job_time / trials[i]->time, 1, most_runs);
      const auto ran = run(*made, static_cast<int>(runs));
      if (!ran) return ran.error();
      times[i].push_back(median(*ran));
    }
  for (std::size_t i = 0; i < trials.size(); ++i) trials[i]->time = median(times[i]);
  return {};
}

}  // namespace kiln::tune
