#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include <kiln/kernels/tuner.hpp>

namespace kiln::tune {

/// The order in which to try variants. If there are few, all of them; otherwise neighbours of the best ones,
/// alternating with random ones. For a frequent call, then the best few with the parameters for frequent calls.
/// Depends only on the seed and the measurements.
class Search {
 public:
  Search(const Tunable& tunable, std::uint64_t seed, bool frequent);

  /// The next variants to try, at most `most`; none if the search is over.
  std::vector<Variant> next(std::size_t most);
  /// Sets a variant to try first.
  void prefer(const Variant& variant) { preferred_ = variant; }
  /// Adds a measurement of this or an earlier search.
  void learn(const TuneTrial& trial);
  /// The total number of variants to try; an estimate if there are many.
  std::size_t size() const noexcept;

 private:
  bool fits(const Variant& variant) const;
  /// Whether the variant is only for frequent calls.
  bool is_special(const Variant& variant) const;
  /// Fills all_ with the variants that fit, if they are few.
  void list_all();
  /// A random variant that fits and is new; nothing if none was found.
  std::optional<Variant> at_random();
  /// New variants that differ in one parameter, by one step.
  std::vector<Variant> neighbours(const Variant& variant) const;
  /// New variants with other values of the parameters for frequent calls.
  std::vector<Variant> specialised(const Variant& variant) const;

  const Tunable& tunable_;
  /// Without the values for frequent calls.
  std::vector<TuneParameter> parameters_;
  const bool frequent_;
  std::mt19937_64 random_;
  /// All variants in the order of trial, if they are few.
  std::vector<Variant> all_;
  bool few_ = false;
  std::size_t drawn_ = 0;
  std::optional<Variant> preferred_;
  /// Variants that next() returned or learn() received.
  std::set<Variant> known_;
  /// The usable variants, best first, without those for frequent calls.
  std::vector<TuneTrial> ranked_;
};

}  // namespace kiln::tune
