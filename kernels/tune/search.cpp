#include "kernels/tune/search.hpp"

#include <algorithm>
#include <iterator>

namespace kiln::tune {
namespace {

/// Up to this many variants are all tried.
constexpr std::size_t few = 96;
/// Otherwise, this many random variants are tried,
constexpr std::size_t at_first = 32;
/// and the neighbours of this many of the best.
constexpr std::size_t best = 3;
/// Limits on the effort to find variants that fit.
constexpr std::size_t most_combinations = 1'000'000;
constexpr int draws = 1000;

}  // namespace

Search::Search(const Tunable& tunable, std::uint64_t seed, bool frequent)
    : tunable_(tunable), parameters_(tunable.parameters), frequent_(frequent), random_(seed) {
  for (TuneParameter& parameter : parameters_)
    if (parameter.when_frequent) parameter.values.resize(1);
  list_all();
}

bool Search::fits(const Variant& variant) const { return !tunable_.fits || tunable_.fits(variant); }

void Search::list_all() {
  std::size_t combinations = 1;
  for (const TuneParameter& parameter : parameters_) {
    combinations *= parameter.values.size();
    if (combinations > most_combinations) return;
  }
  for (std::size_t number = 0; number < combinations; ++number) {
    Variant variant;
    std::size_t rest = number;
    for (const TuneParameter& parameter : parameters_) {
      variant.push_back(parameter.values[rest % parameter.values.size()]);
      rest /= parameter.values.size();
    }
    if (!fits(variant)) continue;
    if (all_.size() == few) {
      all_.clear();
      return;
    }
    all_.push_back(std::move(variant));
  }
  few_ = true;
  // Not std::shuffle, whose order depends on the standard library.
  for (std::size_t i = all_.size(); i > 1; --i) std::swap(all_[i - 1], all_[random_() % i]);
}

bool Search::is_special(const Variant& variant) const {
  for (std::size_t i = 0; i < variant.size(); ++i)
    if (tunable_.parameters[i].when_frequent && variant[i] != tunable_.parameters[i].values.front()) return true;
  return false;
}

std::optional<Variant> Search::at_random() {
  for (int draw = 0; draw < draws; ++draw) {
    Variant variant;
    for (const TuneParameter& parameter : parameters_)
      variant.push_back(parameter.values[random_() % parameter.values.size()]);
    if (!known_.contains(variant) && fits(variant)) return variant;
  }
  return std::nullopt;
}

std::vector<Variant> Search::neighbours(const Variant& variant) const {
  std::vector<Variant> found;
  for (std::size_t i = 0; i < variant.size(); ++i) {
    const std::vector<int>& values = parameters_[i].values;
    const auto at = std::find(values.begin(), values.end(), variant[i]);
    if (at == values.end()) continue;
    const auto add = [&](int value) {
      Variant other = variant;
      other[i] = value;
      if (!known_.contains(other) && fits(other)) found.push_back(std::move(other));
    };
    if (at != values.begin()) add(*(at - 1));
    if (at + 1 != values.end()) add(*(at + 1));
  }
  return found;
}

std::vector<Variant> Search::specialised(const Variant& variant) const {
  std::vector<Variant> found;
  for (std::size_t i = 0; i < variant.size(); ++i) {
    if (!tunable_.parameters[i].when_frequent) continue;
    for (const int value : tunable_.parameters[i].values) {
      Variant other = variant;
      other[i] = value;
      if (!known_.contains(other) && fits(other)) found.push_back(std::move(other));
    }
  }
  return found;
}

std::vector<Variant> Search::next(std::size_t most) {
  std::vector<Variant> batch;
  const auto take = [&](const Variant& variant) {
    if (batch.size() < most && known_.insert(variant).second) batch.push_back(variant);
  };
  if (preferred_) take(*preferred_);
  // The reference for all comparisons.
  if (fits(tunable_.initial)) take(tunable_.initial);
  for (const Variant& variant : all_) take(variant);
  const std::size_t leading = std::min(best, ranked_.size());
  std::vector<Variant> near;
  for (std::size_t i = 0; !few_ && i < leading; ++i)
    std::ranges::copy(neighbours(ranked_[i].variant), std::back_inserter(near));
  auto nearest = near.begin();
  // Alternate, so that a short search tries both neighbours and random variants.
  while (!few_ && batch.size() < most && (nearest != near.end() || drawn_ < at_first)) {
    if (nearest != near.end() && (known_.size() % 2 != 0 || drawn_ >= at_first)) {
      take(*nearest++);
      continue;
    }
    const auto variant = at_random();
    drawn_ = variant ? drawn_ + 1 : at_first;
    if (variant) take(*variant);
  }
  if (!frequent_ || !batch.empty()) return batch;
  for (std::size_t i = 0; i < leading; ++i)
    for (const Variant& variant : specialised(ranked_[i].variant)) take(variant);
  return batch;
}

void Search::learn(const TuneTrial& trial) {
  // Trials of earlier searches count as drawn.
  if (known_.insert(trial.variant).second) ++drawn_;
  std::erase_if(ranked_, [&](const TuneTrial& one) { return one.variant == trial.variant; });
  if (!trial.problem.empty() || is_special(trial.variant)) return;
  const auto after =
      std::find_if(ranked_.begin(), ranked_.end(), [&](const TuneTrial& one) { return one.time > trial.time; });
  ranked_.insert(after, trial);
}

std::size_t Search::size() const noexcept {
  return few_ ? std::max(known_.size(), all_.size())
              : std::max(known_.size(), at_first + 2 * best * tunable_.parameters.size());
}

}  // namespace kiln::tune
