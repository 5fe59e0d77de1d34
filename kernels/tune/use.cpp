#include "kernels/tune/use.hpp"

#include <algorithm>
#include <cmath>

namespace kiln::tune {

void Average::add(std::chrono::nanoseconds took) {
  // One that was held up says nothing of the others.
  constexpr double most = 4;
  const auto value = static_cast<double>(took.count());
  runs_ = std::min(runs_ + 1, enough);
  mean_ += ((runs_ > 1 ? std::min(value, most * mean_) : value) - mean_) / runs_;
}

const Variant& Use::next(double share) const {
  if (share <= 0 || rivals.empty()) return *best;
  const auto every = static_cast<std::uint64_t>(std::max(2.0, std::ceil(1 / share)));
  return calls % every == 0 ? rivals[calls / every % rivals.size()] : *best;
}

}  // namespace kiln::tune
