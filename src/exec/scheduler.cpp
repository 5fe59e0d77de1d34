#include "exec/scheduler.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>

#include "exec/lane.hpp"

namespace kiln::exec {
namespace {

/// The executor that owns this thread. submit() on such a thread does not wait for queue space, because freeing
/// space may need this thread.
thread_local const Scheduler* own_scheduler = nullptr;

class OwnThread {
 public:
  explicit OwnThread(const Scheduler& scheduler) noexcept : before_(std::exchange(own_scheduler, &scheduler)) {}
  ~OwnThread() { own_scheduler = before_; }
  OwnThread(const OwnThread&) = delete;
  OwnThread& operator=(const OwnThread&) = delete;

 private:
  const Scheduler* before_;
};

}  // namespace

Scheduler::Scheduler(std::shared_ptr<Device> device, Cache& cache, ExecutorOptions options,
                     std::unique_ptr<Trace> trace)
    : device_(std::move(device)),
      cache_(cache),
      options_(std::move(options)),
      trace_(std::move(trace)),
      continuations_(std::max(options_.continuation_threads, 1U)) {}

Result<void> Scheduler::start() {
  continue_ = std::make_shared<const detail::Continue>([weak = weak_from_this()](std::function<void()> work) {
    if (const auto scheduler = weak.lock()) {
      scheduler->run_later(std::move(work));
    } else {
      work();
    }
  });
  const unsigned count = options_.lanes != 0 ? options_.lanes : device_->info().lanes;
  std::vector<Future<void>> opened;
  try {
    const base::MutexLock lock(mutex_);
    watch_ = std::thread([scheduler = shared_from_this()] { scheduler->keep_watch(); });
    for (unsigned i = 0; i < count; ++i) {
      const Promise<void> promise;
      start_lane(i, [promise](Result<void> result) {
        const bool usable = result.ok();
        promise.set(std::move(result));
        return usable;
      });
      opened.push_back(promise.future());
    }
  } catch (const std::system_error& e) {
    const base::MutexLock lock(mutex_);
    hung_ = true;
    return Error(ErrorCode::device_failed, fmt::format("cannot start the executor's threads: {}", e.what()));
  }
  const Future<void> all = when_all(opened);
  if (options_.open_limit.count() <= 0 || all.wait_for(options_.open_limit)) return all.get();
  const base::MutexLock lock(mutex_);
  hung_ = true;
  return Error(ErrorCode::device_failed,
               fmt::format("{} does not respond: it did not open a slot within {:.3g} s", device_->info().name,
                           std::chrono::duration<double>(options_.open_limit).count()));
}

std::shared_ptr<LaneState> Scheduler::start_lane(unsigned number, const std::function<bool(Result<void>)>& opened) {
  auto state = std::make_shared<LaneState>(number);
  state->reclaims = reclaims_;
  auto body = [scheduler = shared_from_this(), state, opened] {
    pthread_setname_np(pthread_self(), fmt::format("kiln-lane-{}", state->number % 10000).c_str());
    const OwnThread own(*scheduler);
    Lane(scheduler, state).run(opened);
    const base::MutexLock lock(scheduler->mutex_);
    state->ended = true;
    scheduler->idle_.notify_all();
  };
  lanes_.push_back({state, std::thread(std::move(body))});
  return state;
}

Future<JobReport> Scheduler::submit(Job job) {
  auto state = std::make_shared<JobState>(std::move(job), continue_);
  ++counters.submitted;
  if (auto ok = check(state->job); !ok) {
    ++counters.failed;
    state->promise.set(std::move(ok).error());
    return state->promise.future();
  }
  {
    const base::MutexLock lock(mutex_);
    while (queued_ >= std::max<std::size_t>(options_.queue, 1) && own_scheduler != this) room_.wait(mutex_);
    ++queued_;
    ++unfinished_;
  }
  state->promise.on_cancel([scheduler = weak_from_this(), weak = std::weak_ptr(state)] {
    const auto held = weak.lock();
    const auto alive = scheduler.lock();
    return held != nullptr && alive != nullptr &&
           alive->end_queued(*held, Error(ErrorCode::cancelled, fmt::format("{} was cancelled", title(held->job))),
                             alive->counters.cancelled);
  });
  auto future = state->promise.future();
  await(state);
  return future;
}

void Scheduler::await(const std::shared_ptr<JobState>& job) {
  for (const Pending& before : job->job.after)
    before.when_ready([scheduler = shared_from_this(), job, before] {
      if (const Error* error = before.error(); error != nullptr) {
        scheduler->end_dependent(job, *error);
      } else {
        scheduler->arrived(job);
      }
    });
  for (std::size_t i = 0; i < job->job.steps.size(); ++i)
    cache_.get_async(job->job.steps[i].request, [scheduler = shared_from_this(), job, i](Result<Program> program) {
      const std::string& entry = job->job.steps[i].entry;
      if (program && !entry.empty()) program = program->entry(entry);
      if (program) {
        job->programs[i] = std::move(*program);
      } else {
        scheduler->end_queued(*job, std::move(program).error(), scheduler->counters.failed);
      }
      scheduler->arrived(job);
    });
  arrived(job);
}

void Scheduler::end_dependent(const std::shared_ptr<JobState>& job, const Error& error) {
  {
    const base::MutexLock lock(mutex_);
    dependents_.emplace_back(job, error);
    if (std::exchange(ends_dependents_, true)) return;
  }
  // A loop, because recursion along a long chain of dependent jobs would overflow the stack.
  for (;;) {
    std::optional<std::pair<std::shared_ptr<JobState>, Error>> next;
    {
      const base::MutexLock lock(mutex_);
      ends_dependents_ = !dependents_.empty();
      if (!ends_dependents_) return;
      next = std::move(dependents_.front());
      dependents_.pop_front();
    }
    constexpr std::string_view because = " was not run because a dependency failed: ";
    std::string_view why = next->second.message();
    if (const std::size_t at = why.rfind(because); at != std::string_view::npos)
      why.remove_prefix(at + because.size());
    end_queued(*next->first,
               Error(next->second.code(), fmt::format("{}{}{}", title(next->first->job), because, why)),
               counters.failed);
  }
}

void Scheduler::arrived(const std::shared_ptr<JobState>& job) {
  if (!job->arrive() || job->ended()) return;
  {
    const base::MutexLock lock(mutex_);
    ready_.push_back(job);
    work_.notify_one();
    if (!lanes_.empty()) return;
  }
  end_without_lanes();
}

void Scheduler::end_without_lanes() {
  std::deque<std::shared_ptr<JobState>> left;
  {
    const base::MutexLock lock(mutex_);
    if (lanes_.empty()) left.swap(ready_);
  }
  for (const auto& job : left)
    end_queued(*job,
               Error(ErrorCode::device_failed,
                     fmt::format("{}: no lane of the executor responds any more", title(job->job))),
               counters.failed);
}

bool Scheduler::end_queued(JobState& job, Error error, std::atomic<std::uint64_t>& counter) {
  if (!job.end_queued()) return false;
  ++counter;
  // Releases the caller's buffers. Keeps the rest, which callbacks of get_async() may still use.
  job.job.memory.clear();
  {
    const base::MutexLock lock(mutex_);
    --queued_;
    room_.notify_one();
  }
  job.promise.set(std::move(error));
  const base::MutexLock lock(mutex_);
  one_less(unfinished_);
  return true;
}

void Scheduler::finish(LaneState& lane, JobState& job, std::optional<Result<JobReport>> result) {
  {
    const base::MutexLock lock(mutex_);
    forget(lane, job);
    // Raise the limit by one after every `often` jobs, in case memory has been freed.
    constexpr std::size_t often = 256;
    if (short_of_memory_ && ++had_memory_ % often == 0) {
      if (most_under_way_ != no_limit) ++most_under_way_;
      if (most_under_way_ >= slots_of_a_lane * lanes_.size()) {
        most_under_way_ = no_limit;
        short_of_memory_ = false;
      }
      work_.notify_all();
    }
  }
  if (!result) return;
  ++(*result ? counters.succeeded : counters.failed);
  if (*result) {
    job.promise.set(std::move(*result));
  } else {
    const Error& error = result->error();
    job.promise.set(Error(error.code(), fmt::format("{}: {}", title(job.job), error.message()), error.log()));
  }
  const base::MutexLock lock(mutex_);
  one_less(unfinished_);
}

void Scheduler::forget(LaneState& lane, const JobState& job) {
  std::erase_if(lane.jobs, [&job](const auto& each) { return each.get() == &job; });
  watched_.erase({job.deadline, &job});
  if (!lane.replaced) --under_way_;
  ++ends_;
  if (!ready_.empty()) work_.notify_one();
}

void Scheduler::one_less(std::uint64_t& count) {
  if (--count == 0) idle_.notify_all();
}

Scheduler::Turn Scheduler::next(const std::shared_ptr<LaneState>& lane, bool has_room, Clock::time_point until) {
  const base::MutexLock lock(mutex_);
  ++lane->rounds;
  for (;;) {
    if (lane->reclaims != reclaims_) return {.reclaim = reclaims_};
    if (lane->replaced) return {.end = true};
    // A job that timed out but still runs may block jobs behind it.
    const bool held_up =
        std::any_of(lane->jobs.begin(), lane->jobs.end(), [](const auto& each) { return each->ended(); });
    while (has_room && !held_up && !ready_.empty() && under_way_ < most_under_way_) {
      auto job = std::move(ready_.front());
      ready_.pop_front();
      if (!job->begin()) continue;
      --queued_;
      room_.notify_one();
      ++under_way_;
      lane->jobs.push_back(job);
      watch(lane, job, time_limit_of(job->job));
      return {.job = std::move(job)};
    }
    if (stopping_) return {.end = true};
    // A lane without room must not wait: notify_one() could wake it instead of a lane that has room.
    if (!has_room || Clock::now() >= until) return {};
    lane->waiting = true;
    if (until == Clock::time_point::max()) {
      work_.wait(mutex_);
    } else {
      work_.wait_until(mutex_, until);
    }
    lane->waiting = false;
  }
}

void Scheduler::run_later(std::function<void()> work) {
  const bool running = [this] {
    const base::MutexLock lock(mutex_);
    if (!stopping_) ++busy_elsewhere_;
    return !stopping_;
  }();
  if (!running) return work();
  // Outside the mutex: if no thread can be started, the pool runs the work on this thread.
  continuations_.submit([scheduler = shared_from_this(), work = std::move(work)] {
    const OwnThread own(*scheduler);
    work();
    const base::MutexLock lock(scheduler->mutex_);
    scheduler->one_less(scheduler->busy_elsewhere_);
  });
}

void Scheduler::drain() {
  const base::MutexLock lock(mutex_);
  while (unfinished_ > 0) idle_.wait(mutex_);
}

void Scheduler::stop() {
  std::vector<LaneThread> lanes;
  std::thread watch;
  {
    const base::MutexLock lock(mutex_);
    while (unfinished_ > 0 || busy_elsewhere_ > 0) idle_.wait(mutex_);
    stopping_ = true;
    watch.swap(watch_);
    work_.notify_all();
    watch_changed_.notify_all();
    const auto all_ended = [this]() KILN_REQUIRES(mutex_) {
      return std::all_of(lanes_.begin(), lanes_.end(), [](const LaneThread& each) { return each.state->ended; });
    };
    // Longer than lanes wait for a hung job.
    const auto until = hung_ ? Clock::now() + 2 * longest_grace : Clock::time_point::max();
    while (!all_ended() && Clock::now() < until)
      if (hung_) {
        idle_.wait_until(mutex_, until);
      } else {
        idle_.wait(mutex_);
      }
    lanes.swap(lanes_);
    for (const LaneThread& lane : lanes) lane.state->replaced = !lane.state->ended;
  }
  for (LaneThread& lane : lanes) {
    if (lane.state->replaced) {
      lane.thread.detach();
    } else {
      lane.thread.join();
    }
  }
  if (watch.joinable()) watch.join();
  continuations_.finish();
  // A detached lane keeps the scheduler alive, so the trace's destructor may never run.
  if (trace_ != nullptr) trace_->finish();
}

ExecutorStats Scheduler::stats() const {
  const base::MutexLock lock(mutex_);
  return {counters.submitted,        counters.succeeded,      counters.failed,
          counters.cancelled,        counters.timed_out,      counters.launches,
          counters.program_switches, counters.memory_retries, unfinished_};
}

}  // namespace kiln::exec
