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

/// A number with which a kernel is compiled, and the values worth trying, smallest first.
struct TuneParameter {
  std::string name = {};
  std::vector<int> values = {};
  /// Whether values other than the first are tried only for frequent calls (TuneOptions::frequent), and are used
  /// only for exactly these sizes: for example, programs in which sizes are constants.
  bool when_frequent = false;
};

/// One value for each parameter, in their order.
using Variant = std::vector<int>;

/// A size of a call, on which the best variant depends, as in {"m", 1024}.
struct TuneSize {
  std::string name = {};
  std::int64_t value = 0;

  bool operator==(const TuneSize&) const = default;
};

/// A call that several variants of a kernel can do, all with the same result. A value. Its functions may be called
/// on any thread; with the background policy, the tuner keeps copies of them.
struct Tunable {
  /// The name of the kernel, with everything besides types and sizes that affects its speed: "gemm_nt".
  std::string kernel = {};
  std::string types = "f32";
  std::vector<TuneSize> sizes = {};
  std::vector<TuneParameter> parameters = {};
  /// The variant that runs while nothing is known, and the reference for results. It must work.
  Variant initial = {};
  /// Whether a variant can run on the device with these sizes; empty: all can. Other variants are never compiled.
  /// Must not call the tuner, which may hold a lock.
  std::function<bool(const Variant&)> fits = {};

  /// The shapes of the f32 tensors that a measurement works on. The tuner fills them with random numbers from -1 to
  /// 1.
  std::vector<Shape> inputs = {};
  /// A job that computes `result` from them with a variant.
  struct Call {
    Job job = {};
    Tensor result;
  };
  /// Makes the job of a variant; the tensors are those of `inputs`. An error, or an exception that is a
  /// std::exception, rules the variant out.
  std::function<Result<Call>(const Variant&, const std::vector<Tensor>&)> call = {};
  /// The largest difference between an element of the result and that of the initial variant, relative to the
  /// element, or to the root mean square of all if that is larger.
  double tolerance = 1e-3;
};

/// When a tuner searches for better variants.
enum class TunePolicy {
  /// Never: every call runs its initial variant.
  off,
  /// No search. Calls run the best variant that is stored for their sizes or for the nearest sizes.
  lookup,
  /// Calls run as with `lookup`; a thread searches meanwhile, and later calls run its results.
  background,
  /// A call for which nothing is known waits until all variants that fit are tried, or the budget is spent.
  exhaustive,
};

/// Options of a tuner.
struct TuneOptions {
  TunePolicy policy = TunePolicy::lookup;
  /// The time for the search of one call.
  std::chrono::nanoseconds budget = std::chrono::seconds(10);
  /// How long after the first call its search in the background begins, so that the calls' own programs come first.
  std::chrono::nanoseconds begin_after = std::chrono::seconds(1);
  /// The share of time in which the background policy compiles or keeps the device busy.
  double duty = 0.05;
  /// Calls with larger inputs are not searched in the background, because a search needs as much memory again.
  std::uint64_t background_bytes = std::uint64_t{256} << 20;
  /// A call counts as frequent from this number on, over all processes.
  std::uint64_t frequent = 1000;
  /// How long one run of a variant may take before it counts as hung. Some drivers compile at the first run.
  std::chrono::nanoseconds time_limit = std::chrono::seconds(10);
  /// The same seed tries the same variants in the same order, as long as the measurements agree.
  std::uint64_t seed = 0;
  /// The share of calls that run a variant nearly as good as the best, to compare them. If it is not 0, the same
  /// call may sum in another order, and its result differ in the last bits.
  double rivals = 0;
  /// Receives the tuner's messages.
  Log log = {};
};

/// A variant and its measured time.
struct TuneTrial {
  Variant variant = {};
  /// The median of its runs, by the device's clock; 0 if it cannot be used.
  std::chrono::nanoseconds time = {};
  /// Why it cannot be used; empty if it can.
  std::string problem = {};
};

/// The results of all searches for one call. A value.
struct TuneRecord {
  std::string kernel = {};
  std::string types = {};
  std::vector<TuneSize> sizes = {};
  std::vector<std::string> parameters = {};
  /// The best first; unusable variants last.
  std::vector<TuneTrial> trials = {};
  /// Whether a search has tried everything that it planned to.
  bool complete = false;
  /// Whether its times are only a starting point and are measured again: they come from another driver or compiler,
  /// or calls turned out to be much slower.
  bool hint = false;
  /// How often the call was made.
  std::uint64_t calls = 0;
};

/// The state of a search after a trial: see Tuner::tune(). A value.
struct TuneProgress {
  /// How many variants have been tried, by earlier searches too.
  std::size_t tried = 0;
  /// How many there are to try; an estimate.
  std::size_t of = 0;
  TuneTrial last = {};
  TuneTrial best = {};
  /// How long the last trial compiled and kept the device busy.
  std::chrono::nanoseconds busy = {};
};

/// Chooses the variants of calls, and measures which are best on this device. Results are kept in the cache's
/// folder (tuning.json) and used by every process. All functions may be called from any thread. One search measures
/// at a time; others wait for it.
class Tuner {
 public:
  /// A tuner for `device`, of which it shares ownership; `cache` must be one for the same device and outlive the
  /// tuner. Measurements run on an executor of its own. Returns no error today: stored results that cannot be read
  /// are logged and not used, and a device or cache that does not fit is an error of tune(). Throws
  /// std::system_error if the policy is `background` and no thread can be started.
  static Result<std::unique_ptr<Tuner>> create(std::shared_ptr<Device> device, Cache& cache,
                                               TuneOptions options = {});
  /// Ends the search in the background after its present trial, and saves its results. No other function may be
  /// running. Must not be called from a function of a Tunable or from `progress`.
  ~Tuner();
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  /// The variant to run: the best one known for these sizes, or for the nearest sizes that were measured; the
  /// initial one if nothing is known. Counts the call, and queues a search if the policy is `background`. If it is
  /// `exhaustive`, the first call searches before it returns. A search that fails is logged. Exceptions from
  /// functions of the Tunable are passed on.
  Variant choose(const Tunable& tunable);
  /// The same, but `describe` is called, before this returns, only if more than the kernel's name, sizes and types
  /// is needed.
  Variant choose(std::string_view kernel, std::span<const std::int64_t> sizes,
                 const std::function<Tunable()>& describe, std::string_view types = "f32");

  /// A function for Job::report that tells the tuner how long a job with this variant took. A variant that has
  /// become slow is measured again. Empty if the tuner does not need the times. It may outlive the tuner and be
  /// called from any thread.
  std::function<void(const JobReport&)> watch(std::string_view kernel, std::span<const std::int64_t> sizes,
                                              const Variant& variant, std::string_view types = "f32");

  /// Searches for the best variant now, with any policy, until all are tried or `budget` is spent. Continues an
  /// earlier search. Results are saved as they come: see saved(). `progress` is called after each trial, on this
  /// thread; its time does not count against the budget. If it returns false, the search ends; if it throws, the
  /// exception is passed on.
  ///
  /// A variant that fails, computes something else or hangs is a trial with a `problem`, not an error. Errors are
  /// those of Executor::create(), those of the initial variant's job (timed_out if it hangs), those of a device
  /// that no longer runs the initial variant, unsupported for inputs of more than Tensor::max_count elements, and
  /// device_failed for every call after a variant has hung: nothing is measured beside it in this process.
  Result<TuneRecord> tune(const Tunable& tunable, std::chrono::nanoseconds budget,
                          const std::function<bool(const TuneProgress&)>& progress = {});

  /// Whether everything that was found or imported so far is in the cache's folder. If not, returns the first
  /// error: io, or unsupported if a newer version of Kiln wrote the file. The records then serve this tuner only.
  Result<void> saved() const;

  /// A copy of all records for this device, with those that other processes had saved when this tuner was created.
  std::vector<TuneRecord> records() const;
  /// Writes all records to a file. Fails with io.
  Result<void> export_to(const std::filesystem::path& file) const;
  /// Adds the records of a file that export_to() wrote for the same device, and returns their number. Records of
  /// another driver or compiler become hints. Fails with io; damaged if it is no file of export_to(); unsupported
  /// if a newer version of Kiln wrote it; and invalid_request if it is for another device.
  Result<std::size_t> import_from(const std::filesystem::path& file);
  /// Waits until no search in the background is left; may never return if other threads keep calling.
  void drain();

  /// The arguments of create(). Valid as long as the tuner.
  Device& device() const noexcept;
  Cache& cache() const noexcept;
  const TuneOptions& options() const noexcept;

 private:
  explicit Tuner(std::shared_ptr<tune::AutoTuner> tuner) noexcept : tuner_(std::move(tuner)) {}
  std::shared_ptr<tune::AutoTuner> tuner_;
};

}  // namespace kiln
