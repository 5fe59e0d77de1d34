#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include <kiln/kernels/tuner.hpp>

namespace kiln::tune {

/// In which order variants are tried: all of them where they are few; else the neighbours of the best as long as
/// there are any, in turns with some at random. For a frequent call then the best few with the parameters that are
/// for such calls. A function of the seed and of what was measured, and of nothing else.
class Search {
 public:
  Search(const Tunable& tunable, std::uint64_t seed, bool frequent);

  /// The variants to try next, any number of them at once; none where the search is over.
  std::vector<Variant> next(std::size_t most);
  /// One to try before all others.
  void prefer(const Variant& variant) { preferred_ = variant; }
  /// What was measured, here or earlier.
  void learn(const TuneTrial& trial);
  /// How many are tried in all; a guess where they are many.
  std::size_t size() const noexcept;

 private:
  bool fits(const Variant& variant) const;
  /// Whether it is for a frequent call alone.
  bool is_special(const Variant& variant) const;
  /// All variants, as far as they fit and are few; nothing where they are many.
  void list_all();
  /// One at random that fits and was not tried; nothing where none was found.
  std::optional<Variant> at_random();
  /// Those that differ from it in one parameter, by one value, and were not tried.
  std::vector<Variant> neighbours(const Variant& variant) const;
  /// The same with each other value of the parameters for frequent calls.
  std::vector<Variant> specialised(const Variant& variant) const;

  const Tunable& tunable_;
  /// With the first value alone of those for frequent calls.
  std::vector<TuneParameter> parameters_;
  const bool frequent_;
  std::mt19937_64 random_;
  /// All, in the order in which they are tried, where they are few.
  std::vector<Variant> all_;
  bool few_ = false;
  std::size_t drawn_ = 0;
  std::optional<Variant> preferred_;
  /// What was given out or learnt of.
  std::set<Variant> known_;
  /// The usable ones for any call, the best first.
  std::vector<TuneTrial> ranked_;
};

}  // namespace kiln::tune
