#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "kernels/tune/auto_tuner.hpp"
#include "kernels/tune/bench.hpp"
#include "kernels/tune/search.hpp"
#include "kernels/tune/use.hpp"

// The search of AutoTuner.
namespace kiln::tune {
namespace {

using Clock = std::chrono::steady_clock;

/// The number of variants to compile in parallel. It affects the order of trials.
std::size_t at_once() { return std::clamp(std::thread::hardware_concurrency(), 4U, 16U); }
/// How often to save results during a search.
constexpr auto kept_every = std::chrono::milliseconds(500);

}  // namespace

Result<TuneRecord> AutoTuner::tune(const Tunable& tunable, std::chrono::nanoseconds budget,
                                   const std::function<bool(const TuneProgress&)>& progress) {
  // RAII, because the caller's functions may throw.
  class Asking {
   public:
    explicit Asking(AutoTuner& tuner) : tuner_(tuner) { add(1); }
    ~Asking() { add(-1); }
    Asking(const Asking&) = delete;
    Asking& operator=(const Asking&) = delete;

   private:
    void add(int more) {
      {
        const base::MutexLock lock(tuner_.mutex_);
        tuner_.asked_ += more;
      }
      tuner_.changed_.notify_all();
    }

    AutoTuner& tuner_;
  };
  const Asking asking(*this);
  // An explicit request deserves the full search.
  return search(tunable, budget, {.frequent = true, .alone = true}, progress);
}

Result<TuneRecord> AutoTuner::search(const Tunable& tunable, std::chrono::nanoseconds budget, How how,
                                     const std::function<bool(const TuneProgress&)>& progress) {
  const base::MutexLock measuring(measuring_);
  if (!stuck_.empty())
    return Error(
        ErrorCode::device_failed,
        fmt::format(
            "a variant of {} did not end, so this process cannot measure any other; continue in a new process",
            stuck_));
  if (executor_ == nullptr) {
    auto executor = KILN_TRY(Executor::create(device_, cache_, {.lanes = 1, .log = options_.log}));
    executor_ = std::move(executor);
  }
  auto bench = Bench::create(*executor_, device_, tunable, options_, options_.seed);
  if (!bench) {
    if (bench.error().code() == ErrorCode::timed_out) stuck_ = tunable.kernel;
    return std::move(bench).error();
  }
  Search search(tunable, options_.seed, how.frequent);
  TuneRecord record = record_for(tunable);
  {
    const base::MutexLock lock(mutex_);
    // Trials with other parameters come from another version of the kernel and do not apply.
    if (const TuneRecord* before = records_.find(record);
        before != nullptr && before->parameters == record.parameters) {
      // Try the best hint first, because calls already run it.
      if (before->hint) {
        for (const TuneTrial& trial : before->trials)
          if (trial.problem.empty() && has(tunable, trial.variant)) {
            search.prefer(trial.variant);
            break;
          }
      } else {
        record = *before;
        std::erase_if(record.trials, [&](const TuneTrial& trial) { return !has(tunable, trial.variant); });
      }
    }
  }
  for (const TuneTrial& trial : record.trials) search.learn(trial);
  const auto best = [&record]() -> const TuneTrial* {
    return !record.trials.empty() && record.trials.front().problem.empty() ? &record.trials.front() : nullptr;
  };
  auto kept = Clock::now();
  Clock::duration spent = {};
  bool goes_on = true;
  bool wanted = true;
  while (goes_on) {
    const std::vector<Variant> batch = search.next(how.alone && !record.trials.empty() ? at_once() : 1);
    if (batch.empty()) {
      record.complete = true;
      break;
    }
    auto since = Clock::now();
    (*bench)->compile(batch);
    for (const Variant& variant : batch) {
      const auto least = best() != nullptr ? std::optional(best()->time) : std::nullopt;
      const auto trial = (*bench)->measure(variant, least);
      if (!trial) {
        if (!record.trials.empty()) keep(record);
        return trial.error();
      }
      search.learn(*trial);
      record.trials.push_back(*trial);
      rank(record);
      if ((*bench)->stuck()) {
        stuck_ = tunable.kernel;
        keep(record);
        return record;
      }
      spent += Clock::now() - since;
      goes_on = spent < budget;
      if (progress)
        wanted = progress({.tried = record.trials.size(),
                           .of = std::max(search.size(), record.trials.size()),
                           .last = *trial,
                           .best = best() != nullptr ? *best() : TuneTrial{},
                           .busy = (*bench)->take_busy()});
      goes_on = goes_on && wanted;
      since = Clock::now();
      if (!goes_on) break;
    }
    if (Clock::now() - kept > kept_every) {
      keep(record);
      kept = Clock::now();
    }
  }
  if (wanted)
    if (auto compared = compare_close(**bench, tunable.initial, record); !compared) {
      if ((*bench)->stuck()) stuck_ = tunable.kernel;
      keep(record);
      return std::move(compared).error();
    }
  rank(record);
  keep(record);
  return record;
}

Result<void> AutoTuner::compare_close(Bench& bench, const Variant& initial, TuneRecord& record) {
  std::vector<TuneTrial*> close;
  const auto best = record.trials.empty() ? std::chrono::nanoseconds() : record.trials.front().time;
  for (TuneTrial& trial : record.trials)
    if (close.size() < most_compared && trial.problem.empty() &&
        static_cast<double>(trial.time.count()) <= close_to_best * static_cast<double>(best.count()))
      close.push_back(&trial);
  // The winner must beat the initial variant in the same comparison.
  const std::size_t near = close.size();
  for (TuneTrial& trial : record.trials)
    if (trial.problem.empty() && trial.variant == initial && std::ranges::find(close, &trial) == close.end())
      close.push_back(&trial);
  if (close.size() < 2) return {};
  KILN_TRY(bench.compare(close));
  // Other variants may have been measured at another clock rate: rank them after the compared ones.
  std::chrono::nanoseconds last = {};
  for (std::size_t i = 0; i < near; ++i) last = std::max(last, close[i]->time);
  for (TuneTrial& trial : record.trials)
    if (trial.problem.empty() && std::ranges::find(close, &trial) == close.end())
      trial.time = std::max(trial.time, last + std::chrono::nanoseconds(1));
  return {};
}

bool AutoTuner::rest(std::chrono::nanoseconds busy) {
  const double duty = std::clamp(options_.duty, 0.001, 1.0);
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(busy * (1 / duty - 1));
  const base::MutexLock lock(mutex_);
  while (!ends_ && asked_ == 0 && Clock::now() < until) changed_.wait_until(mutex_, until);
  return !ends_ && asked_ == 0;
}

void AutoTuner::work_in_background() {
  while (true) {
    Tunable tunable;
    How how;
    {
      const base::MutexLock lock(mutex_);
      searching_ = false;
      changed_.notify_all();
      while (!ends_ && (waiting_.empty() || Clock::now() < waiting_.front().from)) {
        if (waiting_.empty())
          changed_.wait(mutex_);
        else
          changed_.wait_until(mutex_, waiting_.front().from);
      }
      if (ends_) return;
      tunable = std::move(waiting_.front().tunable);
      waiting_.pop_front();
      const TuneRecord like = record_for(tunable);
      for (const auto& [call, use] : uses_)
        if (same_call(use.like, like)) how.frequent = looks_of(use) == Use::Looked::as_frequent;
      searching_ = true;
    }
    try {
      const auto found =
          search(tunable, options_.budget, how, [this](const TuneProgress& done) { return rest(done.busy); });
      if (!found) options_.log.info(fmt::format("{} was not tuned: {}", tunable.kernel, found.error().message()));
    } catch (const std::exception& exception) {
      options_.log.warning(fmt::format("{} was not tuned: {}", tunable.kernel, exception.what()));
    } catch (...) {
      options_.log.warning(
          fmt::format("{} was not tuned: it threw an exception of an unknown type", tunable.kernel));
    }
    const base::MutexLock lock(mutex_);
    // A caller of tune() interrupted this search; continue it afterwards.
    if (asked_ > 0 && !ends_) waiting_.push_front({std::move(tunable), Clock::now()});
  }
}

}  // namespace kiln::tune
