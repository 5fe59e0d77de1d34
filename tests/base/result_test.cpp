#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <kiln/result.hpp>

namespace kiln {
namespace {

Result<std::string> half(int number) {
  if (number % 2 != 0) return Error(ErrorCode::invalid_request, std::to_string(number) + " is odd", "line 1: odd");
  return std::to_string(number / 2);
}

TEST(Result, HoldsItsValue) {
  auto result = half(4);
  ASSERT_TRUE(result);
  EXPECT_TRUE(result.ok());
  EXPECT_EQ(result.value(), "2");
  EXPECT_EQ(*result, "2");
  EXPECT_EQ(result->size(), 1U);
  result.value() = "changed";
  EXPECT_EQ(std::as_const(result).value(), "changed");
}

TEST(Result, HoldsItsError) {
  const auto result = half(3);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::invalid_request);
  EXPECT_EQ(result.error().message(), "3 is odd");
  EXPECT_EQ(result.error().log(), "line 1: odd");
}

TEST(Result, ThrowsAllItKnowsWhereAValueIsDemanded) {
  try {
    static_cast<void>(half(3).value());
    FAIL() << "nothing was thrown";
  } catch (const Failure& failure) {
    EXPECT_STREQ(failure.what(), "3 is odd\nline 1: odd");
    EXPECT_EQ(failure.error().code(), ErrorCode::invalid_request);
    EXPECT_EQ(failure.error().log(), "line 1: odd");
  }
}

TEST(Result, GivesUpAValueThatCanOnlyBeMoved) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(7));
  const std::unique_ptr<int> taken = std::move(result).value();
  ASSERT_NE(taken, nullptr);
  EXPECT_EQ(*taken, 7);
  Result<std::unique_ptr<int>> other(std::make_unique<int>(8));
  EXPECT_EQ(*std::unique_ptr<int>(*std::move(other)), 8);
}

TEST(Result, GivesUpItsError) {
  auto result = half(5);
  const Error taken = std::move(result).error();
  EXPECT_EQ(taken.message(), "5 is odd");
}

TEST(Result, OfNothingIsNoError) {
  const Result<std::optional<int>> absent(std::optional<int>{});
  EXPECT_TRUE(absent);
  EXPECT_FALSE(*absent);
}

TEST(Result, OfVoidSucceedsOrFails) {
  const Result<void> good;
  EXPECT_TRUE(good);
  EXPECT_NO_THROW(good.value());
  const Result<void> bad(Error(ErrorCode::io, "the disk is full"));
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code(), ErrorCode::io);
  EXPECT_THROW(bad.value(), Failure);
}

TEST(Error, WithoutALogDescribesItselfInOneLine) {
  EXPECT_EQ(Error(ErrorCode::io, "the disk is full").describe(), "the disk is full");
}

TEST(Error, EveryCodeHasANameOfItsOwn) {
  std::set<std::string_view> names;
  constexpr int last = static_cast<int>(ErrorCode::not_compiled);
  for (int code = 0; code <= last; ++code) names.insert(to_string(static_cast<ErrorCode>(code)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(last) + 1);
  EXPECT_FALSE(names.contains("unknown"));
  EXPECT_EQ(to_string(ErrorCode::compile_failed), "compile_failed");
  EXPECT_EQ(to_string(static_cast<ErrorCode>(last + 1)), "unknown");
}

}  // namespace
}  // namespace kiln
