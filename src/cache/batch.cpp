#include "cache/batch.hpp"

#include <algorithm>
#include <memory>
#include <utility>

namespace kiln::cache {

PreloadReport Batch::run(std::size_t count, const Item& item, const ProgressCallback& progress, WorkerPool& workers,
                         Threads threads) {
  // Shared, because a worker may start after everything is done.
  const auto batch = std::make_shared<Batch>(count, item, progress, workers);
  // The caller loads too, so it never depends on a free worker.
  if (threads == Threads::workers)
    for (std::size_t helpers = 1; helpers < std::min(count, workers.size()); ++helpers)
      workers.submit([batch] { batch->load_some(); });
  batch->load_some();
  return batch->wait();
}

void Batch::load_some() {
  for (std::size_t i = next_++; i < count_; i = next_++) {
    std::optional<Error> error;
    try {
      error = item_.load(i);
    } catch (const std::exception& exception) {
      error = Error(ErrorCode::device_failed, item_.name(i) + " was not loaded: " + exception.what());
    } catch (...) {
      error = Error(ErrorCode::device_failed,
                    item_.name(i) + " was not loaded: an exception of an unknown type was thrown");
    }
    report({i, std::move(error)});
  }
}

PreloadReport Batch::wait() {
  const base::MutexLock lock(mutex_);
  while (done_ < count_) all_done_.wait(mutex_);
  if (thrown_) std::rethrow_exception(thrown_);
  return std::move(result_);
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
    {
      const base::MutexLock lock(mutex_);
      if (finished_.empty()) {
        reporting_ = false;
        return;
      }
      next = std::move(finished_.front());
      finished_.pop_front();
      done = done_ + 1;
    }
    call({done, count_, item_.name(next.item), next.error ? &*next.error : nullptr});
    const base::MutexLock lock(mutex_);
    if (next.error) {
      result_.errors.push_back(std::move(*next.error));
    } else {
      ++result_.ready;
    }
    done_ = done;
    if (done_ == count_) all_done_.notify_all();
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
