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

/// What a variant takes as calls come and go: the mean of the last, of which no single one counts for much.
class Average {
 public:
  /// From so many on, it says something.
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

/// How a call is used in this process.
struct Use {
  static constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

  /// What it is a call of; no trials.
  TuneRecord like = {};
  /// What it runs; nothing where that is to be chosen anew.
  std::optional<Variant> best = {};
  /// What is nearly as good.
  std::vector<Variant> rivals = {};
  /// Calls that no record has counted yet.
  std::uint64_t calls = 0;
  /// At so many, it is chosen anew.
  std::uint64_t look_again = never;
  /// What it was searched for: not at all, as any call, as a frequent one.
  enum class Looked { never, once, as_frequent } looked = Looked::never;
  /// What its variants take in calls.
  std::map<Variant, Average> took = {};
  /// So many times as long as was measured is slow. More after each time that this was found, since calls may be
  /// slow for reasons that no variant can help.
  double slow = 1.5;

  /// The variant for the call that comes now, of which a share is for rivals.
  const Variant& next(double share) const;
};

/// A record of the call, without trials.
TuneRecord record_for(const Tunable& tunable);
/// Whether a call has such a variant: of listed values that fit. Files may hold any numbers.
bool has(const Tunable& tunable, const Variant& variant);
/// The same variant as one for any sizes.
Variant for_any(Variant variant, const Tunable& tunable);
/// The best that is known for a call: for its sizes, for the nearest, or for the nearest on a relative of the
/// device. Nothing where there is none that it can run.
std::optional<Variant> best_known(const Tunable& tunable, const Records& own, const Records& relatives);

}  // namespace kiln::tune
