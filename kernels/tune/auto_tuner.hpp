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

/// Those so close to the best are measured again together with it, or tried in calls, so many at most.
inline constexpr double close_to_best = 1.1;
inline constexpr std::size_t most_compared = 4;

/// What a Tuner is: the records, the choices made from them, and the thread that makes them better.
class AutoTuner : public std::enable_shared_from_this<AutoTuner> {
 public:
  AutoTuner(std::shared_ptr<Device> device, Cache& cache, TuneOptions options);
  ~AutoTuner();
  AutoTuner(const AutoTuner&) = delete;
  AutoTuner& operator=(const AutoTuner&) = delete;

  /// Reads what is known, and begins to work in the background where that is asked for.
  Result<void> start();
  /// Ends what is done in the background, and writes down what was called.
  void end() KILN_EXCLUDES(mutex_);

  /// The variant to run for a call of `kernel` with these sizes, which `describe` tells all about where it is
  /// asked.
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

  /// Chooses from the records; also what a call is to be looked at for, once more, in the background.
  Variant choose_anew(Use& use, const Tunable& tunable) KILN_REQUIRES(mutex_);
  /// Whether all is known of a call that there is to know.
  bool is_known(const Use& use, const Tunable& tunable) const KILN_REQUIRES(mutex_);
  std::uint64_t calls_of(const Use& use) const KILN_REQUIRES(mutex_);
  /// What a search for it would be for.
  Use::Looked looks_of(const Use& use) const KILN_REQUIRES(mutex_);
  bool is_to_be_searched(const Use& use, const Tunable& tunable) const KILN_REQUIRES(mutex_);
  /// Keeps how often they were called.
  void forget_uses() KILN_REQUIRES(mutex_);
  void observe(const Call& call, const Variant& variant, std::chrono::nanoseconds took) KILN_EXCLUDES(mutex_);
  /// What a call took, and what that changes; news for people, if any.
  std::string learn(const Call& call, const Variant& variant, std::chrono::nanoseconds took) KILN_REQUIRES(mutex_);
  /// Adds to what is known, in memory and on disk, and has calls choose anew.
  void keep(TuneRecord record) KILN_EXCLUDES(mutex_);
  void write(const std::vector<TuneRecord>& records) KILN_EXCLUDES(mutex_);
  struct How {
    /// Whether variants for these sizes alone are tried as well.
    bool frequent = false;
    /// Whether nothing else is held up, so that many variants may be compiled at once.
    bool alone = false;
  };
  Result<TuneRecord> search(const Tunable& tunable, std::chrono::nanoseconds budget, How how,
                            const std::function<bool(const TuneProgress&)>& progress) KILN_EXCLUDES(mutex_);
  /// Measures those anew that are close to the best, and the initial one beside them.
  Result<void> compare_close(Bench& bench, const Variant& initial, TuneRecord& record);
  void work_in_background() KILN_EXCLUDES(mutex_);
  /// Lets the device do other work for as long as the duty says after it was busy for so long; false where the
  /// tuner ends.
  bool rest(std::chrono::nanoseconds busy) KILN_EXCLUDES(mutex_);

  const std::shared_ptr<Device> device_;
  Cache& cache_;
  const TuneOptions options_;
  std::unique_ptr<Executor> executor_;

  mutable base::Mutex mutex_;
  base::Condition changed_;
  Records records_ KILN_GUARDED_BY(mutex_);
  /// Of other devices of this vendor's.
  Records relatives_ KILN_GUARDED_BY(mutex_);
  std::map<Call, Use> uses_ KILN_GUARDED_BY(mutex_);
  /// What was learnt from calls and is not on disk yet.
  std::vector<TuneRecord> unwritten_ KILN_GUARDED_BY(mutex_);
  /// Why records are not on disk: the first failure to write some.
  std::optional<Error> unsaved_ KILN_GUARDED_BY(mutex_);
  /// Calls that are to be looked at in the background, the first that came first.
  std::deque<Waiting> waiting_ KILN_GUARDED_BY(mutex_);
  bool searching_ KILN_GUARDED_BY(mutex_) = false;
  /// How many wait for a search of their own.
  int asked_ KILN_GUARDED_BY(mutex_) = 0;
  bool ends_ KILN_GUARDED_BY(mutex_) = false;
  /// Only one search measures at a time.
  base::Mutex measuring_;
  /// Of which kernel a variant may still run that did not end in time; empty where there is none.
  std::string stuck_ KILN_GUARDED_BY(measuring_);
  std::thread background_;
};

}  // namespace kiln::tune
