#include "store/transfer.hpp"

#include <atomic>
#include <set>

#include <gtest/gtest.h>

#include "base/event.hpp"
#include "base/sha256.hpp"
#include "store/catalogue.hpp"

namespace kiln::store {
namespace {

using End = TransferResult::End;

Error gone() { return Error(ErrorCode::io, "the server is gone"); }

TEST(Transfer, TransfersEachItemOnce) {
  std::atomic<int> items[100] = {};
  std::size_t last = 0;
  const auto report = transfer(
      100, {.threads = 8},
      [&](std::size_t item) -> TransferResult {
        ++items[item];
        return {.bytes = item};
      },
      [&](const TransferReport& now, std::size_t) { last = now.done; });
  for (const auto& item : items) EXPECT_EQ(item, 1);
  EXPECT_EQ(report.done, 100U);
  EXPECT_EQ(report.bytes, 4950U);
  EXPECT_EQ(last, 100U);
  EXPECT_FALSE(report.stopped);
  EXPECT_EQ(transfer(0, {.threads = 8}, [](std::size_t) { return TransferResult(); }).done, 0U);
}

TEST(Transfer, RepeatsWhatTheStoreFailed) {
  std::atomic<int> attempts{0};
  const auto report = transfer(1, {}, [&](std::size_t) {
    return ++attempts < 3 ? TransferResult::after(Error(ErrorCode::timed_out, "late")) : TransferResult();
  });
  EXPECT_EQ(report.done, 1U);
  EXPECT_EQ(attempts, 3);
}

TEST(Transfer, StopsAfterSeveralFailuresInARow) {
  std::atomic<int> attempts{0};
  const auto report = transfer(1000, {.threads = 16}, [&](std::size_t) {
    ++attempts;
    return TransferResult::after(gone());
  });
  ASSERT_TRUE(report.stopped);
  EXPECT_EQ(report.stopped->message(), "the server is gone");
  EXPECT_EQ(report.done, 0U);
  EXPECT_LE(attempts, 5 * 16);
}

TEST(Transfer, StopsAtOnceIfTheStoreDeniesAccess) {
  std::atomic<int> attempts{0};
  const auto report = transfer(1000, {}, [&](std::size_t) {
    ++attempts;
    return TransferResult::after(Error(ErrorCode::denied, "no"));
  });
  EXPECT_EQ(attempts, 1);
  EXPECT_EQ(report.stopped->code(), ErrorCode::denied);
  EXPECT_TRUE(report.problems.empty());
}

TEST(Transfer, StopsOnAnException) {
  const auto report = transfer(1000, {.threads = 4},
                               [](std::size_t) -> TransferResult { throw std::runtime_error("out of luck"); });
  EXPECT_EQ(report.stopped->message(), "out of luck");
}

TEST(Transfer, ReportsEachReasonOnce) {
  const auto report = transfer(9, {}, [](std::size_t item) -> TransferResult {
    if (item % 3 == 0) return {.end = End::skipped};
    return TransferResult::refused(Error(ErrorCode::damaged, item % 3 == 1 ? "torn" : "burnt"));
  });
  EXPECT_EQ(report.skipped, 3U);
  ASSERT_EQ(report.problems.size(), 2U);
  EXPECT_EQ(report.problems[0].items, 3U);
  EXPECT_EQ(report.problems[1].first, 2U);
  EXPECT_EQ(report.problems[1].why.message(), "burnt");
}

TEST(Transfer, FinishesWhatIsInFlightIfItIsInterrupted) {
  const base::Event event;
  const auto report = transfer(100, {.interrupted = event.descriptor()}, [&](std::size_t item) {
    if (item == 4) event.set();
    return TransferResult();
  });
  EXPECT_TRUE(report.was_interrupted);
  EXPECT_EQ(report.done, 5U);
}

TEST(Retries, AreEndedByAnInterruption) {
  const base::Event event;
  event.set();
  int calls = 0;
  const auto result = with_retries(event.descriptor(), [&]() -> Result<void> {
    ++calls;
    return gone();
  });
  EXPECT_FALSE(result);
  EXPECT_EQ(calls, 1);
}

TEST(Catalogue, IsReadAsItWasWritten) {
  Catalogue catalogue;
  for (int i = 0; i < 100; ++i)
    catalogue[base::sha256(std::to_string(i))] = {static_cast<std::uint64_t>(i), std::chrono::nanoseconds(i % 7)};
  EXPECT_EQ(parse_catalogue(catalogue_text(catalogue)), catalogue);
  EXPECT_EQ(parse_catalogue(catalogue_text({})), Catalogue());
}

TEST(Catalogue, LeavesOutTheCheapestProgramsIfItIsTooLong) {
  Catalogue catalogue;
  for (std::size_t i = 0; i < max_catalogued_programs + 10; ++i)
    catalogue[base::sha256(std::to_string(i))] = {1U << 28U, std::chrono::hours(24) - std::chrono::nanoseconds(i)};
  const auto read = parse_catalogue(catalogue_text(catalogue));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->size(), max_catalogued_programs);
  EXPECT_TRUE(read->contains(base::sha256("0")));
  EXPECT_FALSE(read->contains(base::sha256(std::to_string(max_catalogued_programs))));
}

}  // namespace
}  // namespace kiln::store
