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

#include <kiln/tune.hpp>

#include "base/mutex.hpp"
#include "tune/records.hpp"

namespace kiln::tune {

class Bench;

/// What a Tuner is: the records, the choices made from them, and the thread that makes them better.
class Core {
 public:
  Core(std::shared_ptr<Device> device, Cache& cache, TuneOptions options);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  /// Reads what is known, and begins to work in the background where that is asked for.
  Result<void> start();

  /// The variant to run for a call of `kernel` with these sizes, which `describe` tells all about where it is asked.
  Variant choose(std::string_view kernel, std::span<const std::int64_t> sizes,
                 const std::function<Tunable()>& describe) KILN_EXCLUDES(mutex_);
  Result<TuneRecord> tune(const Tunable& tunable, std::chrono::nanoseconds budget,
                          const std::function<bool(const TuneProgress&)>& progress) KILN_EXCLUDES(mutex_);
  std::vector<TuneRecord> records() const KILN_EXCLUDES(mutex_);
  Result<void> export_to(const std::filesystem::path& file) const KILN_EXCLUDES(mutex_);
  Result<std::size_t> import_from(const std::filesystem::path& file) KILN_EXCLUDES(mutex_);
  void drain() KILN_EXCLUDES(mutex_);

  Device& device() const noexcept { return *device_; }
  Cache& cache() const noexcept { return cache_; }
  const TuneOptions& options() const noexcept { return options_; }

 private:
  /// A call by its kernel and its sizes.
  using Call = std::pair<std::string, std::vector<std::int64_t>>;

  /// The best that is known for a call; nothing where it is the initial one.
  std::optional<Variant> best_known(const Tunable& tunable) const KILN_REQUIRES(mutex_);
  /// Adds to what is known, in memory and on disk, and has calls choose anew.
  void keep(const TuneRecord& record) KILN_EXCLUDES(mutex_);
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
  std::map<Call, Variant, std::less<>> chosen_ KILN_GUARDED_BY(mutex_);
  /// Calls that are to be looked at in the background, the first that came first.
  std::deque<Tunable> waiting_ KILN_GUARDED_BY(mutex_);
  bool searching_ KILN_GUARDED_BY(mutex_) = false;
  bool ends_ KILN_GUARDED_BY(mutex_) = false;
  /// Only one search measures at a time.
  base::Mutex measuring_;
  std::thread background_;
};

}  // namespace kiln::tune
