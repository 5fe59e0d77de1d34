#include "exec/lane_slot.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/mutex.hpp"
#include "base/try.hpp"

namespace kiln::exec {

void abandon(std::shared_ptr<const void> thing) {
  struct Abandoned {
    base::Mutex mutex;
    std::vector<std::shared_ptr<const void>> things KILN_GUARDED_BY(mutex);
  };
  // Process-wide and never destroyed, because a device may use these objects after the executor is gone.
  static auto* const abandoned = new Abandoned;
  const base::MutexLock lock(abandoned->mutex);
  abandoned->things.push_back(std::move(thing));
}

Result<std::unique_ptr<Buffer>> SlotMemory::take(std::size_t bytes) {
  ++uses_;
  const std::size_t size = rounded(bytes);
  const auto found = std::find_if(idle_.begin(), idle_.end(), [=](const Idle& idle) {
    return idle.buffer->size() == size || idle.buffer->size() == bytes;
  });
  if (found == idle_.end()) {
    auto allocated = device_.allocate(size);
    return allocated || size == bytes ? std::move(allocated) : device_.allocate(bytes);
  }
  auto buffer = std::move(found->buffer);
  idle_.erase(found);
  return buffer;
}

void SlotMemory::give_back(std::unique_ptr<Buffer> buffer) {
  idle_.push_back({std::move(buffer), uses_});
  std::erase_if(idle_, [this](const Idle& idle) { return uses_ - idle.used > patience; });
}

bool SlotMemory::clear() noexcept {
  const bool any = !idle_.empty();
  idle_.clear();
  return any;
}

namespace {

/// Alignment of copies in the staging memory.
constexpr std::size_t alignment = 256;

/// Calls `f`, a function of the caller's; exceptions become errors.
template <class F>
Result<void> guarded(const char* what, F f) {
  try {
    f();
    return {};
  } catch (const std::exception& e) {
    return Error(ErrorCode::callback_failed, fmt::format("the function that {} threw: {}", what, e.what()));
  } catch (...) {
    return Error(ErrorCode::callback_failed,
                 fmt::format("the function that {} threw an exception of an unknown type", what));
  }
}

}  // namespace

Result<void> LaneSlot::open() {
  if (slot_ != nullptr) return {};
  auto opened = KILN_TRY(scheduler_.device().open_slot());
  slot_ = std::move(opened);
  return {};
}

Result<void> LaneSlot::begin(std::shared_ptr<JobState> job) {
  touched_ = false;
  KILN_TRY(open());
  const Result<void> done = hand_over(*job);
  if (!done) {
    close();
    give_back();
    return done;
  }
  job_ = std::move(job);
  return {};
}

Result<void> LaneSlot::hand_over(JobState& job) {
  try {
    KILN_TRY(lend(job.job));
    Result<void> filled = fill(job);
    return filled ? queue(job) : filled;
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::out_of_memory, "the host ran out of memory");
  }
}

Result<void> LaneSlot::lend(const Job& job) {
  std::size_t staged = 0;
  const auto stage = [&staged](std::vector<Copy>& copies, std::size_t memory, std::size_t bytes) {
    copies.push_back({memory, staged, bytes});
    staged += (bytes + alignment - 1) / alignment * alignment;
  };
  for (std::size_t i = 0; i < job.memory.size(); ++i) {
    const JobMemory& memory = job.memory[i];
    if (memory.buffer != nullptr) {
      buffers_.push_back(memory.buffer.get());
    } else {
      auto buffer = KILN_TRY(memory_.take(size_of(memory)));
      buffers_.push_back(buffer.get());
      lent_.push_back(std::move(buffer));
    }
    if (memory.fill) stage(uploads_, i, size_of(memory));
    if (!memory.upload.empty()) stage(uploads_, i, memory.upload.size());
    if (memory.drain) stage(downloads_, i, size_of(memory));
    if (!memory.download.empty()) stage(downloads_, i, memory.download.size());
  }
  auto staging = KILN_TRY(slot_->staging(staged));
  staged_ = staging;
  return {};
}

Result<void> LaneSlot::fill(JobState& state) {
  if (!state.start_reading())
    return Error(ErrorCode::timed_out, "its time limit passed before it was submitted to the device");
  const std::unique_ptr<JobState, void (*)(JobState*)> reading(&state,
                                                               [](JobState* read) { read->stop_reading(); });
  const Job& job = state.job;
  for (const Copy& copy : uploads_) {
    const JobMemory& memory = job.memory[copy.memory];
    const auto bytes = staged_.subspan(copy.staged, copy.bytes);
    if (!memory.fill) {
      std::memcpy(bytes.data(), memory.upload.data(), bytes.size());
    } else if (auto filled = guarded("fills a job's memory", [&] { memory.fill(bytes); }); !filled) {
      return filled;
    }
  }
  return {};
}

Result<void> LaneSlot::queue(const JobState& state) {
  const Job& job = state.job;
  for (const Copy& copy : uploads_) KILN_TRY(slot_->upload(*buffers_[copy.memory], 0, copy.staged, copy.bytes));
  for (std::size_t i = 0; i < job.steps.size(); ++i) {
    KILN_TRY(slot_->launch(state.programs[i].module(), job.steps[i].launch.with(buffers_)));
    // Devices may start a launch before submit(), so the caller's buffers may already be changed.
    touched_ = touched_ || lent_.size() < buffers_.size();
  }
  for (const Copy& copy : downloads_) KILN_TRY(slot_->download(*buffers_[copy.memory], 0, copy.staged, copy.bytes));
  return slot_->submit();
}

LaneSlot::Look LaneSlot::look() {
  const Result<bool> finished = slot_->finished();
  if (finished && !*finished) {
    if (!job_->ended()) return Look::under_way;
    if (!overdue()) {
      slot_->give_up();
      left_at_ = Clock::now() + scheduler_.grace_of(job_->job);
    }
    if (Clock::now() < *left_at_) return Look::under_way;
    scheduler_.finish(lane_, *job_, std::nullopt);
    abandon();
    return Look::abandoned;
  }
  left_at_.reset();
  const auto job = std::exchange(job_, nullptr);
  std::optional<Result<JobReport>> result;
  // After a timeout, the caller's memory may be gone.
  if (job->end_begun()) {
    Result<void> done = finished ? drain(job->job) : Result<void>(finished.error());
    result = done ? Result<JobReport>(report(*job)) : Result<JobReport>(std::move(done).error());
  }
  // A failure of this callback does not fail the job.
  if (result && *result && job->job.report)
    static_cast<void>(guarded("receives a job's report", [&] { job->job.report(**result); }));
  if (!finished) close();
  give_back();
  if (scheduler_.is_short_of_memory()) reclaim();
  job->let_go();
  scheduler_.finish(lane_, *job, std::move(result));
  return Look::ended;
}

Result<void> LaneSlot::drain(const Job& job) {
  for (const Copy& copy : downloads_) {
    const JobMemory& memory = job.memory[copy.memory];
    const auto bytes = staged_.subspan(copy.staged, copy.bytes);
    if (!memory.drain) {
      std::memcpy(memory.download.data(), bytes.data(), bytes.size());
    } else if (auto drained = guarded("reads a job's memory", [&] { memory.drain(bytes); }); !drained) {
      return drained;
    }
  }
  return {};
}

JobReport LaneSlot::report(const JobState& state) {
  JobReport report{.lane = lane_.number};
  const std::vector<Ran> times = slot_->times();
  const std::size_t steps = state.job.steps.size();
  if (times.size() != uploads_.size() + steps + downloads_.size()) return report;
  const auto took = [&times](std::size_t i) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(times[i].end - times[i].begin);
  };
  std::size_t piece = 0;
  for (; piece < uploads_.size(); ++piece) report.upload += took(piece);
  for (std::size_t i = 0; i < steps; ++i, ++piece) {
    report.steps.push_back(took(piece));
    report.compute += report.steps.back();
    const auto nanoseconds = static_cast<double>(report.steps.back().count());
    if (nanoseconds <= 0) continue;
    const Step& step = state.job.steps[i];
    if (step.flops > 0) state.programs[i].note_gflops(step.flops / nanoseconds);
    if (step.bytes > 0) state.programs[i].note_gbps(step.bytes / nanoseconds);
  }
  for (; piece < times.size(); ++piece) report.download += took(piece);
  trace(state, times);
  return report;
}

void LaneSlot::trace(const JobState& state, const std::vector<Ran>& times) const {
  Trace* trace = scheduler_.trace();
  if (trace == nullptr) return;
  const std::string job = as_json(state.job.name);
  for (std::size_t i = 0; i < times.size(); ++i) {
    const std::size_t step = i - uploads_.size();
    if (i < uploads_.size()) {
      trace->ran(track_, "upload", "upload", times[i].begin, times[i].end,
                 fmt::format(R"({{"job": {}, "bytes": {}}})", job, uploads_[i].bytes));
    } else if (step < state.job.steps.size()) {
      trace->ran(track_, state.programs[step].name(), "launch", times[i].begin, times[i].end,
                 fmt::format(R"({{"job": {}}})", job));
    } else {
      trace->ran(
          track_, "download", "download", times[i].begin, times[i].end,
          fmt::format(R"({{"job": {}, "bytes": {}}})", job, downloads_[step - state.job.steps.size()].bytes));
    }
  }
}

void LaneSlot::give_back() {
  for (auto& buffer : lent_) memory_.give_back(std::move(buffer));
  lent_.clear();
  buffers_.clear();
  uploads_.clear();
  downloads_.clear();
}

void LaneSlot::close() { slot_.reset(); }

void LaneSlot::abandon() {
  left_at_.reset();
  kiln::exec::abandon(std::shared_ptr<Slot>(std::move(slot_)));
  for (auto& buffer : lent_) kiln::exec::abandon(std::shared_ptr<Buffer>(std::move(buffer)));
  kiln::exec::abandon(std::exchange(job_, nullptr));
  lent_.clear();
  give_back();
}

}  // namespace kiln::exec
