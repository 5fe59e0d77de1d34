#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include <kiln/kernels/tuner.hpp>

#include "kernels/tune/records.hpp"

namespace kiln::tune {

/// The mean time of a variant's recent calls, robust against outliers.
class Average {
 public:
  /// The number of calls from which on the mean is meaningful.
  static constexpr unsigned enough = 16;

  void add(std::chrono::nanoseconds took);
  bool tells() const noexcept { return runs_ >= enough; }
  std::chrono::nanoseconds time() const noexcept {
    return std::chrono::nanoseconds(static_cast<std::int64_t>(mean_));
  }

 private:
  double mean_ = 0;
  unsigned runs_ = 0;
};

/// How this process uses a call.
struct Use {
  static constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

  /// Identifies the call; has no trials.
  TuneRecord like = {};
  /// The variant to run; nothing if it must be chosen again.
  std::optional<Variant> best = {};
  /// Variants that are nearly as good.
  std::vector<Variant> rivals = {};
  /// Calls that are not in a record yet.
  std::uint64_t calls = 0;
  /// Choose again at this number of calls.
  std::uint64_t look_again = never;
  /// The last search for this call: none, a plain one, one for a frequent call.
  enum class Looked { never, once, as_frequent } looked = Looked::never;
  /// The times of its variants in calls.
  std::map<Variant, Average> took = {};
  /// Calls are slow if they take this many times as long as measured. Doubled after each detection, because calls
  /// may be slow for reasons that no variant can fix.
  double slow = 1.5;

  /// The variant for the current call; a share of the calls runs rivals.
  const Variant& next(double share) const;
};

/// A record of the call, without trials.
TuneRecord record_for(const Tunable& tunable);
/// Whether the tunable has this variant: its values are listed, and it fits. Files may contain any numbers.
bool has(const Tunable& tunable, const Variant& variant);
/// The same variant without the values for frequent calls.
Variant for_any(Variant variant, const Tunable& tunable);
/// The best variant known for a call: measured for its sizes, for the nearest sizes, or for the nearest sizes on a
/// related device. Nothing if there is none that the call can run.
std::optional<Variant> best_known(const Tunable& tunable, const Records& own, const Records& relatives);

}  // namespace kiln::tune
