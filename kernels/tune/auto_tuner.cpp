#include "kernels/tune/auto_tuner.hpp"

#include <algorithm>
#include <fstream>
#include <utility>

#include <fmt/format.h>

#include "kernels/tune/use.hpp"

namespace kiln::tune {
namespace {

using Clock = std::chrono::steady_clock;

/// A variant is better than another if it takes at most this share of its time.
constexpr double better = 0.97;
/// The most calls to remember, and the most that may wait for a search.
constexpr std::size_t most_uses = 4096;
constexpr std::size_t most_waiting = 256;

bool is_frequent_parameter(const TuneParameter& parameter) { return parameter.when_frequent; }

std::uint64_t bytes_of_inputs(const Tunable& tunable) {
  std::uint64_t bytes = 0;
  for (const Shape& shape : tunable.inputs) bytes += static_cast<std::uint64_t>(count_of(shape)) * sizeof(float);
  return bytes;
}

}  // namespace

AutoTuner::AutoTuner(std::shared_ptr<Device> device, Cache& cache, TuneOptions options)
    : device_(std::move(device)), cache_(cache), options_(std::move(options)) {}

AutoTuner::~AutoTuner() = default;

Result<void> AutoTuner::start() {
  if (options_.policy == TunePolicy::off) return {};
  const std::filesystem::path path = cache_.folder();
  if (!path.empty()) {
    const base::MutexLock lock(mutex_);
    const Elsewhere elsewhere = read_elsewhere(path, device_->identity());
    records_.add(elsewhere.hints);
    relatives_.add(elsewhere.relatives);
    if (const auto folder = base::Folder::open(path, false)) {
      if (const auto found = read_records(*folder, device_->identity()))
        records_.add(*found);
      else
        options_.log.warning(fmt::format("earlier tuning records are not used: {}", found.error().message()));
    }
  }
  if (options_.policy == TunePolicy::background) background_ = std::thread([this] { work_in_background(); });
  return {};
}

void AutoTuner::end() {
  {
    const base::MutexLock lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (background_.joinable()) background_.join();
  {
    const base::MutexLock measuring(measuring_);
    executor_ = nullptr;
  }
  std::vector<TuneRecord> called;
  {
    const base::MutexLock lock(mutex_);
    forget_uses();
    called = std::exchange(unwritten_, {});
  }
  if (!called.empty()) write(called);
}

std::uint64_t AutoTuner::calls_of(const Use& use) const {
  const TuneRecord* record = records_.find(use.like);
  return use.calls + (record != nullptr ? record->calls : 0);
}

bool AutoTuner::is_known(const Use& use, const Tunable& tunable) const {
  const TuneRecord* record = records_.find(use.like);
  if (record == nullptr || !record->complete || record->hint || record->parameters != use.like.parameters)
    return false;
  return calls_of(use) < options_.frequent || std::ranges::none_of(tunable.parameters, is_frequent_parameter) ||
         std::ranges::any_of(record->trials, [&](const TuneTrial& trial) {
           return trial.variant != for_any(trial.variant, tunable);
         });
}

Use::Looked AutoTuner::looks_of(const Use& use) const {
  return calls_of(use) >= options_.frequent ? Use::Looked::as_frequent : Use::Looked::once;
}

bool AutoTuner::is_to_be_searched(const Use& use, const Tunable& tunable) const {
  return use.looked < looks_of(use) && !is_known(use, tunable);
}

Variant AutoTuner::choose_again(Use& use, const Tunable& tunable) {
  use.best = best_known(tunable, records_, relatives_).value_or(tunable.initial);
  use.took.clear();
  use.rivals.clear();
  use.look_again = Use::never;
  if (const TuneRecord* record = records_.find(use.like);
      record != nullptr && record->parameters == use.like.parameters && options_.rivals > 0)
    for (const TuneTrial& trial : record->trials)
      if (trial.problem.empty() && trial.variant != *use.best && use.rivals.size() + 1 < most_compared &&
          has(tunable, trial.variant) &&
          static_cast<double>(trial.time.count()) <=
              close_to_best * static_cast<double>(record->trials.front().time.count()))
        use.rivals.push_back(trial.variant);
  if (options_.policy != TunePolicy::background) return use.next(options_.rivals);
  const std::uint64_t calls = calls_of(use);
  if (calls < options_.frequent && std::ranges::any_of(tunable.parameters, is_frequent_parameter))
    use.look_again = use.calls + (options_.frequent - calls);
  if (is_to_be_searched(use, tunable) && waiting_.size() < most_waiting &&
      bytes_of_inputs(tunable) <= options_.background_bytes) {
    use.looked = looks_of(use);
    waiting_.push_back({tunable, Clock::now() + options_.begin_after});
    changed_.notify_all();
  }
  return use.next(options_.rivals);
}

Variant AutoTuner::choose(std::string_view kernel, std::string_view types, std::span<const std::int64_t> sizes,
                          const std::function<Tunable()>& describe) {
  if (options_.policy == TunePolicy::off) return describe().initial;
  const Call call{std::string(kernel), std::string(types), std::vector(sizes.begin(), sizes.end())};
  {
    const base::MutexLock lock(mutex_);
    if (uses_.size() >= most_uses) forget_uses();
    Use& use = uses_[call];
    ++use.calls;
    if (use.best && use.calls < use.look_again) return use.next(options_.rivals);
  }
  const Tunable tunable = describe();
  How how{.alone = true};
  bool wait = false;
  {
    const base::MutexLock lock(mutex_);
    Use& use = uses_[call];
    use.like = record_for(tunable);
    wait = options_.policy == TunePolicy::exhaustive && is_to_be_searched(use, tunable);
    how.frequent = looks_of(use) == Use::Looked::as_frequent;
    // Only once, because another search would find no more.
    if (wait) use.looked = looks_of(use);
  }
  if (wait)
    if (const auto found = search(tunable, options_.budget, how, {}); !found)
      options_.log.warning(fmt::format("{} was not tuned: {}", tunable.kernel, found.error().message()));
  const base::MutexLock lock(mutex_);
  Use& use = uses_[call];
  use.like = record_for(tunable);
  return choose_again(use, tunable);
}

void AutoTuner::forget_uses() {
  // If sizes change all the time, only the call counts are worth keeping.
  for (auto& [call, use] : uses_) {
    if (use.calls == 0 || use.like.kernel.empty() || unwritten_.size() >= most_uses) continue;
    use.like.calls = use.calls;
    unwritten_.push_back(use.like);
  }
  uses_.clear();
}

std::function<void(const JobReport&)> AutoTuner::watch(std::string_view kernel, std::string_view types,
                                                       std::span<const std::int64_t> sizes,
                                                       const Variant& variant) {
  if (options_.policy == TunePolicy::off || (options_.policy != TunePolicy::background && options_.rivals <= 0))
    return {};
  Call call{std::string(kernel), std::string(types), std::vector(sizes.begin(), sizes.end())};
  return [self = weak_from_this(), call = std::move(call), variant](const JobReport& report) {
    if (const auto tuner = self.lock(); tuner != nullptr && report.compute.count() > 0)
      tuner->observe(call, variant, report.compute);
  };
}

void AutoTuner::observe(const Call& call, const Variant& variant, std::chrono::nanoseconds took) {
  std::string news;
  {
    const base::MutexLock lock(mutex_);
    news = learn(call, variant, took);
  }
  if (!news.empty()) options_.log.info(news);
}

std::string AutoTuner::learn(const Call& call, const Variant& variant, std::chrono::nanoseconds took) {
  const auto found = uses_.find(call);
  if (found == uses_.end() || !found->second.best) return {};
  Use& use = found->second;
  Average& average = use.took[variant];
  average.add(took);
  if (!average.tells()) return {};
  const TuneRecord* record = records_.find(use.like);
  if (record == nullptr || record->hint) return {};
  const auto measured = [record](const Variant& of) -> std::chrono::nanoseconds {
    const auto trial = std::ranges::find(record->trials, of, &TuneTrial::variant);
    return trial != record->trials.end() ? trial->time : std::chrono::nanoseconds();
  };
  const auto of_best = static_cast<double>(measured(*use.best).count());
  if (measured(variant).count() == 0 || of_best == 0) return {};
  const auto in_calls = static_cast<double>(average.time().count());
  if (variant == *use.best) {
    if (in_calls <= use.slow * of_best) return {};
    use.slow *= 2;
    use.looked = Use::Looked::never;
    use.best = std::nullopt;
    records_.doubt(use.like);
    return fmt::format(
        "{} takes {:.0f} ns instead of the measured {:.0f} ns: the choice of its variant is reconsidered",
        call.kernel, in_calls, of_best);
  }
  const auto best = use.took.find(*use.best);
  if (best == use.took.end() || !best->second.tells()) return {};
  const double share = in_calls / static_cast<double>(best->second.time().count());
  if (share > better) return {};
  // Calls take longer than isolated measurements, so scale the best variant's measured time by the ratio in calls.
  TuneRecord observed = use.like;
  observed.trials = {
      {.variant = variant, .time = std::chrono::nanoseconds(static_cast<std::int64_t>(share * of_best))}};
  records_.add(observed);
  if (unwritten_.size() < most_uses) unwritten_.push_back(std::move(observed));
  use.best = std::nullopt;
  return {};
}

void AutoTuner::keep(TuneRecord record) {
  {
    const base::MutexLock lock(mutex_);
    record.calls = 0;
    for (auto& [call, use] : uses_)
      if (same_call(use.like, record)) record.calls += std::exchange(use.calls, 0);
    records_.add(record);
    // Calls of this kernel choose again, because the record may have a better variant for them.
    for (auto& [call, use] : uses_)
      if (call.kernel == record.kernel) use.best = std::nullopt;
  }
  write({record});
}

void AutoTuner::write(const std::vector<TuneRecord>& records) {
  if (cache_.folder().empty()) return;
  const auto written = write_records(cache_.folder(), device_->identity(), records);
  if (written) return;
  options_.log.warning(fmt::format("the tuning records were not saved: {}", written.error().message()));
  const base::MutexLock lock(mutex_);
  if (!unsaved_) unsaved_ = written.error();
}

Result<void> AutoTuner::saved() const {
  if (cache_.folder().empty()) return Error(ErrorCode::io, "the cache does not store anything on disk");
  const base::MutexLock lock(mutex_);
  if (unsaved_) return *unsaved_;
  return {};
}

std::vector<TuneRecord> AutoTuner::records() const {
  const base::MutexLock lock(mutex_);
  return records_.all();
}

Result<void> AutoTuner::export_to(const std::filesystem::path& file) const {
  return base::write_file(file, to_json(device_->identity(), records()));
}

Result<std::size_t> AutoTuner::import_from(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in) return Error(ErrorCode::io, fmt::format("cannot read {}", file.string()));
  auto parsed = parse(text);
  if (!parsed) return Error(parsed.error().code(), fmt::format("{}: {}", file.string(), parsed.error().message()));
  if (!*parsed)
    return Error(ErrorCode::damaged, fmt::format("{} was not written by `kiln tune export`", file.string()));
  const Identity& from = (*parsed)->identity;
  const Identity own = device_->identity();
  if (!same_device(from, own))
    return Error(ErrorCode::invalid_request,
                 fmt::format("{} is for {} ({}), but this device is {} ({})", file.string(), from.device, from.api,
                             own.device, own.api));
  for (TuneRecord& record : (*parsed)->records) {
    record.hint = record.hint || from != own;
    keep(record);
  }
  return (*parsed)->records.size();
}

void AutoTuner::drain() {
  const base::MutexLock lock(mutex_);
  while (!ends_ && (searching_ || !waiting_.empty())) changed_.wait(mutex_);
}

}  // namespace kiln::tune
