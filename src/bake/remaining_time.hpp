#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

namespace kiln::baking {

/// Estimates when all programs are compiled: from what they are expected to cost, and from how long those of each
/// target took so far.
class RemainingTime {
 public:
  RemainingTime(std::size_t targets, unsigned threads) : targets_(targets), threads_(threads) {}

  void expect(std::size_t target, double cost) { targets_[target].cost_left += cost; }
  void finish(std::size_t target, double cost, std::chrono::nanoseconds time) {
    targets_[target].cost_left = std::max(targets_[target].cost_left - cost, 0.0);
    targets_[target].cost_done += cost;
    targets_[target].time += time;
  }

  /// Nothing before the first program is done.
  std::optional<std::chrono::nanoseconds> estimate() const {
    Costs all;
    for (const Costs& target : targets_) {
      all.cost_done += target.cost_done;
      all.time += target.time;
    }
    if (all.cost_done <= 0) return std::nullopt;
    std::chrono::duration<double, std::nano> left{};
    // A target of which nothing is known yet is as fast as the others.
    for (const Costs& target : targets_) {
      const Costs& known = target.cost_done > 0 ? target : all;
      left += known.time * (target.cost_left / known.cost_done);
    }
    return std::chrono::duration_cast<std::chrono::nanoseconds>(left / threads_);
  }

 private:
  struct Costs {
    double cost_left = 0;
    double cost_done = 0;
    std::chrono::duration<double, std::nano> time = {};
  };

  std::vector<Costs> targets_;
  unsigned threads_;
};

}  // namespace kiln::baking
