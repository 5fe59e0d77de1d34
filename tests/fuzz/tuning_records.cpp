#include "fuzz/input.hpp"
#include "kernels/tune/records.hpp"

namespace kiln::fuzz {
namespace {

void expect_sound(const TuneRecord& record) {
  for (std::size_t i = 0; i < record.trials.size(); ++i) {
    const TuneTrial& trial = record.trials[i];
    expect(trial.variant.size() == record.parameters.size(), "a variant has a value for each parameter");
    expect(!trial.problem.empty() || trial.time.count() > 0, "what can be used took some time");
    if (i == 0) continue;
    const TuneTrial& before = record.trials[i - 1];
    expect(!trial.problem.empty() || (before.problem.empty() && before.time <= trial.time), "the best come first");
  }
}

}  // namespace
}  // namespace kiln::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kiln;
  const auto parsed = tune::parse(fuzz::Input(data, size).rest());
  if (!parsed || !*parsed) return 0;
  const auto& [identity, records] = **parsed;
  const std::string text = tune::to_json(identity, records);
  const auto again = tune::parse(text);
  fuzz::expect(again && *again && tune::to_json((*again)->identity, (*again)->records) == text,
               "records are read as they were written");
  tune::Records all;
  all.add(records);
  all.add(records);
  for (const TuneRecord& record : records) {
    fuzz::expect_sound(record);
    fuzz::expect(all.find(record) != nullptr, "a record that was added is found");
  }
  for (const TuneRecord& record : all.all()) fuzz::expect_sound(record);
  return 0;
}
