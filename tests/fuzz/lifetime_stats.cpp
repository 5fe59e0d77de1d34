#include "store/bookkeeping.hpp"

#include "fuzz/input.hpp"
#include "store/json_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kiln;
  const auto json = store::parse_json(fuzz::Input(data, size).rest());
  if (!json) return 0;
  store::LifetimeStats stats = store::lifetime_in(*json);
  fuzz::expect(store::parse_json(stats.totals.to_json()).has_value(), "statistics are an object");
  const auto written = store::to_json(stats);
  const auto again = store::parse_json(written.dump());
  fuzz::expect(again && store::to_json(store::lifetime_in(*again)) == written,
               "statistics are read as they were written");
  // As often as processes add to it, a count that is too large stays where it is.
  stats.totals.requests += stats.totals.requests;
  stats.totals.compile_time += stats.totals.compile_time;
  const store::LifetimeStats later = store::lifetime_in(store::to_json(stats));
  fuzz::expect(later.totals.requests <= stats.totals.requests && later.totals.compile_time.count() >= 0,
               "sums stay numbers");
  return 0;
}
