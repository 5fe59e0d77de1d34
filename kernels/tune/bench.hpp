#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include <kiln/executor.hpp>
#include <kiln/kernels/tuner.hpp>

namespace kiln::tune {

/// Runs variants of one call and measures their time. Not thread-safe.
class Bench {
 public:
  /// Creates the inputs, and the expected result with the initial variant. The tunable and the executor must
  /// outlive it.
  static Result<std::unique_ptr<Bench>> create(Executor& executor, std::shared_ptr<Device> device,
                                               const Tunable& tunable, const TuneOptions& options,
                                               std::uint64_t seed);
  Bench(Executor& executor, const Tunable& tunable, const TuneOptions& options, std::vector<Tensor> inputs)
      : executor_(executor), tunable_(tunable), options_(options), inputs_(std::move(inputs)) {}

  /// Compiles the programs of the variants in parallel, so that measurements do not wait for the compiler.
  void compile(const std::vector<Variant>& variants);
  /// Measures a variant; only briefly if it is much slower than `best`. An error means that the device no longer
  /// works; a failure of the variant is the trial's `problem`.
  Result<TuneTrial> measure(const Variant& variant, std::optional<std::chrono::nanoseconds> best);
  /// Measures usable variants again, alternately, so that a change of the device's clock rate affects all of them.
  Result<void> compare(std::vector<TuneTrial*> trials);
  /// Whether a variant timed out: it may still run, so nothing else can be measured.
  bool stuck() const noexcept { return stuck_; }
  /// The time spent compiling and keeping the device busy since the last call.
  std::chrono::nanoseconds take_busy() noexcept { return std::exchange(busy_, {}); }

 private:
  /// Whether the initial variant still runs. If so, a failure is the variant's and not the device's.
  bool is_healthy();
  /// The variant's job; exceptions become errors.
  Result<Tunable::Call> call(const Variant& variant) const;
  /// The times of `runs` runs in one job.
  Result<std::vector<std::chrono::nanoseconds>> run(const Tunable::Call& call, int runs);
  /// Why the result is wrong; empty if it is right.
  std::string problem_of(const std::vector<float>& result) const;

  Executor& executor_;
  const Tunable& tunable_;
  const TuneOptions& options_;
  const std::vector<Tensor> inputs_;
  std::vector<float> expected_;
  /// The root mean square of expected_. The tolerance for smaller elements is relative to it.
  double size_ = 0;
  std::chrono::nanoseconds busy_ = {};
  bool stuck_ = false;
};

}  // namespace kiln::tune
