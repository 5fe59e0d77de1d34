#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <utility>

#include <gtest/gtest.h>

#include <kiln/future.hpp>

namespace kiln {
namespace {

TEST(Future, GivesWhatThePromiseWasSetTo) {
  const Promise<int> promise;
  const Future<int> future = promise.future();
  EXPECT_FALSE(future.ready());
  EXPECT_FALSE(future.wait_for(std::chrono::milliseconds(1)));
  EXPECT_TRUE(promise.set(7));
  EXPECT_TRUE(future.ready());
  EXPECT_EQ(future.get().value(), 7);
  EXPECT_EQ(promise.future().get().value(), 7);
}

TEST(Future, IsSetOnce) {
  const Promise<int> promise;
  EXPECT_TRUE(promise.set(1));
  EXPECT_FALSE(promise.set(2));
  EXPECT_EQ(promise.future().get().value(), 1);
}

TEST(Future, HasTheErrorInTheValuesPlace) {
  const Promise<int> promise;
  promise.set(Error(ErrorCode::io, "no disk"));
  const Future<int> future = promise.future();
  ASSERT_NE(future.error(), nullptr);
  EXPECT_EQ(future.error()->message(), "no disk");
  EXPECT_EQ(promise.future().get().error().code(), ErrorCode::io);
}

template <class T>
concept LendsItsError = requires(T&& future) {
  std::forward<T>(future).error();
};

template <class T>
using Got = decltype(std::declval<T>().get());

TEST(Future, LendsItsResultOnlyIfItIsNoTemporary) {
  EXPECT_TRUE(LendsItsError<Future<int>&>);
  EXPECT_TRUE(LendsItsError<const Future<void>&>);
  EXPECT_TRUE(LendsItsError<const Pending&>);
  EXPECT_FALSE(LendsItsError<Future<int>>);
  EXPECT_FALSE(LendsItsError<const Future<int>>);
  EXPECT_FALSE(LendsItsError<Future<void>>);
  EXPECT_FALSE(LendsItsError<Pending>);
  EXPECT_FALSE(LendsItsError<const Pending>);
  EXPECT_TRUE((std::is_same_v<Got<const Future<int>&>, const Result<int>&>));
  EXPECT_TRUE((std::is_same_v<Got<Future<int>>, Result<int>>));
  EXPECT_TRUE((std::is_same_v<Got<const Future<int>>, Result<int>>));
  EXPECT_TRUE((std::is_same_v<Got<const Future<void>>, Result<void>>));
}

TEST(Future, ContinuationsSeeTheResultAndGiveAnother) {
  const Promise<int> promise;
  const auto twice = promise.future().then([](const Result<int>& value) { return 2 * value.value(); });
  const auto text = twice.then([](const Result<int>& value) { return std::to_string(value.value()); });
  const auto nothing = text.then([](const Result<std::string>&) {});
  promise.set(21);
  EXPECT_EQ(text.get().value(), "42");
  EXPECT_TRUE(nothing.get());
}

TEST(Future, AnErrorGoesThroughContinuationsThatTakeTheValue) {
  const Promise<int> promise;
  const auto twice = promise.future().then([](const Result<int>& value) { return 2 * value.value(); });
  promise.set(Error(ErrorCode::out_of_memory, "full"));
  EXPECT_EQ(twice.get().error().code(), ErrorCode::out_of_memory);
}

TEST(Future, WhatAContinuationThrowsIsTheNextFuturesError) {
  const Promise<int> promise;
  const auto thrown = promise.future().then([](const Result<int>&) -> int { throw std::runtime_error("oh"); });
  const auto odd = promise.future().then([](const Result<int>&) -> int { throw 5; });
  promise.set(1);
  EXPECT_EQ(thrown.get().error().code(), ErrorCode::callback_failed);
  EXPECT_NE(thrown.get().error().message().find("oh"), std::string::npos);
  EXPECT_EQ(odd.get().error().code(), ErrorCode::callback_failed);
}

TEST(Future, AContinuationMayReturnAnError) {
  const Promise<int> promise;
  const auto refused =
      promise.future().then([](const Result<int>&) -> Result<int> { return Error(ErrorCode::unsupported, "no"); });
  promise.set(1);
  EXPECT_EQ(refused.get().error().code(), ErrorCode::unsupported);
}

TEST(Future, WhenAllWaitsForAllAndHasTheFirstErrorOfTheList) {
  std::vector<Promise<int>> promises(3);
  std::vector<Future<int>> futures;
  for (const auto& promise : promises) futures.push_back(promise.future());
  const Future<void> all = when_all(futures);
  promises[2].set(Error(ErrorCode::io, "third"));
  EXPECT_FALSE(all.ready());
  promises[0].set(1);
  promises[1].set(Error(ErrorCode::io, "second"));
  EXPECT_EQ(all.get().error().message(), "second");
  EXPECT_TRUE(when_all(std::vector<Future<int>>()).get());
}

TEST(Future, NothingPendingIsReady) {
  const Pending nothing;
  EXPECT_TRUE(nothing.ready());
  nothing.wait();
  EXPECT_EQ(nothing.error(), nullptr);
  EXPECT_FALSE(nothing.cancel());
}

TEST(Future, ManyThreadsWaitForOne) {
  for (int round = 0; round < 50; ++round) {
    const Promise<int> promise;
    std::atomic<int> continued = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i)
      threads.emplace_back([&, future = promise.future()] {
        const auto next = future.then([&](const Result<int>& value) {
          ++continued;
          return value.value() + 1;
        });
        EXPECT_EQ(future.get().value(), 3);
        EXPECT_EQ(next.get().value(), 4);
      });
    promise.set(3);
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(continued, 8);
  }
}

TEST(Future, OfAPromiseThatIsGoneHasAnError) {
  auto promise = std::make_unique<const Promise<int>>();
  auto copy = std::make_unique<const Promise<int>>(*promise);
  const Future<int> future = promise->future();
  promise.reset();
  EXPECT_FALSE(future.ready());
  copy.reset();
  ASSERT_TRUE(future.ready());
  EXPECT_EQ(future.get().error().code(), ErrorCode::cancelled);
  EXPECT_EQ(future.get().error().message(), "the promise was destroyed without a result");
}

TEST(Future, AThreadMayExitHoldingOne) {
  const Promise<int> promise;
  std::thread([future = promise.future()] { EXPECT_FALSE(future.ready()); }).join();
  EXPECT_TRUE(promise.set(1));
}

}  // namespace
}  // namespace kiln
