#include "store/transfer.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <system_error>
#include <thread>

#include <poll.h>

#include "base/event.hpp"
#include "base/mutex.hpp"

namespace kiln::store {
namespace {

constexpr std::array<int, 3> retry_pauses_ms = {250, 500, 1000};
constexpr std::size_t most_failures_in_a_row = 3;

bool may_be_repeated(ErrorCode code) { return code == ErrorCode::io || code == ErrorCode::timed_out; }

bool is_readable_within(int descriptor, int other, int milliseconds) {
  // poll() ignores a descriptor of -1. A signal ends it as well; its handler makes a descriptor readable.
  std::array<pollfd, 2> wait = {pollfd{descriptor, POLLIN, 0}, pollfd{other, POLLIN, 0}};
  return ::poll(wait.data(), wait.size(), milliseconds) != 0;
}

class Transfer {
 public:
  Transfer(std::size_t count, const TransferOptions& options,
           const std::function<TransferResult(std::size_t)>& attempt,
           const std::function<void(const TransferReport&, std::size_t)>& on_end)
      : count_(count), options_(options), attempt_(attempt), on_end_(on_end) {}

  TransferReport run() {
    std::vector<std::thread> others;
    try {
      while (others.size() + 1 < std::min(options_.threads, count_)) others.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      // There are no more threads; those that run do the work.
    }
    work();
    for (std::thread& other : others) other.join();
    const base::MutexLock lock(mutex_);
    return std::move(report_);
  }

 private:
  void work() {
    for (;;) {
      if (next_ >= count_ || is_readable_within(stopped_.descriptor(), -1, 0)) return;
      if (is_readable_within(options_.interrupted, -1, 0)) return interrupt();
      const std::size_t item = next_++;
      if (item >= count_) return;
      try {
        finish(item, attempt_until_done(item));
      } catch (const std::exception& error) {
        finish(item, TransferResult::stopped(Error(ErrorCode::io, error.what())));
      }
    }
  }

  TransferResult attempt_until_done(std::size_t item) {
    for (Retries retries(options_.interrupted, stopped_.descriptor());;) {
      TransferResult result = attempt_(item);
      if (result.end != TransferResult::End::failed || !retries.after(result.why)) return result;
    }
  }

  void interrupt() KILN_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    report_.was_interrupted = true;
  }

  void finish(std::size_t item, TransferResult result) KILN_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    if (result.end != TransferResult::End::failed) failures_in_a_row_ = 0;
    switch (result.end) {
      case TransferResult::End::done:
        ++report_.done;
        report_.bytes += result.bytes;
        break;
      case TransferResult::End::skipped: ++report_.skipped; break;
      case TransferResult::End::refused: add_problem(item, std::move(result.why)); break;
      case TransferResult::End::failed:
        if (++failures_in_a_row_ >= most_failures_in_a_row) stop(result.why);
        add_problem(item, std::move(result.why));
        break;
      case TransferResult::End::stopped: stop(std::move(result.why)); break;
    }
    if (on_end_) on_end_(report_, item);
  }

  void add_problem(std::size_t item, Error why) KILN_REQUIRES(mutex_) {
    // Messages of failed calls name the object.
    const auto is_same = [&why](const TransferReport::Problem& problem) {
      return problem.why.code() == why.code() &&
             (may_be_repeated(why.code()) || problem.why.message() == why.message());
    };
    auto known = std::ranges::find_if(report_.problems, is_same);
    if (known == report_.problems.end())
      known = report_.problems.insert(known, {.why = std::move(why), .first = item});
    ++known->items;
  }

  void stop(Error why) KILN_REQUIRES(mutex_) {
    if (!report_.stopped) report_.stopped = std::move(why);
    stopped_.set();
  }

  const std::size_t count_;
  const TransferOptions options_;
  const std::function<TransferResult(std::size_t)>& attempt_;
  const std::function<void(const TransferReport&, std::size_t)>& on_end_;
  std::atomic<std::size_t> next_{0};
  const base::Event stopped_;
  base::Mutex mutex_;
  std::size_t failures_in_a_row_ KILN_GUARDED_BY(mutex_) = 0;
  TransferReport report_ KILN_GUARDED_BY(mutex_);
};

}  // namespace

bool Retries::after(const Error& error) {
  if (!may_be_repeated(error.code()) || done_ == retry_pauses_ms.size()) return false;
  return !is_readable_within(interrupted_, stopped_, retry_pauses_ms[done_++]);
}

TransferResult TransferResult::after(Error error) {
  const ErrorCode code = error.code();
  return {.end = code == ErrorCode::denied ? End::stopped
                 : may_be_repeated(code)   ? End::failed
                                           : End::refused,
          .why = std::move(error)};
}

TransferReport transfer(std::size_t count, const TransferOptions& options,
                        const std::function<TransferResult(std::size_t)>& attempt,
                        const std::function<void(const TransferReport&, std::size_t)>& on_end) {
  return Transfer(count, options, attempt, on_end).run();
}

}  // namespace kiln::store
