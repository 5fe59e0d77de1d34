#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <thread>

#include <unistd.h>

#include "kernels/tune/tuner_fixture.hpp"

namespace kiln {
namespace {

class TuningTrouble : public Tuning {};

TEST_P(TuningTrouble, VariantsThatAreWrongOrDoNotCompileAreRememberedAndNotTriedAgain) {
  Cache cache(device_, options());
  const auto record = open(cache)->tune(tunable(device_, {0, 1, 2, 5}), std::chrono::minutes(1)).value();
  ASSERT_EQ(record.trials.size(), 24U);
  for (const TuneTrial& trial : record.trials)
    EXPECT_EQ(trial.problem.empty(), trial.variant[2] == 0) << trial.problem;
  EXPECT_EQ(record.trials.front().variant[2], 0);
  std::size_t tried = 0;
  const auto again =
      open(cache)->tune(tunable(device_, {0, 1, 2, 5}), std::chrono::minutes(1), [&](const TuneProgress&) {
        ++tried;
        return true;
      });
  EXPECT_EQ(tried, 0U);
  EXPECT_EQ(again.value().trials.size(), 24U);
}

TEST_P(TuningTrouble, GoesOnWhereItWasStopped) {
  Cache cache(device_, options());
  std::size_t tried = 0;
  const auto until = [&](std::size_t last) {
    return [&tried, last](const TuneProgress&) { return ++tried < last; };
  };
  EXPECT_FALSE(open(cache)->tune(tunable(device_), std::chrono::minutes(1), until(2)).value().complete);
  EXPECT_EQ(tried, 2U);
  EXPECT_TRUE(open(cache)->tune(tunable(device_), std::chrono::minutes(1), until(100)).value().complete);
  EXPECT_EQ(tried, 6U);
}

TEST_P(TuningTrouble, ATunerThatEndsInTheMiddleKeepsWhatItHas) {
  Cache cache(device_, options());
  open(cache, TunePolicy::background)->choose(tunable(device_));
  const auto tuner = open(cache);
  EXPECT_LE(tuner->records().size(), 1U);
}

TEST_P(TuningTrouble, ARecordOfOtherParametersIsMeasuredAnew) {
  Cache cache(device_, options());
  open(cache)->tune(tunable(device_), std::chrono::minutes(1)).value();
  Tunable later = tunable(device_);
  later.parameters.push_back({"split", {1, 2}});
  later.initial.push_back(1);
  const auto tuner = open(cache, TunePolicy::exhaustive);
  EXPECT_EQ(tuner->choose(later).size(), 4U);
  const std::vector<TuneRecord> records = tuner->records();
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].trials.size(), 12U);
  for (const TuneTrial& trial : records[0].trials) EXPECT_EQ(trial.variant.size(), 4U);
}

TEST_P(TuningTrouble, AFolderThatCannotBeWrittenCostsNothingButTheMemory) {
  CacheOptions nowhere = options();
  nowhere.directory = "/proc/no/such/folder";
  Cache cache(device_, nowhere);
  const auto tuner = open(cache);
  const auto record = tuner->tune(tunable(device_), std::chrono::minutes(1)).value();
  EXPECT_EQ(tuner->choose(tunable(device_)), record.trials.front().variant);
  EXPECT_FALSE(tuner->saved().ok());
}

TEST_P(TuningTrouble, TellsThatWhatItFoundIsNotOnDisk) {
  Cache cache(device_, options());
  if (cache.folder().empty()) GTEST_SKIP() << "the driver gives no binaries out";
  const auto tuner = open(cache);
  tuner->tune(tunable(device_), std::chrono::minutes(1)).value();
  EXPECT_TRUE(tuner->saved().ok());
  // Nothing can take the place of a folder.
  const auto file = cache.folder() / "tuning.json";
  std::filesystem::remove(file);
  std::filesystem::create_directories(file / "full");
  tuner->tune(tunable(device_, {0}, count + 1), std::chrono::minutes(1)).value();
  const auto saved = tuner->saved();
  ASSERT_FALSE(saved.ok());
  EXPECT_NE(saved.error().message().find(file.string()), std::string::npos) << saved.error().message();
}

TEST_P(TuningTrouble, NumbersThatNoParameterHasAreNotUsed) {
  Cache cache(device_, options());
  const auto file = folder_.path() / "records.json";
  open(cache)->export_to(file).value();
  std::ifstream in(file);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  const std::string trials = R"([{"variant": [0, 1, 0], "ns": 1}, {"variant": [64, 1e30, 0], "ns": 2},
    {"variant": [64, 3, 0], "ns": 3}, {"variant": ["a", 1, 0], "ns": 4}, {"variant": [32, 2], "ns": 5}])";
  const std::string record = R"({"kernel": "twice", "types": "f32", "sizes": {"count": 5000}, "parameters":
    ["group", "each", "bug"], "complete": true, "hint": false, "calls": 0, "trials": )" +
                             trials + "}";
  const auto records = text.find("\"records\": [") + 12;
  text.insert(records, record);
  std::ofstream(file) << text;
  for (const double rivals : {0.0, 0.5}) {
    const auto tuner = open(cache, {.rivals = rivals});
    EXPECT_EQ(tuner->import_from(file).value(), 1U);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(tuner->choose(tunable(device_)), (Variant{64, 1, 0}));
  }
}

TEST_P(TuningTrouble, ASearchWhoseProgressThrowsKeepsNoOtherFromGoingOn) {
  Cache cache(device_, options());
  const auto tuner = open(cache, TunePolicy::background);
  EXPECT_THROW(static_cast<void>(tuner->tune(tunable(device_), std::chrono::minutes(1),
                                             [](const TuneProgress&) -> bool { throw std::runtime_error("no"); })),
               std::runtime_error);
  tuner->choose(tunable(device_, {0}, count + 1));
  tuner->drain();
  EXPECT_TRUE(std::ranges::any_of(tuner->records(), [](const TuneRecord& record) { return record.complete; }));
}

TEST_P(TuningTrouble, AVariantThatNeverEndsIsRememberedAndEndsTheSearchOfItsProcess) {
  // In a process of its own, which it never lets go of.
  const Tunable endless = tunable(device_, {0, 3});
  CacheOptions kept = options();
  const char* given = std::getenv(contract::handed_down);
  if (given != nullptr) {
    kept.directory = given;
    Cache cache(device_, kept);
    const auto tuner = open(cache, {.time_limit = std::chrono::milliseconds(300)});
    const auto record = tuner->tune(endless, std::chrono::minutes(1));
    const auto again = tuner->tune(endless, std::chrono::minutes(1));
    const bool right = record && !record->complete && !record->trials.back().problem.empty() && !again &&
                       again.error().message().find("did not end") != std::string::npos;
    ::_exit(right ? 0 : 1);
  }
  EXPECT_EQ(contract::run_this_test_elsewhere(kept.directory), 0);
  Cache cache(device_, kept);
  const auto records = open(cache)->records();
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(std::ranges::count_if(records[0].trials, [](const TuneTrial& one) { return !one.problem.empty(); }), 1);
}

TEST_P(TuningTrouble, TwoProcessesThatTuneTheSameBothKeepWhatTheyFind) {
  const char* given = std::getenv(contract::handed_down);
  CacheOptions kept = options();
  if (given != nullptr) kept.directory = given;
  const auto tune = [&](std::int64_t size) {
    Cache cache(device_, kept);
    return open(cache)->tune(tunable(device_, {0}, size), std::chrono::minutes(1)).value().complete;
  };
  if (given != nullptr) {
    EXPECT_TRUE(tune(count));
    EXPECT_TRUE(tune(count + 1));
    return;
  }
  std::thread other([&] { EXPECT_EQ(contract::run_this_test_elsewhere(kept.directory), 0); });
  EXPECT_TRUE(tune(count));
  EXPECT_TRUE(tune(count + 2));
  other.join();
  Cache cache(device_, kept);
  const auto records = open(cache)->records();
  ASSERT_EQ(records.size(), 3U);
  for (const TuneRecord& record : records) EXPECT_EQ(record.trials.size(), 6U);
}

INSTANTIATE_TEST_SUITE_P(Apis, TuningTrouble, contract::every_api(), contract::name_of);

}  // namespace
}  // namespace kiln
