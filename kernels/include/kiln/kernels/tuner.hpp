#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <kiln/executor.hpp>
#include <kiln/kernels/tensor.hpp>
#include <kiln/log.hpp>
#include <kiln/result.hpp>

namespace kiln {

namespace tune {
class AutoTuner;
}

/// A number that a kernel is compiled with, and the values worth trying, smallest first.
struct TuneParameter {
  std::string name = {};
  std::vector<int> values = {};
  /// Whether values other than the first are tried only for frequent calls (TuneOptions::frequent), and are used
  /// only for exactly these sizes: for example, programs in which sizes are constants.
  bool when_frequent = false;
};

/// The value of each parameter, in their order.
using Variant = std::vector<int>;

/// A number of a call's on which it depends what variant is best, as in {"m", 1024}.
struct TuneSize {
  std::string name = {};
  std::int64_t value = 0;

  bool operator==(const TuneSize&) const = default;
};

/// A call that can be done by several variants of a kernel, all with the same result.
struct Tunable {
  /// What it is a call of, with all that decides and is no size: "gemm_nt".
  std::string kernel = {};
  std::string types = "f32";
  std::vector<TuneSize> sizes = {};
  std::vector<TuneParameter> parameters = {};
  /// The variant that runs while nothing is known; also the reference for results.
  Variant initial = {};
  /// Whether a variant can run on the device with these sizes. One that does not fit is never compiled. Must not
  /// use the tuner that asks.
  std::function<bool(const Variant&)> fits = {};

  /// The tensors that a measurement works on, f32; they are filled with random numbers between -1 and 1.
  std::vector<Shape> inputs = {};
  /// A job that computes `result` from them by a variant.
  struct Call {
    Job job = {};
    Tensor result;
  };
  std::function<Result<Call>(const Variant&, const std::vector<Tensor>&)> call = {};
  /// How far an element of the result may be from that of another variant, as a share of itself, or of the root
  /// mean square of all where that is more.
  double tolerance = 1e-3;
};

/// When a variant is looked for.
enum class TunePolicy {
  /// Never: every call runs its initial variant.
  off,
  /// Calls run what was found before, for their sizes or for the nearest.
  lookup,
  /// The same at once; meanwhile better ones are looked for, and serve later calls.
  background,
  /// A call for which nothing was found waits until all variants that fit were tried, or the budget is spent.
  exhaustive,
};

struct TuneOptions {
  TunePolicy policy = TunePolicy::lookup;
  /// For how long variants of one call are looked for.
  std::chrono::nanoseconds budget = std::chrono::seconds(10);
  /// How long after its first call a search in the background begins: what calls need themselves comes first.
  std::chrono::nanoseconds begin_after = std::chrono::seconds(1);
  /// The share of the time for which the background policy compiles, and keeps the device busy.
  double duty = 0.05;
  /// Calls with larger inputs are not looked at in the background: a search holds as much memory again.
  std::uint64_t background_bytes = std::uint64_t{256} << 20;
  /// A call is frequent from this many calls on, counted over all processes.
  std::uint64_t frequent = 1000;
  /// How long one run of a variant may take before it counts as hanging. Some drivers compile
  /// at the first run.
  std::chrono::nanoseconds time_limit = std::chrono::seconds(10);
  /// The same seed tries the same variants in the same order, as long as they measure the same.
  std::uint64_t seed = 0;
  /// The share of the calls that run a variant that was nearly as good as the best, to see whether it still is.
  /// With it, the same call may sum up in another order, and its result differ in the last bits.
  double rivals = 0;
  Log log = {};
};

/// A variant, and what it took.
struct TuneTrial {
  Variant variant = {};
  /// The median of its runs, by the device's clock; 0 if it cannot be used.
  std::chrono::nanoseconds time = {};
  /// Why it cannot be used; empty if it can.
  std::string problem = {};
};

/// What was found for a call.
struct TuneRecord {
  std::string kernel = {};
  std::string types = {};
  std::vector<TuneSize> sizes = {};
  std::vector<std::string> parameters = {};
  /// The best first; those that cannot be used last.
  std::vector<TuneTrial> trials = {};
  /// Whether all that was to be tried has been.
  bool complete = false;
  /// Whether it was measured with another driver or compiler: a starting point, to be measured again.
  bool hint = false;
  /// How often it was called.
  std::uint64_t calls = 0;
};

/// How a search stands; see Tuner::tune().
struct TuneProgress {
  std::size_t tried = 0;
  /// How many there are to try; with more variants than the budget allows, a guess.
  std::size_t of = 0;
  TuneTrial last = {};
  TuneTrial best = {};
  /// How long it took to compile the last one, and kept the device busy.
  std::chrono::nanoseconds busy = {};
};

/// Chooses the variants of calls, and finds out which are best on this device: measured here, kept in the cache's
/// folder (tuning.json), used by every process. All functions may be called from any thread.
class Tuner {
 public:
  /// What it measures runs on lanes of its own; `cache` must outlive it, and be one for `device`.
  static Result<std::unique_ptr<Tuner>> create(std::shared_ptr<Device> device, Cache& cache,
                                               TuneOptions options = {});
  /// Ends a search in the background; what it has found is kept.
  ~Tuner();
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  /// The variant to run: found for these sizes, or for the nearest that were measured and that fit; the initial one
  /// where there is nothing. Notes the call for what is done in the background.
  Variant choose(const Tunable& tunable);
  /// The same, but `describe` is called only if more than the kernel's name, sizes and types is needed.
  Variant choose(std::string_view kernel, std::span<const std::int64_t> sizes,
                 const std::function<Tunable()>& describe, std::string_view types = "f32");

  /// Returns a Job::report that tells the tuner how long a job with this variant took. A variant that has become
  /// slow is measured again. Empty if the tuner does not need the times.
  std::function<void(const JobReport&)> watch(std::string_view kernel, std::span<const std::int64_t> sizes,
                                              const Variant& variant, std::string_view types = "f32");

  /// Searches for the best variant now, until all were tried or `budget` is spent, starting from what an earlier
  /// search found. `progress` is called after each trial, and its time does not count against the budget; if it
  /// returns false, the search ends.
  Result<TuneRecord> tune(const Tunable& tunable, std::chrono::nanoseconds budget,
                          const std::function<bool(const TuneProgress&)>& progress = {});

  /// Whether all that was found or imported so far is in the cache's folder. The error says why some of it is not,
  /// as on a full disk; then it serves this tuner only.
  Result<void> saved() const;

  /// What is known for this device, also of other processes.
  std::vector<TuneRecord> records() const;
  /// Writes what is known to a file, and adds what such a file of the same device holds; how many records that
  /// were. Those of another driver or compiler are hints.
  Result<void> export_to(const std::filesystem::path& file) const;
  Result<std::size_t> import_from(const std::filesystem::path& file);
  /// Waits until nothing is left to do in the background.
  void drain();

  Device& device() const noexcept;
  Cache& cache() const noexcept;
  const TuneOptions& options() const noexcept;

 private:
  explicit Tuner(std::shared_ptr<tune::AutoTuner> tuner) noexcept : tuner_(std::move(tuner)) {}
  std::shared_ptr<tune::AutoTuner> tuner_;
};

}  // namespace kiln
