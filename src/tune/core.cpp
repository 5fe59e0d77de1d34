#include "tune/core.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <utility>

#include <fmt/format.h>

#include "tune/bench.hpp"
#include "tune/search.hpp"

namespace kiln::tune {
namespace {

using Clock = std::chrono::steady_clock;

/// Sizes that are further apart than by this factor have nothing to tell each other.
constexpr double near_enough = 4;
/// How many variants are compiled at once, while one is measured.
constexpr std::size_t compiled_at_once = 8;
/// Those so close to the best are measured again together with it.
constexpr double close_to_best = 1.1;
constexpr std::size_t most_compared = 4;
/// How often what was found is written down meanwhile.
constexpr auto kept_every = std::chrono::seconds(2);

TuneRecord record_for(const Tunable& tunable) {
  TuneRecord record{.kernel = tunable.kernel, .types = tunable.types, .sizes = tunable.sizes};
  for (const TuneParameter& parameter : tunable.parameters) record.parameters.push_back(parameter.name);
  return record;
}

/// How far apart the sizes of two calls are: 0 for the same, nothing where they are not to be compared.
std::optional<double> distance(const std::vector<TuneSize>& a, const std::vector<TuneSize>& b) {
  if (a.size() != b.size()) return std::nullopt;
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].name != b[i].name) return std::nullopt;
    const double apart =
        std::log2((static_cast<double>(a[i].value) + 1) / (static_cast<double>(b[i].value) + 1));
    if (std::abs(apart) > std::log2(near_enough)) return std::nullopt;
    sum += apart * apart;
  }
  return sum;
}

/// The best of a record that this call can run.
std::optional<Variant> usable(const TuneRecord& record, const Tunable& tunable) {
  if (record.parameters != record_for(tunable).parameters) return std::nullopt;
  for (const TuneTrial& trial : record.trials)
    if (trial.problem.empty() && (!tunable.fits || tunable.fits(trial.variant))) return trial.variant;
  return std::nullopt;
}

}  // namespace

Core::Core(std::shared_ptr<Device> device, Cache& cache, TuneOptions options)
    : device_(std::move(device)), cache_(cache), options_(std::move(options)) {}

Core::~Core() {
  {
    const base::MutexLock lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (background_.joinable()) background_.join();
}

Result<void> Core::start() {
  if (options_.policy == TunePolicy::off) return {};
  const std::filesystem::path path = cache_.folder();
  if (!path.empty()) {
    const base::MutexLock lock(mutex_);
    records_.add(read_hints(path, device_->identity()));
    if (const auto folder = base::Folder::open(path, false)) {
      if (const auto found = read_records(*folder, device_->identity()))
        records_.add(*found);
      else
        options_.log.warning(fmt::format("what was tuned before is not used: {}", found.error().message()));
    }
  }
  if (options_.policy == TunePolicy::background) background_ = std::thread([this] { work_in_background(); });
  return {};
}

std::optional<Variant> Core::best_known(const Tunable& tunable) const {
  const TuneRecord like = record_for(tunable);
  if (const TuneRecord* exact = records_.find(like))
    if (auto variant = usable(*exact, tunable)) return variant;
  std::optional<Variant> nearest;
  double least = 0;
  for (const TuneRecord& record : records_.all()) {
    if (record.kernel != like.kernel || record.types != like.types) continue;
    const auto apart = distance(record.sizes, like.sizes);
    if (!apart || (nearest && *apart >= least)) continue;
    if (auto variant = usable(record, tunable)) {
      nearest = std::move(variant);
      least = *apart;
    }
  }
  return nearest;
}

Variant Core::choose(std::string_view kernel, std::span<const std::int64_t> sizes,
                     const std::function<Tunable()>& describe) {
  Call call(kernel, std::vector(sizes.begin(), sizes.end()));
  {
    const base::MutexLock lock(mutex_);
    if (const auto found = chosen_.find(call); found != chosen_.end()) return found->second;
  }
  Tunable tunable = describe();
  if (options_.policy == TunePolicy::off) return tunable.initial;
  bool known = false;
  {
    const base::MutexLock lock(mutex_);
    const TuneRecord like = record_for(tunable);
    const TuneRecord* record = records_.find(like);
    known = record != nullptr && record->complete && !record->hint && record->parameters == like.parameters;
  }
  if (options_.policy == TunePolicy::exhaustive && !known)
    if (const auto found = tune(tunable, options_.budget, {}); !found)
      options_.log.warning(fmt::format("{} was not tuned: {}", tunable.kernel, found.error().message()));
  const base::MutexLock lock(mutex_);
  const Variant variant = best_known(tunable).value_or(tunable.initial);
  chosen_.insert_or_assign(std::move(call), variant);
  if (options_.policy == TunePolicy::background && !known) {
    waiting_.push_back(std::move(tunable));
    changed_.notify_all();
  }
  return variant;
}

void Core::keep(const TuneRecord& record) {
  {
    const base::MutexLock lock(mutex_);
    records_.add(record);
    // All that could be better served by it chooses anew when it comes again.
    std::erase_if(chosen_, [&](const auto& one) { return one.first.first == record.kernel; });
  }
  if (cache_.folder().empty()) return;
  if (const auto written = write_records(cache_.folder(), device_->identity(), {record}); !written)
    options_.log.warning(fmt::format("what was tuned is not kept: {}", written.error().message()));
}

Result<TuneRecord> Core::tune(const Tunable& tunable, std::chrono::nanoseconds budget,
                              const std::function<bool(const TuneProgress&)>& progress) {
  const base::MutexLock measuring(measuring_);
  if (executor_ == nullptr) {
    auto executor = Executor::create(device_, cache_, {.lanes = 1, .log = options_.log});
    if (!executor) return std::move(executor).error();
    executor_ = std::move(*executor);
  }
  auto bench = Bench::create(*executor_, device_, tunable, options_, options_.seed);
  if (!bench) return std::move(bench).error();
  Search search(tunable, options_.seed);
  TuneRecord record = record_for(tunable);
  {
    const base::MutexLock lock(mutex_);
    // What another version of the kernel had as parameters says nothing about these.
    if (const TuneRecord* before = records_.find(record);
        before != nullptr && !before->hint && before->parameters == record.parameters)
      record = *before;
  }
  for (const TuneTrial& trial : record.trials) search.learn(trial);
  const auto best = [&record]() -> const TuneTrial* {
    return !record.trials.empty() && record.trials.front().problem.empty() ? &record.trials.front() : nullptr;
  };
  auto kept = Clock::now();
  Clock::duration spent = {};
  bool goes_on = true;
  while (goes_on) {
    const std::vector<Variant> batch = search.next(compiled_at_once);
    if (batch.empty()) {
      record.complete = true;
      break;
    }
    auto since = Clock::now();
    (*bench)->compile(batch);
    for (const Variant& variant : batch) {
      const auto least = best() != nullptr ? std::optional(best()->time) : std::nullopt;
      const auto trial = (*bench)->measure(variant, least);
      if (!trial) return trial.error();
      search.learn(*trial);
      record.trials.push_back(*trial);
      rank(record);
      spent += Clock::now() - since;
      goes_on = spent < budget;
      if (progress)
        goes_on = progress({.tried = record.trials.size(),
                            .of = std::max(search.size(), record.trials.size()),
                            .last = *trial,
                            .best = best() != nullptr ? *best() : TuneTrial{},
                            .busy = (*bench)->take_busy()}) &&
                  goes_on;
      since = Clock::now();
      if (!goes_on) break;
    }
    if (Clock::now() - kept > kept_every) {
      keep(record);
      kept = Clock::now();
    }
  }
  std::vector<TuneTrial*> close;
  for (TuneTrial& trial : record.trials)
    if (close.size() < most_compared && trial.problem.empty() &&
        static_cast<double>(trial.time.count()) <= close_to_best * static_cast<double>(best()->time.count()))
      close.push_back(&trial);
  if (close.size() > 1)
    if (auto compared = (*bench)->compare(close); !compared) return std::move(compared).error();
  rank(record);
  keep(record);
  return record;
}

bool Core::rest(std::chrono::nanoseconds busy) {
  const double duty = std::clamp(options_.duty, 0.001, 1.0);
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(busy * (1 / duty - 1));
  const base::MutexLock lock(mutex_);
  while (!ends_ && Clock::now() < until) changed_.wait_until(mutex_, until);
  return !ends_;
}

void Core::work_in_background() {
  while (true) {
    Tunable tunable;
    {
      const base::MutexLock lock(mutex_);
      searching_ = false;
      changed_.notify_all();
      while (!ends_ && waiting_.empty()) changed_.wait(mutex_);
      if (ends_) return;
      tunable = std::move(waiting_.front());
      waiting_.pop_front();
      searching_ = true;
    }
    const auto found = tune(tunable, options_.budget, [this](const TuneProgress& done) { return rest(done.busy); });
    if (!found) options_.log.info(fmt::format("{} was not tuned: {}", tunable.kernel, found.error().message()));
  }
}

std::vector<TuneRecord> Core::records() const {
  const base::MutexLock lock(mutex_);
  return records_.all();
}

Result<void> Core::export_to(const std::filesystem::path& file) const {
  const std::string text = to_json(device_->identity(), records());
  std::ofstream out(file, std::ios::binary);
  out << text;
  out.flush();
  if (!out) return Error(ErrorCode::io, fmt::format("cannot write {}", file.string()));
  return {};
}

Result<std::size_t> Core::import_from(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in) return Error(ErrorCode::io, fmt::format("cannot read {}", file.string()));
  auto parsed = parse(text);
  if (!parsed)
    return Error(parsed.error().code(), fmt::format("{}: {}", file.string(), parsed.error().message()));
  if (!*parsed)
    return Error(ErrorCode::damaged, fmt::format("{} is no file that `kiln tune export` wrote", file.string()));
  const Identity& from = (*parsed)->identity;
  const Identity own = device_->identity();
  if (!same_device(from, own))
    return Error(ErrorCode::invalid_request,
                 fmt::format("{} is of {} by {}, and the device here is {} by {}", file.string(), from.device, from.api,
                             own.device, own.api));
  for (TuneRecord& record : (*parsed)->records) {
    record.hint = record.hint || from != own;
    keep(record);
  }
  return (*parsed)->records.size();
}

void Core::drain() {
  const base::MutexLock lock(mutex_);
  while (!ends_ && (searching_ || !waiting_.empty())) changed_.wait(mutex_);
}

}  // namespace kiln::tune
