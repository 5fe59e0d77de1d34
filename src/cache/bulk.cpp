#include <algorithm>
#include <atomic>
#include <deque>
#include <exception>
#include <future>
#include <utility>

#include <fmt/format.h>

#include "cache/path.hpp"
#include "store/json_file.hpp"

namespace kiln {

void Cache::Path::get_async(Request request, Callback done) {
  if (Program program = table_.find(request.key().digest)) return call(done, std::move(program));
  if (auto refusal = refusal_of_call()) {
    ++counters_.failures;
    return call(done, std::move(*refusal));
  }
  if (!backend_->usable_from_any_thread()) return call(done, get_or_compile(request));
  // A backend may ask from a worker, and wait for the answer.
  workers_.let_caller_wait();
  answer_later(std::make_shared<const Asked>(Asked{std::move(request), std::move(done)}));
}

std::future<Result<Program>> Cache::Path::get_async(Request request) {
  auto promise = std::make_shared<std::promise<Result<Program>>>();
  auto future = promise->get_future();
  get_async(std::move(request), [promise](Result<Program> program) { promise->set_value(std::move(program)); });
  return future;
}

void Cache::Path::answer_later(const std::shared_ptr<const Asked>& asked) {
  workers_.submit([this, asked] {
    // No worker waits for another thread's flight: that flight may wait for a worker.
    const auto then = [this, asked](const Outcome& outcome) {
      // A find() or warm() that found nothing is no answer.
      if (outcome && !*outcome) return answer_later(asked);
      ++counters_.joined;
      workers_.submit([this, asked, outcome] {
        answer(*asked, outcome ? Result<Program>(**outcome) : Result<Program>(outcome.error()));
      });
    };
    if (!flights_.when_landed(asked->request.key().digest, then)) answer(*asked, get_or_compile(asked->request));
  });
}

void Cache::Path::answer(const Asked& asked, Result<Program> program) {
  // The callback may wait for other programs of this cache.
  const cache::WorkerPool::Uncounted waiting(workers_);
  call(asked.done, std::move(program));
}

void Cache::Path::call(const Callback& done, Result<Program> program) {
  try {
    done(std::move(program));
  } catch (const std::exception& exception) {
    options_.log.error(fmt::format("a callback of get_async() threw an exception: {}", exception.what()));
  } catch (...) {
    options_.log.error("a callback of get_async() threw an exception");
  }
}

PreloadReport Cache::Path::preload(std::span<const Request> requests, const ProgressCallback& progress) {
  if (auto refusal = refusal_of_call()) return {0, {std::move(*refusal)}};
  const cache::UnderWay::Call call(under_way_);
  return for_each(
      requests.size(), [&](std::size_t i) -> const std::string& { return requests[i].name(); },
      [&](std::size_t i) -> std::optional<Error> {
        if (table_.find(requests[i].key().digest)) return std::nullopt;
        auto found = get(requests[i], true);
        return found ? std::nullopt : std::optional(std::move(found).error());
      },
      progress);
}

PreloadReport Cache::Path::warm(const ProgressCallback& progress) {
  if (auto refusal = refusal_of_call()) return {0, {std::move(*refusal)}};
  const cache::UnderWay::Call call(under_way_);
  if (!disk_) return {};
  auto items = disk_->list();
  if (!items) return {0, {std::move(items).error()}};
  std::sort(items->begin(), items->end(),
            [](const store::StoredItem& a, const store::StoredItem& b) { return a.last_use > b.last_use; });
  // As many as there is room for, the last used last: they are the last to be evicted.
  std::size_t room = 0;
  std::uint64_t bytes = 0;
  while (room < items->size() && room < options_.max_programs && bytes <= options_.max_bytes)
    bytes += (*items)[room++].stored_bytes;
  items->resize(room);
  std::reverse(items->begin(), items->end());
  return for_each(
      items->size(), [&](std::size_t i) -> const std::string& { return (*items)[i].key.name; },
      [&](std::size_t i) -> std::optional<Error> {
        const Key& key = (*items)[i].key;
        for (;;) {
          // Why it could not be warmed is for this caller alone: a get() that joins goes on to compile.
          std::optional<Error> problem;
          auto [outcome, joined] = flights_.fly(
              key.digest, [&] { return table_.find_uncounted(key.digest); },
              [&]() -> Outcome {
                auto program = warm_one(key);
                if (program) return std::optional(std::move(*program));
                problem = std::move(program).error();
                return std::optional<Program>{};
              });
          if (outcome && *outcome) return std::nullopt;
          if (!joined) return outcome ? std::move(problem) : std::optional(std::move(outcome).error());
        }
      },
      progress);
}

Result<Program> Cache::Path::warm_one(const Key& key) {
  auto loaded = load(*guarded_disk_, key);
  if (!loaded) {
    // Looked at again under the lock: another process may be replacing it at this moment.
    const auto lock = lock_key(key);
    loaded = load(*guarded_disk_, key);
    if (!loaded) {
      reject(key, loaded.error());
      if (lock) remove_unusable(loaded.error(), *lock);
      return std::move(loaded).error();
    }
  }
  if (!*loaded) return Error(ErrorCode::io, key.name + " was removed from the disk before it could be loaded");
  // A file name holds only part of some names; the entry itself has them whole.
  const store::Entry& entry = (*loaded)->stored.entry;
  const auto facts = store::parse_json(entry.facts);
  const bool named = facts && facts->contains("name") && (*facts)["name"].is_string();
  return admit({key.digest, named ? (*facts)["name"].get<std::string>() : key.name}, std::move((*loaded)->module),
               Origin::disk, entry.compile_time);
}

namespace {

/// The items of a preload() or warm(), which any number of threads take and do, and then report one at a time.
class Batch {
 public:
  using Work = std::function<std::optional<Error>(std::size_t)>;
  using Name = std::function<const std::string&(std::size_t)>;

  /// The functions are used until wait() returns.
  Batch(std::size_t count, const Work& work, const Name& name, const ProgressCallback& progress)
      : count_(count), work_(work), name_(name), progress_(progress) {}

  /// Takes and does items until all are taken.
  void do_some(cache::WorkerPool& workers) KILN_EXCLUDES(mutex_) {
    for (std::size_t i = next_++; i < count_; i = next_++) {
      std::optional<Error> error;
      try {
        error = work_(i);
      } catch (const std::exception& exception) {
        error = Error(ErrorCode::device_failed, name_(i) + " is not loaded: " + exception.what());
      } catch (...) {
        error = Error(ErrorCode::device_failed, name_(i) + " is not loaded: an exception was thrown");
      }
      report({i, std::move(error)}, workers);
    }
  }

  /// Waits until all items are done and reported. Throws what the callback threw.
  PreloadReport wait() KILN_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    while (done_ < count_) all_done_.wait(mutex_);
    if (thrown_) std::rethrow_exception(thrown_);
    return std::move(result_);
  }

 private:
  struct Finished {
    std::size_t item;
    std::optional<Error> error;
  };

  /// One thread reports for all, without the mutex: the callback may wait for the others.
  void report(Finished finished, cache::WorkerPool& workers) KILN_EXCLUDES(mutex_) {
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
      tell({done, count_, name_(next.item), next.error ? &*next.error : nullptr}, workers);
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

  void tell(const Progress& progress, cache::WorkerPool& workers) KILN_EXCLUDES(mutex_) {
    if (!progress_) return;
    const cache::WorkerPool::Uncounted waiting(workers);
    try {
      progress_(progress);
    } catch (...) {
      const base::MutexLock lock(mutex_);
      thrown_ = std::current_exception();
    }
  }

  const std::size_t count_;
  const Work& work_;
  const Name& name_;
  const ProgressCallback& progress_;
  std::atomic<std::size_t> next_{0};

  base::Mutex mutex_;
  base::Condition all_done_;
  std::deque<Finished> finished_ KILN_GUARDED_BY(mutex_);
  bool reporting_ KILN_GUARDED_BY(mutex_) = false;
  std::size_t done_ KILN_GUARDED_BY(mutex_) = 0;
  PreloadReport result_ KILN_GUARDED_BY(mutex_);
  std::exception_ptr thrown_ KILN_GUARDED_BY(mutex_);
};

}  // namespace

PreloadReport Cache::Path::for_each(std::size_t count, const std::function<const std::string&(std::size_t)>& name,
                                    const std::function<std::optional<Error>(std::size_t)>& work,
                                    const ProgressCallback& progress) {
  // Shared with helpers that may begin when all is done.
  const auto batch = std::make_shared<Batch>(count, work, name, progress);
  // This thread is one of those that work, so that it waits for no free worker.
  if (backend_->usable_from_any_thread())
    for (std::size_t helpers = 1; helpers < std::min(count, workers_.size()); ++helpers)
      workers_.submit([this, batch] { batch->do_some(workers_); });
  batch->do_some(workers_);
  return batch->wait();
}

}  // namespace kiln
