#include "exec/lane.hpp"

#include <algorithm>
#include <thread>

#include <fmt/format.h>

namespace kiln::exec {
namespace {

/// A lane polls continuously for this long after its last progress, then at growing intervals up to `looks_seldom`.
constexpr auto looks_busily = std::chrono::microseconds(50);
constexpr auto looks_seldom = std::chrono::milliseconds(1);

}  // namespace

Lane::Lane(std::shared_ptr<Scheduler> scheduler, std::shared_ptr<LaneState> state)
    : scheduler_(std::move(scheduler)), state_(std::move(state)), last_progress_(Clock::now()) {
  for (unsigned i = 0; i < slots_of_a_lane; ++i) {
    const unsigned track = state_->number * slots_of_a_lane + i + 1;
    slots_.push_back(std::make_unique<LaneSlot>(*scheduler_, *state_, track));
    if (Trace* trace = scheduler_->trace(); trace != nullptr)
      trace->track(track, fmt::format("lane {} slot {}", state_->number, i));
  }
}

void Lane::run(const std::function<bool(Result<void>)>& opened) {
  if (!opened(slots_.front()->open())) return;
  for (bool ends = false; !ends || busy();) {
    finish_ended();
    const auto until = busy() ? next_look() : Clock::time_point::max();
    const Scheduler::Turn turn = scheduler_->next(state_, idle_slot() != nullptr, until);
    if (turn.reclaim) {
      reclaim();
      scheduler_->reclaimed_memory(*state_, *turn.reclaim);
    }
    if (turn.job != nullptr) start(turn.job);
    ends = turn.end;
    if (busy() && (ends || idle_slot() == nullptr)) std::this_thread::sleep_until(next_look());
  }
}

void Lane::start(const std::shared_ptr<JobState>& job) {
  LaneSlot& slot = *idle_slot();
  Result<void> begun = slot.begin(job);
  const auto lacks_memory = [&] {
    return !begun && begun.error().code() == ErrorCode::out_of_memory && slot.may_begin_again();
  };
  if (lacks_memory()) {
    reclaim();
    if (scheduler_->reclaim(*state_)) begun = slot.begin(job);
  }
  if (lacks_memory() && scheduler_->put_back(*state_, job)) return;
  last_progress_ = Clock::now();
  if (!begun) {
    const bool in_time = job->end_begun();
    job->let_go();
    scheduler_->finish(*state_, *job,
                       in_time ? std::optional(Result<JobReport>(std::move(begun).error())) : std::nullopt);
    return;
  }
  scheduler_->counters.launches += job->programs.size();
  for (const Program& program : job->programs)
    if (std::exchange(last_launched_, &program.module()) != &program.module())
      ++scheduler_->counters.program_switches;
}

void Lane::finish_ended() {
  for (const auto& slot : slots_) {
    if (!slot->busy()) continue;
    switch (slot->look()) {
      case LaneSlot::Look::under_way: break;
      case LaneSlot::Look::ended: last_progress_ = Clock::now(); break;
      case LaneSlot::Look::abandoned: scheduler_->abandoned(state_); break;
    }
  }
}

void Lane::reclaim() {
  for (const auto& slot : slots_) slot->reclaim();
}

Clock::time_point Lane::next_look() const {
  const auto now = Clock::now();
  const auto waited = now - last_progress_;
  if (waited < looks_busily) return now;
  return now + std::min<Clock::duration>(waited / 8, looks_seldom);
}

LaneSlot* Lane::idle_slot() {
  // A job that is queued behind an overdue one may hang as well.
  if (std::any_of(slots_.begin(), slots_.end(), [](const auto& slot) { return slot->overdue(); })) return nullptr;
  const auto idle = std::find_if(slots_.begin(), slots_.end(), [](const auto& slot) { return !slot->busy(); });
  return idle != slots_.end() ? idle->get() : nullptr;
}

bool Lane::busy() const {
  return std::any_of(slots_.begin(), slots_.end(), [](const auto& slot) { return slot->busy(); });
}

}  // namespace kiln::exec
