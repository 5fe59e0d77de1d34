#include "kernels/tune/use.hpp"

#include <algorithm>
#include <cmath>

namespace kiln::tune {

void Average::add(std::chrono::nanoseconds took) {
  // Cap outliers, such as a call that was delayed by other work.
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

namespace {

/// Records of sizes that differ by more than this factor do not apply.
constexpr double near_enough = 4;

/// The distance between the sizes of two calls; nothing if they cannot be compared.
std::optional<double> distance(const std::vector<TuneSize>& a, const std::vector<TuneSize>& b) {
  if (a.size() != b.size()) return std::nullopt;
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].name != b[i].name) return std::nullopt;
    const double apart = std::log2((static_cast<double>(a[i].value) + 1) / (static_cast<double>(b[i].value) + 1));
    if (std::abs(apart) > std::log2(near_enough)) return std::nullopt;
    sum += apart * apart;
  }
  return sum;
}

/// The best variant of a record that this call can run.
std::optional<Variant> usable(const TuneRecord& record, const Tunable& tunable) {
  if (record.parameters != record_for(tunable).parameters) return std::nullopt;
  for (const TuneTrial& trial : record.trials)
    if (trial.problem.empty() && has(tunable, trial.variant)) return trial.variant;
  return std::nullopt;
}

}  // namespace

bool has(const Tunable& tunable, const Variant& variant) {
  if (variant.size() != tunable.parameters.size()) return false;
  for (std::size_t i = 0; i < variant.size(); ++i)
    if (std::ranges::find(tunable.parameters[i].values, variant[i]) == tunable.parameters[i].values.end())
      return false;
  return !tunable.fits || tunable.fits(variant);
}

TuneRecord record_for(const Tunable& tunable) {
  TuneRecord record{.kernel = tunable.kernel, .types = tunable.types, .sizes = tunable.sizes};
  for (const TuneParameter& parameter : tunable.parameters) record.parameters.push_back(parameter.name);
  return record;
}

Variant for_any(Variant variant, const Tunable& tunable) {
  for (std::size_t i = 0; i < variant.size(); ++i)
    if (tunable.parameters[i].when_frequent) variant[i] = tunable.parameters[i].values.front();
  return variant;
}

std::optional<Variant> best_known(const Tunable& tunable, const Records& own, const Records& relatives) {
  const TuneRecord like = record_for(tunable);
  if (const TuneRecord* exact = own.find(like))
    if (auto variant = usable(*exact, tunable)) return variant;
  for (const Records* records : {&own, &relatives}) {
    std::optional<Variant> nearest;
    double least = 0;
    for (const TuneRecord& record : records->all()) {
      if (record.kernel != like.kernel || record.types != like.types) continue;
      const auto apart = distance(record.sizes, like.sizes);
      if (!apart || (nearest && *apart >= least)) continue;
      if (const auto variant = usable(record, tunable)) {
        nearest = for_any(*variant, tunable);
        least = *apart;
      }
    }
    if (nearest) return nearest;
  }
  return std::nullopt;
}

}  // namespace kiln::tune
