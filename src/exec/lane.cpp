#include "exec/lane.hpp"

#include <algorithm>
#include <thread>

#include <fmt/format.h>

namespace kiln::exec {
namespace {

/// Jobs under way at once in a lane: one is uploaded, one computes, one is downloaded.
constexpr unsigned slots_of_a_lane = 3;
/// For so long a lane looks again and again; work that takes longer is looked for the less often the longer it
/// takes.
constexpr auto looks_busily = std::chrono::microseconds(50);
constexpr auto looks_seldom = std::chrono::milliseconds(1);

}  // namespace

Lane::Lane(std::shared_ptr<Core> core, std::shared_ptr<LaneState> state)
    : core_(std::move(core)), state_(std::move(state)), last_progress_(Clock::now()) {
  for (unsigned i = 0; i < slots_of_a_lane; ++i) {
    const unsigned track = state_->number * slots_of_a_lane + i + 1;
    slots_.push_back(std::make_unique<LaneSlot>(*core_, state_->number, track));
    if (Trace* trace = core_->trace(); trace != nullptr)
      trace->track(track, fmt::format("lane {} slot {}", state_->number, i));
  }
}

void Lane::run(const std::function<void(Result<void>)>& opened) {
  Result<void> first = slots_.front()->open();
  const bool usable = first.ok();
  opened(std::move(first));
  if (!usable) return;
  for (;;) {
    if (finish_ended()) last_progress_ = Clock::now();
    if (core_->reclaims() != reclaims_seen_) reclaim();
    if (idle_slot() == nullptr) {
      std::this_thread::sleep_until(next_look());
    } else if (auto job = core_->take(*state_, busy() ? next_look() : Clock::time_point::max())) {
      if (!start(std::move(job))) return;
      last_progress_ = Clock::now();
    } else if (!busy() && core_->stopping()) {
      return;
    }
  }
}

bool Lane::start(std::shared_ptr<JobState> job) {
  LaneSlot& slot = *idle_slot();
  const JobState& state = *job;
  Result<void> begun = slot.begin(job);
  if (!begun && begun.error().code() == ErrorCode::out_of_memory && !core_->lost(*state_)) {
    core_->reclaim();
    reclaim();
    begun = slot.begin(job);
  }
  if (begun) {
    core_->counters.launches += state.programs.size();
    for (const Program& program : state.programs)
      if (std::exchange(last_launched_, &program.module()) != &program.module()) ++core_->counters.program_switches;
  } else if (job->end_begun()) {
    core_->finish(*job, std::move(begun).error());
  }
  return core_->started(*state_);
}

bool Lane::finish_ended() {
  bool any = false;
  for (const auto& slot : slots_)
    if (slot->busy() && slot->finish_ended()) any = true;
  return any;
}

void Lane::reclaim() {
  reclaims_seen_ = core_->reclaims();
  for (const auto& slot : slots_) slot->reclaim();
}

Clock::time_point Lane::next_look() const {
  const auto now = Clock::now();
  const auto waited = now - last_progress_;
  if (waited < looks_busily) return now;
  return now + std::min<Clock::duration>(waited / 8, looks_seldom);
}

LaneSlot* Lane::idle_slot() {
  const auto idle = std::find_if(slots_.begin(), slots_.end(), [](const auto& slot) { return !slot->busy(); });
  return idle != slots_.end() ? idle->get() : nullptr;
}

bool Lane::busy() const {
  return std::any_of(slots_.begin(), slots_.end(), [](const auto& slot) { return slot->busy(); });
}

}  // namespace kiln::exec
