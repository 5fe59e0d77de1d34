#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <kiln/kernels/tuner.hpp>

#include "base/mutex.hpp"
#include "kernels/tune/records.hpp"
#include "kernels/tune/use.hpp"

namespace kiln::tune {

class Bench;

/// Variants whose time is within this factor of the best are compared with it again, or tried in calls; at most
/// this many.
inline constexpr double close_to_best = 1.1;
inline constexpr std::size_t most_compared = 4;

/// The implementation of Tuner: the records, the choices made from them, and the background search thread.
class AutoTuner : public std::enable_shared_from_this<AutoTuner> {
 public:
  AutoTuner(std::shared_ptr<Device> device, Cache& cache, TuneOptions options);
  ~AutoTuner();
  AutoTuner(const AutoTuner&) = delete;
  AutoTuner& operator=(const AutoTuner&) = delete;

  /// Loads the records, and starts the background thread if the policy asks for one.
  Result<void> start();
  /// Ends the background thread, and writes call counts that are not on disk yet.
  void end() KILN_EXCLUDES(mutex_);

  /// The variant to run for a call of `kernel` with these sizes. Calls `describe` only if it needs the whole
  /// Tunable.
  Variant choose(std::string_view kernel, std::string_view types, std::span<const std::int64_t> sizes,
                 const std::function<Tunable()>& describe) KILN_EXCLUDES(mutex_);
  std::function<void(const JobReport&)> watch(std::string_view kernel, std::string_view types,
                                              std::span<const std::int64_t> sizes, const Variant& variant);
  Result<TuneRecord> tune(const Tunable& tunable, std::chrono::nanoseconds budget,
                          const std::function<bool(const TuneProgress&)>& progress) KILN_EXCLUDES(mutex_);
  Result<void> saved() const KILN_EXCLUDES(mutex_);
  std::vector<TuneRecord> records() const KILN_EXCLUDES(mutex_);
  Result<void> export_to(const std::filesystem::path& file) const KILN_EXCLUDES(mutex_);
  Result<std::size_t> import_from(const std::filesystem::path& file) KILN_EXCLUDES(mutex_);
  void drain() KILN_EXCLUDES(mutex_);

  Device& device() const noexcept { return *device_; }
  Cache& cache() const noexcept { return cache_; }
  const TuneOptions& options() const noexcept { return options_; }

 private:
  struct Call {
    std::string kernel;
    std::string types;
    std::vector<std::int64_t> sizes;

    auto operator<=>(const Call&) const = default;
  };
  struct Waiting {
    Tunable tunable;
    std::chrono::steady_clock::time_point from;
  };

  /// Chooses from the records, and queues a background search if one is needed.
  Variant choose_again(Use& use, const Tunable& tunable) KILN_REQUIRES(mutex_);
  /// Whether a search would find nothing new.
  bool is_known(const Use& use, const Tunable& tunable) const KILN_REQUIRES(mutex_);
  std::uint64_t calls_of(const Use& use) const KILN_REQUIRES(mutex_);
  /// The kind of search that the call needs.
  Use::Looked looks_of(const Use& use) const KILN_REQUIRES(mutex_);
  bool is_to_be_searched(const Use& use, const Tunable& tunable) const KILN_REQUIRES(mutex_);
  /// Clears uses_, but keeps the call counts in unwritten_.
  void forget_uses() KILN_REQUIRES(mutex_);
  void observe(const Call& call, const Variant& variant, std::chrono::nanoseconds took) KILN_EXCLUDES(mutex_);
  /// Records the time of a call and acts on it. Returns a log message, or an empty string.
  std::string learn(const Call& call, const Variant& variant, std::chrono::nanoseconds took) KILN_REQUIRES(mutex_);
  /// Adds a record in memory and on disk; later calls choose again.
  void keep(TuneRecord record) KILN_EXCLUDES(mutex_);
  void write(const std::vector<TuneRecord>& records) KILN_EXCLUDES(mutex_);
  struct How {
    /// Whether to try variants for exactly these sizes as well.
    bool frequent = false;
    /// Whether the search delays no other work, so that many variants may be compiled at once.
    bool alone = false;
  };
  Result<TuneRecord> search(const Tunable& tunable, std::chrono::nanoseconds budget, How how,
                            const std::function<bool(const TuneProgress&)>& progress) KILN_EXCLUDES(mutex_);
  /// Measures the variants close to the best again, together with the initial one.
  Result<void> compare_close(Bench& bench, const Variant& initial, TuneRecord& record);
  void work_in_background() KILN_EXCLUDES(mutex_);
  /// Pauses after the device was busy for `busy`, as options_.duty requires. False if the tuner ends, or if a
  /// caller of tune() waits.
  bool rest(std::chrono::nanoseconds busy) KILN_EXCLUDES(mutex_);

  const std::shared_ptr<Device> device_;
  Cache& cache_;
  const TuneOptions options_;
  std::unique_ptr<Executor> executor_;

  mutable base::Mutex mutex_;
  base::Condition changed_;
  Records records_ KILN_GUARDED_BY(mutex_);
  /// Records of other devices of the same vendor.
  Records relatives_ KILN_GUARDED_BY(mutex_);
  std::map<Call, Use> uses_ KILN_GUARDED_BY(mutex_);
  /// Records learnt from calls that are not on disk yet.
  std::vector<TuneRecord> unwritten_ KILN_GUARDED_BY(mutex_);
  /// The first error from writing records.
  std::optional<Error> unsaved_ KILN_GUARDED_BY(mutex_);
  /// Calls that wait for a background search, oldest first.
  std::deque<Waiting> waiting_ KILN_GUARDED_BY(mutex_);
  bool searching_ KILN_GUARDED_BY(mutex_) = false;
  /// The number of callers inside tune().
  int asked_ KILN_GUARDED_BY(mutex_) = 0;
  bool ends_ KILN_GUARDED_BY(mutex_) = false;
  /// Only one search measures at a time.
  base::Mutex measuring_;
  /// The kernel of a variant that hung and may still run; empty if there is none.
  std::string stuck_ KILN_GUARDED_BY(measuring_);
  std::thread background_;
};

}  // namespace kiln::tune
