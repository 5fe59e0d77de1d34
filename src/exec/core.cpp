#include "exec/core.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>

#include "exec/lane.hpp"

namespace kiln::exec {
namespace {

/// The executor whose thread this is: it does not wait for room in its own queue, which might need this thread.
thread_local const Core* own_core = nullptr;

class OwnThread {
 public:
  explicit OwnThread(const Core& core) noexcept : before_(std::exchange(own_core, &core)) {}
  ~OwnThread() { own_core = before_; }
  OwnThread(const OwnThread&) = delete;
  OwnThread& operator=(const OwnThread&) = delete;

 private:
  const Core* before_;
};

std::string title(const Job& job) { return job.name.empty() ? "a job" : job.name; }

/// What is wrong with a job; nothing where all is well.
Result<void> check(const Job& job) {
  const auto refuse = [&job](std::string why) {
    return Error(ErrorCode::invalid_request, fmt::format("{}: {}", title(job), why));
  };
  for (std::size_t i = 0; i < job.memory.size(); ++i) {
    const JobMemory& memory = job.memory[i];
    if (memory.fill && !memory.upload.empty())
      return refuse(fmt::format("memory {} is both uploaded and filled", i));
    if (memory.drain && !memory.download.empty())
      return refuse(fmt::format("memory {} is both downloaded and drained", i));
    if (memory.buffer == nullptr) continue;
    for (const std::size_t bytes : {memory.bytes, memory.upload.size(), memory.download.size()})
      if (bytes > memory.buffer->size())
        return refuse(
            fmt::format("{} bytes of memory {} do not fit in its buffer of {}", bytes, i, memory.buffer->size()));
  }
  for (const Step& step : job.steps)
    for (const std::size_t memory : step.memory)
      if (memory >= job.memory.size())
        return refuse(
            fmt::format("{} works on memory {}; the job has {}", step.request.name(), memory, job.memory.size()));
  return {};
}

}  // namespace

Core::Core(std::shared_ptr<Device> device, Cache& cache, ExecutorOptions options, std::unique_ptr<Trace> trace)
    : device_(std::move(device)),
      cache_(cache),
      options_(std::move(options)),
      trace_(std::move(trace)),
      continuations_(std::max(options_.continuation_threads, 1U)) {}

Result<void> Core::start() {
  continue_ = std::make_shared<const detail::Continue>([weak = weak_from_this()](std::function<void()> work) {
    if (const auto core = weak.lock()) {
      core->run_later(std::move(work));
    } else {
      work();
    }
  });
  const unsigned count = options_.lanes != 0 ? options_.lanes : 2;
  std::vector<Future<void>> opened;
  {
    const base::MutexLock lock(mutex_);
    for (unsigned i = 0; i < count; ++i) {
      const Promise<void> promise;
      opened.push_back(promise.future());
      start_lane(i, [promise](Result<void> result) { promise.set(std::move(result)); });
    }
  }
  return when_all(opened).get();
}

void Core::start_lane(unsigned number, const std::function<void(Result<void>)>& opened) {
  auto state = std::make_shared<LaneState>(number);
  auto body = [core = shared_from_this(), state, opened] {
    pthread_setname_np(pthread_self(), fmt::format("kiln-lane-{}", state->number % 10000).c_str());
    const OwnThread own(*core);
    Lane(core, state).run(opened);
  };
  try {
    lanes_.push_back({std::move(state), std::thread(std::move(body))});
  } catch (const std::system_error& e) {
    opened(Error(ErrorCode::device_failed, fmt::format("a lane needs a thread, and there is none: {}", e.what())));
  }
}

Future<JobReport> Core::submit(Job job) {
  auto state = std::make_shared<JobState>(std::move(job), continue_);
  ++counters.submitted;
  if (auto ok = check(state->job); !ok) {
    ++counters.failed;
    state->promise.set(std::move(ok).error());
    return state->promise.future();
  }
  {
    const base::MutexLock lock(mutex_);
    while (queued_ >= options_.queue && own_core != this) room_.wait(mutex_);
    ++queued_;
    ++unfinished_;
  }
  state->promise.on_cancel([core = weak_from_this(), weak = std::weak_ptr(state)] {
    const auto held = weak.lock();
    const auto alive = core.lock();
    return held != nullptr && alive != nullptr &&
           alive->end_queued(*held, Error(ErrorCode::cancelled, fmt::format("{} was cancelled", title(held->job))),
                             alive->counters.cancelled);
  });
  auto future = state->promise.future();
  await(state);
  return future;
}

void Core::await(const std::shared_ptr<JobState>& job) {
  for (const Pending& before : job->job.after)
    before.when_ready([core = shared_from_this(), job, before] {
      if (const Error* error = before.error(); error != nullptr)
        core->end_queued(*job,
                         Error(error->code(), fmt::format("{} was not run, because of what it depends on: {}",
                                                          title(job->job), error->message())),
                         core->counters.failed);
      core->arrived(job);
    });
  for (std::size_t i = 0; i < job->job.steps.size(); ++i)
    cache_.get_async(job->job.steps[i].request, [core = shared_from_this(), job, i](Result<Program> program) {
      if (program) {
        job->programs[i] = std::move(*program);
      } else {
        core->end_queued(*job, std::move(program).error(), core->counters.failed);
      }
      core->arrived(job);
    });
  arrived(job);
}

void Core::arrived(const std::shared_ptr<JobState>& job) {
  if (!job->arrive() || job->ended()) return;
  const base::MutexLock lock(mutex_);
  ready_.push_back(job);
  work_.notify_one();
}

bool Core::end_queued(JobState& job, Error error, std::atomic<std::uint64_t>& counter) {
  if (!job.end_queued()) return false;
  ++counter;
  {
    const base::MutexLock lock(mutex_);
    --queued_;
    room_.notify_one();
  }
  job.promise.set(std::move(error));
  one_less();
  return true;
}

void Core::finish(const JobState& job, Result<JobReport> result) {
  ++(result ? counters.succeeded : counters.failed);
  if (result) {
    job.promise.set(std::move(result));
  } else {
    const Error& error = result.error();
    job.promise.set(Error(error.code(), fmt::format("{}: {}", title(job.job), error.message()), error.log()));
  }
  one_less();
}

void Core::one_less() {
  const base::MutexLock lock(mutex_);
  if (--unfinished_ == 0) idle_.notify_all();
}

std::shared_ptr<JobState> Core::take(LaneState& lane, Clock::time_point until) {
  const base::MutexLock lock(mutex_);
  for (;;) {
    while (!ready_.empty()) {
      auto job = std::move(ready_.front());
      ready_.pop_front();
      if (!job->begin()) continue;
      --queued_;
      room_.notify_one();
      lane.starting = job.get();
      const auto limit = job->job.time_limit.count() > 0 ? job->job.time_limit : options_.time_limit;
      if (limit.count() > 0) {
        const auto own = std::find_if(lanes_.begin(), lanes_.end(),
                                      [&lane](const LaneThread& each) { return each.state.get() == &lane; });
        watched_.emplace(Clock::now() + limit, Watched{job, own->state});
        if (!watch_.joinable()) watch_ = std::thread([core = shared_from_this()] { core->watch(); });
        watch_changed_.notify_one();
      }
      return job;
    }
    if (stopping_) return nullptr;
    if (until == Clock::time_point::max()) {
      work_.wait(mutex_);
      continue;
    }
    if (Clock::now() >= until) return nullptr;
    work_.wait_until(mutex_, until);
  }
}

bool Core::lost(const LaneState& lane) const {
  const base::MutexLock lock(mutex_);
  return lane.lost;
}

bool Core::started(LaneState& lane) {
  const base::MutexLock lock(mutex_);
  lane.starting = nullptr;
  return !lane.lost;
}

void Core::watch() {
  pthread_setname_np(pthread_self(), "kiln-watch");
  for (;;) {
    Watched over;
    {
      const base::MutexLock lock(mutex_);
      // Those that have ended are forgotten when their time is over.
      while (watched_.empty() || Clock::now() < watched_.begin()->first) {
        if (stopping_) return;
        if (watched_.empty()) {
          watch_changed_.wait(mutex_);
        } else {
          watch_changed_.wait_until(mutex_, watched_.begin()->first);
        }
      }
      over = std::move(watched_.begin()->second);
      watched_.erase(watched_.begin());
    }
    if (!over.job->end_begun()) {
      // Its caller's memory is being read, which does not take for ever.
      if (!over.job->ended()) {
        const base::MutexLock lock(mutex_);
        watched_.emplace(Clock::now() + std::chrono::milliseconds(1), over);
      }
      continue;
    }
    ++counters.timed_out;
    replace_if_stuck(over);
    over.job->promise.set(Error(
        ErrorCode::timed_out,
        fmt::format("{} did not end within its time limit; what it uses stays as it is, for the device may be at "
                    "work on it for ever",
                    title(over.job->job))));
    one_less();
  }
}

void Core::replace_if_stuck(const Watched& watched) {
  const base::MutexLock lock(mutex_);
  if (watched.lane->starting != watched.job.get()) return;
  const auto own = std::find_if(lanes_.begin(), lanes_.end(),
                                [&](const LaneThread& each) { return each.state == watched.lane; });
  if (own == lanes_.end()) return;
  watched.lane->lost = true;
  own->thread.detach();
  const unsigned number = watched.lane->number;
  lanes_.erase(own);
  options_.log.warning(fmt::format("lane {} did not come back from the driver, and is replaced", number));
  start_lane(number, [log = options_.log](const Result<void>& opened) {
    if (!opened) log.error(fmt::format("a lane cannot be replaced: {}", opened.error().message()));
  });
}

bool Core::stopping() const {
  const base::MutexLock lock(mutex_);
  return stopping_;
}

void Core::reclaim() {
  ++counters.memory_retries;
  cache_.trim(0);
  const base::MutexLock lock(mutex_);
  work_.notify_all();
}

void Core::run_later(std::function<void()> work) {
  {
    const base::MutexLock lock(mutex_);
    if (!stopping_) {
      ++unfinished_;
      continuations_.submit([core = shared_from_this(), work = std::move(work)] {
        const OwnThread own(*core);
        work();
        core->one_less();
      });
      return;
    }
  }
  work();
}

void Core::drain() {
  const base::MutexLock lock(mutex_);
  while (unfinished_ > 0) idle_.wait(mutex_);
}

void Core::stop() {
  std::vector<LaneThread> lanes;
  std::thread watch;
  {
    const base::MutexLock lock(mutex_);
    while (unfinished_ > 0) idle_.wait(mutex_);
    stopping_ = true;
    lanes.swap(lanes_);
    watch.swap(watch_);
    work_.notify_all();
    watch_changed_.notify_all();
  }
  for (LaneThread& lane : lanes) lane.thread.join();
  if (watch.joinable()) watch.join();
  continuations_.finish();
}

ExecutorStats Core::stats() const {
  const base::MutexLock lock(mutex_);
  return {counters.submitted,        counters.succeeded,      counters.failed,
          counters.cancelled,        counters.timed_out,      counters.launches,
          counters.program_switches, counters.memory_retries, unfinished_};
}

}  // namespace kiln::exec
