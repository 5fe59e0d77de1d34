#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include <kiln/kernels/tuner.hpp>

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

}  // namespace kiln::tune
