#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include <kiln/executor.hpp>
#include <kiln/kernels/tuner.hpp>

namespace kiln::tune {

/// Runs variants of one call and takes their time. Used by one thread.
class Bench {
 public:
  /// Makes the inputs, and the result that all variants must have, by the initial one. The tunable and the executor
  /// outlive it.
  static Result<std::unique_ptr<Bench>> create(Executor& executor, std::shared_ptr<Device> device,
                                               const Tunable& tunable, const TuneOptions& options,
                                               std::uint64_t seed);
  Bench(Executor& executor, const Tunable& tunable, const TuneOptions& options, std::vector<Tensor> inputs)
      : executor_(executor), tunable_(tunable), options_(options), inputs_(std::move(inputs)) {}

  /// Has the programs of variants compiled, all at once, so that none is waited for while it is measured.
  void compile(const std::vector<Variant>& variants);
  /// What a variant takes. One that takes much longer than `best` is not looked at for long. The error is that of a
  /// device that takes no more work; what is wrong with the variant is its `problem`.
  Result<TuneTrial> measure(const Variant& variant, std::optional<std::chrono::nanoseconds> best);
  /// Measures usable ones anew, in turns, so that a clock that changes meanwhile changes it for all.
  Result<void> compare(std::vector<TuneTrial*> trials);
  /// Whether a variant did not end in time: it may go on for ever, and nothing can be measured beside it.
  bool stuck() const noexcept { return stuck_; }
  /// How long it was compiled, and the device kept busy, since the last call of this.
  std::chrono::nanoseconds take_busy() noexcept { return std::exchange(busy_, {}); }

 private:
  /// Whether the initial variant still runs: then it is the other one that fails, and not the device.
  bool is_healthy();
  /// What the variant's job is; an exception is an error of it.
  Result<Tunable::Call> call(const Variant& variant) const;
  /// The times of `runs` runs of it in one job.
  Result<std::vector<std::chrono::nanoseconds>> run(const Tunable::Call& call, int runs);
  /// Why the result is not the one it must be; empty where it is.
  std::string problem_of(const std::vector<float>& result) const;

  Executor& executor_;
  const Tunable& tunable_;
  const TuneOptions& options_;
  const std::vector<Tensor> inputs_;
  std::vector<float> expected_;
  /// The root of the mean of its squares: what is small beside it may be off by as much as a share of it.
  double size_ = 0;
  std::chrono::nanoseconds busy_ = {};
  bool stuck_ = false;
};

}  // namespace kiln::tune
