#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "kernels/tune/search.hpp"

namespace kiln::tune {
namespace {

/// A call whose time is least at `best`, and grows with every step away from it.
struct Valley {
  Tunable tunable = {};
  Variant best = {};

  std::chrono::nanoseconds time(const Variant& variant) const {
    std::int64_t steps = 0;
    for (std::size_t i = 0; i < variant.size(); ++i) {
      const auto& values = tunable.parameters[i].values;
      const auto at = [&values](int value) {
        return std::find(values.begin(), values.end(), value) - values.begin();
      };
      steps += std::abs(at(variant[i]) - at(best[i]));
    }
    return std::chrono::nanoseconds(1000 + 100 * steps);
  }
  /// All that were tried, in their order.
  std::vector<Variant> search(std::uint64_t seed, std::size_t at_once = 8, std::vector<TuneTrial> known = {},
                              bool frequent = false) const {
    Search search(tunable, seed, frequent);
    for (const TuneTrial& trial : known) search.learn(trial);
    std::vector<Variant> tried;
    for (auto batch = search.next(at_once); !batch.empty(); batch = search.next(at_once))
      for (const Variant& variant : batch) {
        tried.push_back(variant);
        search.learn({.variant = variant, .time = time(variant)});
      }
    return tried;
  }
};

Valley small() {
  Valley valley{.best = {4, 2}};
  valley.tunable.parameters = {{"a", {1, 2, 4, 8}}, {"b", {1, 2, 3}}};
  valley.tunable.initial = {1, 1};
  return valley;
}

Valley large() {
  Valley valley{.best = {16, 8, 4, 64, 2}};
  const std::vector<int> values = {1, 2, 4, 8, 16, 32, 64};
  for (const char* name : {"a", "b", "c", "d", "e"}) valley.tunable.parameters.push_back({name, values});
  valley.tunable.initial = {1, 1, 1, 1, 1};
  return valley;
}

TEST(Search, FewVariantsAreAllTriedOnceTheInitialOneFirst) {
  const auto tried = small().search(0);
  EXPECT_EQ(tried.size(), 12U);
  EXPECT_EQ(std::set(tried.begin(), tried.end()).size(), 12U);
  EXPECT_EQ(tried.front(), (Variant{1, 1}));
}

TEST(Search, WhatDoesNotFitIsNeverGivenOut) {
  for (Valley valley : {small(), large()}) {
    valley.tunable.fits = [](const Variant& variant) { return variant[0] * variant[1] <= 8; };
    const auto tried = valley.search(1);
    EXPECT_FALSE(tried.empty());
    EXPECT_TRUE(std::all_of(tried.begin(), tried.end(), valley.tunable.fits));
  }
}

TEST(Search, OfManyItFindsTheBestAndTriesFew) {
  const Valley valley = large();
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const auto tried = valley.search(seed);
    EXPECT_NE(std::find(tried.begin(), tried.end(), valley.best), tried.end()) << seed;
    EXPECT_LT(tried.size(), 400U);
    EXPECT_EQ(std::set(tried.begin(), tried.end()).size(), tried.size());
  }
}

TEST(Search, NeighboursOfTheBestTakeTurnsWithOthersFromTheStart) {
  Valley valley = large();
  valley.best = valley.tunable.initial = {4, 4, 4, 4, 4};
  const auto tried = valley.search(0, 4);
  const auto is_neighbour = [&](const Variant& variant) {
    int differ = 0;
    for (std::size_t i = 0; i < variant.size(); ++i) differ += variant[i] != valley.tunable.initial[i] ? 1 : 0;
    return differ == 1;
  };
  EXPECT_EQ(std::count_if(tried.begin() + 4, tried.begin() + 8, is_neighbour), 2);
  EXPECT_EQ(std::count_if(tried.begin() + 8, tried.begin() + 12, is_neighbour), 2);
}

TEST(Search, TheSameSeedTriesTheSame) {
  const Valley valley = large();
  EXPECT_EQ(valley.search(7), valley.search(7));
  EXPECT_NE(valley.search(7), valley.search(8));
}

TEST(Search, GoesOnWhereAnEarlierOneEnded) {
  const Valley valley = large();
  const auto all = valley.search(3);
  std::vector<TuneTrial> known;
  for (std::size_t i = 0; i < all.size() / 2; ++i)
    known.push_back({.variant = all[i], .time = valley.time(all[i])});
  const auto rest = valley.search(3, 8, known);
  for (const TuneTrial& trial : known) EXPECT_EQ(std::find(rest.begin(), rest.end(), trial.variant), rest.end());
  const bool found =
      std::find(rest.begin(), rest.end(), valley.best) != rest.end() ||
      std::any_of(known.begin(), known.end(), [&](const auto& one) { return one.variant == valley.best; });
  EXPECT_TRUE(found);
}

TEST(Search, WhatIsForFrequentCallsIsTriedForThemAloneAndLast) {
  for (Valley valley : {small(), large()}) {
    valley.tunable.parameters.push_back({.name = "constants", .values = {0, 1}, .when_frequent = true});
    valley.tunable.initial.push_back(0);
    valley.best.push_back(1);
    const auto constant = [](const Variant& variant) { return variant.back() == 1; };
    const auto seldom = valley.search(2);
    EXPECT_TRUE(std::ranges::none_of(seldom, constant));
    const auto often = valley.search(2, 8, {}, true);
    EXPECT_TRUE(std::ranges::is_partitioned(often, [&](const Variant& variant) { return !constant(variant); }));
    EXPECT_EQ(std::ranges::count_if(often, constant), 3);
    EXPECT_NE(std::ranges::find(often, valley.best), often.end());
    // What became frequent later.
    std::vector<TuneTrial> known;
    for (const Variant& variant : seldom) known.push_back({.variant = variant, .time = valley.time(variant)});
    EXPECT_TRUE(std::ranges::all_of(valley.search(2, 8, known, true), constant));
  }
}

TEST(Search, WithoutAnyThatFitsItIsOver) {
  Valley valley = small();
  valley.tunable.fits = [](const Variant&) { return false; };
  EXPECT_TRUE(valley.search(0).empty());
  valley = large();
  valley.tunable.fits = [](const Variant&) { return false; };
  EXPECT_TRUE(valley.search(0).empty());
}

}  // namespace
}  // namespace kiln::tune
