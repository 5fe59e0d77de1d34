#include <cstring>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "fakes/temporary_folder.hpp"
#include "kernels/tune/records.hpp"
#include "store/directory.hpp"

namespace kiln::tune {
namespace {

const Identity device = {"opencl", "ACME", "Anvil", "1.0", "C 2", {7}};

TuneRecord record(std::int64_t m, std::vector<TuneTrial> trials) {
  return {.kernel = "gemm_nn",
          .types = "f32",
          .sizes = {{"m", m}, {"n", 8}},
          .parameters = {"tm", "tn"},
          .trials = std::move(trials)};
}

TuneTrial took(Variant variant, int ns) {
  return {.variant = std::move(variant), .time = std::chrono::nanoseconds(ns)};
}

class RecordsTest : public testing::Test {
 protected:
  /// A device's folder, as a cache makes it.
  std::filesystem::path folder_of(const Identity& identity) {
    const auto path = folder_.path() / identity.folder();
    write_manifest_of(identity, path);
    return path;
  }
  static void write_manifest_of(const Identity& identity, const std::filesystem::path& path) {
    store::write_manifest(base::Folder::open(path, true).value(), identity).value();
  }
  static Result<std::vector<TuneRecord>> read(const std::filesystem::path& path,
                                              const Identity& identity = device) {
    return read_records(base::Folder::open(path, false).value(), identity);
  }
  static void write_text(const std::filesystem::path& path, const std::string& text) {
    std::ofstream(path / "tuning.json") << text;
  }

  fakes::TemporaryFolder folder_;
};

TEST_F(RecordsTest, WhatIsWrittenIsRead) {
  const auto path = folder_of(device);
  TuneRecord written = record(64, {took({32, 64}, 500), {.variant = {1, 2}, .problem = "it never ended \xff"}});
  written.complete = true;
  write_records(path, device, {written}).value();
  const auto found = read(path).value();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_TRUE(same_call(found[0], written));
  EXPECT_TRUE(found[0].complete);
  EXPECT_FALSE(found[0].hint);
  ASSERT_EQ(found[0].trials.size(), 2U);
  EXPECT_EQ(found[0].trials[0].variant, (Variant{32, 64}));
  EXPECT_EQ(found[0].trials[0].time.count(), 500);
  EXPECT_FALSE(found[0].trials[1].problem.empty());
}

TEST_F(RecordsTest, ProcessesAddToEachOther) {
  const auto path = folder_of(device);
  std::vector<std::thread> others;
  for (int i = 0; i < 8; ++i)
    others.emplace_back([&, i] {
      for (int round = 0; round < 5; ++round)
        write_records(path, device,
                      {record(64, {took({i, round}, 100 + 10 * i + round)}), record(i, {took({1, 1}, 1)})})
            .value();
    });
  for (std::thread& other : others) other.join();
  const auto found = read(path).value();
  EXPECT_EQ(found.size(), 9U);
  for (const TuneRecord& one : found)
    if (one.sizes[0].value == 64) {
      EXPECT_EQ(one.trials.size(), 40U);
      EXPECT_EQ(one.trials.front().time.count(), 100);
    }
}

TEST_F(RecordsTest, ANewMeasurementTakesThePlaceOfTheOld) {
  const auto path = folder_of(device);
  write_records(path, device, {record(1, {took({1, 1}, 100), took({2, 2}, 200)})}).value();
  write_records(path, device, {record(1, {took({1, 1}, 300)})}).value();
  const auto found = read(path).value();
  ASSERT_EQ(found.at(0).trials.size(), 2U);
  EXPECT_EQ(found[0].trials[0].variant, (Variant{2, 2}));
}

TEST_F(RecordsTest, DamagedFilesHoldNothingAndAreReplaced) {
  const auto path = folder_of(device);
  for (const std::string text :
       {"", "{", "[]", "{}", R"({"version": "one"})", R"({"version": 1, "identity": 3, "records": []})",
        R"({"version": 1, "records": [{"kernel": 1}]})", "\xff\xfe"}) {
    write_text(path, text);
    const auto found = read(path);
    ASSERT_TRUE(found) << text;
    EXPECT_TRUE(found->empty()) << text;
    write_records(path, device, {record(1, {took({1, 1}, 100)})}).value();
    EXPECT_EQ(read(path).value().size(), 1U) << text;
  }
}

TEST_F(RecordsTest, WhatIsNoFileOfKilnsHoldsNothingAndIsReplaced) {
  const auto path = folder_of(device);
  const auto file = path / "tuning.json";
  const auto expect_replaced = [&](const std::string& what) {
    const auto found = read(path);
    ASSERT_TRUE(found) << what << ": " << found.error().message();
    EXPECT_TRUE(found->empty()) << what;
    const auto written = write_records(path, device, {record(1, {took({1, 1}, 100)})});
    ASSERT_TRUE(written) << what << ": " << written.error().message();
    EXPECT_EQ(read(path).value().size(), 1U) << what;
    std::filesystem::remove(file);
  };
  write_text(path, "{");
  std::filesystem::resize_file(file, std::uintmax_t{1} << 40);
  expect_replaced("a huge file");
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  expect_replaced("a FIFO");
}

TEST_F(RecordsTest, NumbersThatNoIntegerHoldsAreDamage) {
  const auto path = folder_of(device);
  const auto read_with = [&](std::string_view number, std::string_view other) {
    std::string text = to_json(device, {record(1, {took({1, 1}, 100), took({2, 2}, 200)})});
    EXPECT_NE(text.find(number), std::string::npos) << number;
    write_text(path, text.replace(text.find(number), number.size(), other));
    return read(path).value();
  };
  EXPECT_TRUE(read_with("\"version\": 1", "\"version\": 1e300").empty());
  EXPECT_TRUE(read_with("\"m\": 1", "\"m\": 1e300").empty());
  // What was measured otherwise is worth keeping.
  const auto without_trial = read_with("\"ns\": 100", "\"ns\": 1e300");
  ASSERT_EQ(without_trial.size(), 1U);
  ASSERT_EQ(without_trial[0].trials.size(), 1U);
  EXPECT_EQ(without_trial[0].trials[0].variant, (Variant{2, 2}));
  const auto without_calls = read_with("\"calls\": 0", "\"calls\": -1e300");
  ASSERT_EQ(without_calls.size(), 1U);
  EXPECT_EQ(without_calls[0].calls, 0U);
  EXPECT_EQ(without_calls[0].trials.size(), 2U);
}

TEST_F(RecordsTest, TrialsThatCannotBeAreLeftOut) {
  const auto path = folder_of(device);
  write_records(path, device, {record(1, {took({1, 1}, 100)})}).value();
  auto text =
      to_json(device, {record(1, {took({1, 1, 1}, 5), took({3, 3}, 0), took({4, 4}, -9), took({2, 2}, 7)})});
  write_text(path, text);
  const auto found = read(path).value();
  ASSERT_EQ(found.size(), 1U);
  ASSERT_EQ(found[0].trials.size(), 1U);
  EXPECT_EQ(found[0].trials[0].variant, (Variant{2, 2}));
}

TEST_F(RecordsTest, NumbersThatAreNotWholeOrTooLargeAreNone) {
  const auto path = folder_of(device);
  const std::string good = to_json(device, {record(1, {took({1, 1}, 100), took({2, 2}, 200)})});
  const auto with = [&](const std::string& what, const std::string& number) {
    std::string text = good;
    const std::size_t at = text.find_first_of("0123456789", text.find(what));
    text.replace(at, text.find_first_not_of("0123456789", at) - at, number);
    write_text(path, text);
    return read(path).value();
  };
  for (const std::string number : {"1e300", "-1e300", "1.5", "18446744073709551616"}) {
    EXPECT_TRUE(with("\"version\"", number).empty()) << number;
    EXPECT_TRUE(with("\"n\"", number).empty()) << number;
    EXPECT_EQ(with("\"calls\"", number).at(0).calls, 0U) << number;
    EXPECT_EQ(with("\"ns\"", number).at(0).trials.size(), 1U) << number;
  }
  // All bits set is no variant of -1.
  EXPECT_EQ(with("\"variant\"", "18446744073709551615").at(0).trials.size(), 1U);
}

TEST_F(RecordsTest, ANewerVersionIsLeftAlone) {
  const auto path = folder_of(device);
  const std::string text = R"({"version": 2, "what": "ever"})";
  write_text(path, text);
  const auto found = read(path);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code(), ErrorCode::unsupported);
  EXPECT_NE(found.error().message().find("tuning.json"), std::string::npos);
  EXPECT_FALSE(write_records(path, device, {record(1, {took({1, 1}, 100)})}));
  std::string kept;
  std::getline(std::ifstream(path / "tuning.json"), kept);
  EXPECT_EQ(kept, text);
}

TEST_F(RecordsTest, OfAnotherDriverAreHintsOfAnotherDeviceSomethingToBeginWith) {
  const auto path = folder_of(device);
  Identity updated = device;
  updated.driver = "2.0";
  write_records(path, device, {record(1, {took({1, 1}, 100)})}).value();
  ASSERT_EQ(read(path, updated).value().size(), 1U);
  EXPECT_TRUE(read(path, updated).value()[0].hint);
  const auto hints = read_elsewhere(folder_of(updated), updated).hints;
  ASSERT_EQ(hints.size(), 1U);
  EXPECT_TRUE(hints[0].hint);
  Identity other = device;
  other.device = "Hammer";
  EXPECT_TRUE(read(path, other).value().empty());
  // Another device of the vendor's has something to begin with.
  const Elsewhere elsewhere = read_elsewhere(folder_of(other), other);
  EXPECT_TRUE(elsewhere.hints.empty());
  ASSERT_EQ(elsewhere.relatives.size(), 1U);
  other.vendor = "Another";
  EXPECT_TRUE(read_elsewhere(folder_of(other), other).relatives.empty());
}

TEST_F(RecordsTest, WhatIsMeasuredTakesThePlaceOfHints) {
  Records records;
  TuneRecord hint = record(1, {took({1, 1}, 10)});
  hint.hint = true;
  records.add(hint);
  records.add(record(1, {took({2, 2}, 100)}));
  ASSERT_EQ(records.all().size(), 1U);
  EXPECT_EQ(records.all()[0].trials.size(), 1U);
  EXPECT_EQ(records.all()[0].trials[0].variant, (Variant{2, 2}));
  records.add(hint);
  EXPECT_FALSE(records.all()[0].hint);
}

TEST_F(RecordsTest, CallsAddUpAndLeaveWhatWasMeasured) {
  const auto path = folder_of(device);
  TuneRecord called = record(1, {});
  called.calls = 3;
  write_records(path, device, {called}).value();
  write_records(path, device, {record(1, {took({1, 1}, 100)}), called}).value();
  const auto records = read(path, device).value();
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].calls, 6U);
  EXPECT_EQ(records[0].trials.size(), 1U);
}

TEST_F(RecordsTest, OfTooManyWhatIsWorthTheLeastIsForgotten) {
  const auto path = folder_of(device);
  const auto most = static_cast<std::int64_t>(Records::most_records);
  std::vector<TuneRecord> called;
  for (std::int64_t m = 0; m < 2 * most; ++m) {
    called.push_back(record(m, {}));
    called.back().calls = static_cast<std::uint64_t>(m) + 1;
  }
  write_records(path, device, called).value();
  TuneRecord hint = record(-1, {took({1, 1}, 100)});
  hint.hint = true;
  write_records(path, device, {record(-2, {took({1, 1}, 100)}), hint, record(-3, {})}).value();
  Records records;
  records.add(read(path).value());
  EXPECT_EQ(records.all().size(), Records::most_records);
  EXPECT_NE(records.find(record(-2, {})), nullptr) << "measured";
  EXPECT_NE(records.find(record(-1, {})), nullptr) << "measured by another driver";
  EXPECT_EQ(records.find(record(-3, {})), nullptr) << "never called, even if it came last";
  EXPECT_NE(records.find(record(2 * most - 1, {})), nullptr) << "called most often";
  EXPECT_EQ(records.find(record(most, {})), nullptr) << "called less often than any that is left";
}

}  // namespace
}  // namespace kiln::tune
