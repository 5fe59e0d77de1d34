#include "cache/batch.hpp"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

namespace kiln::cache {

std::vector<std::size_t> Batch::run(const std::vector<std::size_t>& items, Start start, const Try& attempt,
                                    const Prepare& prepare) {
  // The caller loads too, so it never depends on a free worker.
  const std::size_t threads = std::min({items.size(), workers_.size(), threads_});
  const std::size_t helpers = threads > 1 ? threads - 1 : 0;
  const std::size_t at_once = start == Start::gradually ? std::min<std::size_t>(helpers, 1) : helpers;
  const auto round = std::make_shared<Round>(items, attempt, prepare, helpers);
  round->helpers = at_once;
  for (std::size_t i = 0; i < at_once; ++i) add_helper(round);
  try_some(*this, round);
  const base::MutexLock lock(round->mutex);
  while (round->tried < items.size()) round->all_tried.wait(round->mutex);
  return std::move(round->not_done);
}

void Batch::add_helper(const std::shared_ptr<Round>& round) {
  workers_.submit([this, round] { try_some(*this, round); }, Urgency::background);
}

void Batch::add_helper_gradually(const std::shared_ptr<Round>& of) {
  Round& round = *of;
  std::size_t helpers = round.helpers;
  const auto due = round.start + (helpers + 1) * std::chrono::milliseconds(1);
  if (helpers >= round.most_helpers || round.next >= round.items.size()) return;
  if (std::chrono::steady_clock::now() < due) return;
  if (round.helpers.compare_exchange_strong(helpers, helpers + 1)) add_helper(of);
}

void Batch::try_some(Batch& batch, const std::shared_ptr<Round>& of) {
  Round& round = *of;
  for (;;) {
    if (round.next >= round.items.size()) return;
    // The items are taken in their order by the threads that can begin.
    std::unique_ptr<CompilePlace> place = round.prepare ? round.prepare() : nullptr;
    const std::size_t i = round.next++;
    if (i >= round.items.size()) return;
    const std::size_t item = round.items[i];
    Tried tried = batch.try_one(round, item, std::move(place));
    const bool done = tried.end != End::not_done;
    if (done) batch.report({item, std::move(tried.error)});
    batch.add_helper_gradually(of);
    const base::MutexLock lock(round.mutex);
    if (!done) round.not_done.push_back(item);
    if (++round.tried == round.items.size()) round.all_tried.notify_all();
  }
}

Batch::Tried Batch::try_one(const Round& round, std::size_t item, std::unique_ptr<CompilePlace> place) const {
  const auto failed = [&](const std::string& why) {
    return Tried{End::failed, Error(ErrorCode::device_failed, name_(item) + " was not loaded: " + why)};
  };
  try {
    return round.attempt(item, std::move(place));
  } catch (const std::exception& exception) {
    return failed(exception.what());
  } catch (...) {
    return failed("an exception of an unknown type was thrown");
  }
}

void Batch::expect(std::vector<double> costs) {
  const base::MutexLock lock(mutex_);
  costs_ = std::move(costs);
  cost_left_ = std::accumulate(costs_.begin(), costs_.end(), 0.0);
  cost_done_ = 0;
  costs_since_ = std::chrono::steady_clock::now();
}

PreloadReport Batch::finish() {
  const base::MutexLock lock(mutex_);
  while (done_ < count_) reported_.wait(mutex_);
  if (thrown_) std::rethrow_exception(thrown_);
  return std::move(result_);
}

std::optional<std::chrono::nanoseconds> Batch::remaining(std::size_t item) {
  if (item >= costs_.size()) return std::nullopt;
  cost_left_ -= costs_[item];
  cost_done_ += costs_[item];
  if (cost_done_ <= 0) return std::nullopt;
  const auto took = std::chrono::steady_clock::now() - costs_since_;
  return std::chrono::duration_cast<std::chrono::nanoseconds>(took * (std::max(cost_left_, 0.0) / cost_done_));
}

void Batch::report(Finished finished) {
  {
    const base::MutexLock lock(mutex_);
    finished_.push_back(std::move(finished));
    if (std::exchange(reporting_, true)) return;
  }
  for (;;) {
    Finished next;
    std::size_t done = 0;
    std::optional<std::chrono::nanoseconds> left;
    {
      const base::MutexLock lock(mutex_);
      if (finished_.empty()) {
        reporting_ = false;
        return;
      }
      next = std::move(finished_.front());
      finished_.pop_front();
      done = done_ + 1;
      left = remaining(next.item);
    }
    call({done, count_, next.item, name_(next.item), next.error ? &*next.error : nullptr, left});
    const base::MutexLock lock(mutex_);
    if (next.error) {
      result_.errors.push_back(std::move(*next.error));
    } else {
      ++result_.ready;
    }
    done_ = done;
    if (done_ == count_) reported_.notify_all();
  }
}

void Batch::call(const Progress& progress) {
  if (!progress_) return;
  // The callback may wait for other programs of this cache.
  const WorkerPool::Uncounted waiting(workers_);
  try {
    progress_(progress);
  } catch (...) {
    const base::MutexLock lock(mutex_);
    thrown_ = std::current_exception();
  }
}

}  // namespace kiln::cache
