#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <kiln/result.hpp>

/// Many transfers between this machine and a store: in parallel, repeated if the store fails, and ended in order if
/// the user interrupts them.
namespace kiln::store {

/// Decides whether a call that failed is repeated: three times, after growing pauses, if it failed with io or
/// timed_out. The pauses end once a descriptor becomes readable, and the call is not repeated then.
class Retries {
 public:
  explicit Retries(int interrupted, int stopped = -1) noexcept : interrupted_(interrupted), stopped_(stopped) {}
  /// Waits for the pause. Returns whether to repeat the call.
  bool after(const Error& error);

 private:
  int interrupted_;
  int stopped_;
  std::size_t done_ = 0;
};

/// Calls until it succeeds, or Retries says that it should not be repeated.
template <class Call>
auto with_retries(int interrupted, const Call& call) -> decltype(call()) {
  for (Retries retries(interrupted);;)
    if (auto result = call(); result.ok() || !retries.after(result.error())) return result;
}

/// The end of one attempt to transfer an item.
struct TransferResult {
  enum class End {
    done,
    /// There was nothing to do.
    skipped,
    /// This item cannot be transferred.
    refused,
    /// The store failed; another attempt may succeed.
    failed,
    /// No item can be transferred.
    stopped,
  };

  End end = End::done;
  /// Those that were transferred.
  std::uint64_t bytes = 0;
  /// Unless it is done or skipped.
  Error why = Error(ErrorCode::io, "");

  /// The end of an attempt whose call on the store failed.
  static TransferResult after(Error error);
  static TransferResult refused(Error error) { return {.end = End::refused, .why = std::move(error)}; }
  static TransferResult stopped(Error error) { return {.end = End::stopped, .why = std::move(error)}; }
};

struct TransferReport {
  /// Why items were not transferred.
  struct Problem {
    Error why;
    std::size_t items = 0;
    /// The first item with this problem.
    std::size_t first = 0;
  };

  std::size_t done = 0;
  std::size_t skipped = 0;
  std::uint64_t bytes = 0;
  /// One for each message of a refused item, and one for each error code of a failed one.
  std::vector<Problem> problems = {};
  bool was_interrupted = false;
  /// Why the transfer ended before all items were tried: the store stopped working, or permits nothing.
  std::optional<Error> stopped = {};
};

struct TransferOptions {
  std::size_t threads = 1;
  /// Becomes readable when no further items are to be begun; those in flight are finished.
  int interrupted = -1;
};

/// Transfers the items 0 to `count` - 1, begun in this order. `attempt` is called from any of the threads. `on_end`
/// is called after each item with the report until then, by one thread at a time. Stops after three failed items in
/// a row, each of them tried four times.
TransferReport transfer(std::size_t count, const TransferOptions& options,
                        const std::function<TransferResult(std::size_t item)>& attempt,
                        const std::function<void(const TransferReport& report, std::size_t item)>& on_end = {});

}  // namespace kiln::store
