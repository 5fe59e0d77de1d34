#include "kernels/tune/records.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/file.hpp"
#include "base/try.hpp"
#include "store/directory.hpp"
#include "store/json_file.hpp"

namespace kiln::tune {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t version = 1;
constexpr std::chrono::milliseconds lock_timeout{2000};
/// If a record has more usable trials, the worst are dropped. Unusable ones are kept, so that they are not tried
/// again.
constexpr std::size_t most_trials = 512;
/// Larger than a file with the maximum number of records and trials.
constexpr std::uint64_t most_bytes = std::uint64_t{128} << 20;

Json json_of(const Identity& identity) {
  return {{"api", identity.api},       {"vendor", identity.vendor},     {"device", identity.device},
          {"driver", identity.driver}, {"compiler", identity.compiler}, {"formats", identity.formats}};
}

Json json_of(const TuneRecord& record) {
  Json sizes = Json::object();
  for (const TuneSize& size : record.sizes) sizes[size.name] = size.value;
  Json trials = Json::array();
  for (const TuneTrial& trial : record.trials) {
    Json one = {{"variant", trial.variant}};
    if (trial.problem.empty())
      one["ns"] = trial.time.count();
    else
      one["problem"] = trial.problem;
    trials.push_back(std::move(one));
  }
  return {{"kernel", record.kernel},         {"types", record.types},       {"sizes", std::move(sizes)},
          {"parameters", record.parameters}, {"complete", record.complete}, {"hint", record.hint},
          {"calls", record.calls},           {"trials", std::move(trials)}};
}

/// Nothing if the trial is invalid.
std::optional<TuneTrial> trial_of(const Json& json, std::size_t parameters) {
  TuneTrial trial;
  for (const Json& value : json.at("variant")) {
    const auto number = store::whole_number<int>(value);
    if (!number) return std::nullopt;
    trial.variant.push_back(*number);
  }
  trial.problem = json.value("problem", std::string());
  if (const auto time = json.find("ns"); time != json.end())
    trial.time = std::chrono::nanoseconds(store::whole_number<std::int64_t>(*time).value_or(0));
  if (trial.variant.size() != parameters) return std::nullopt;
  if (trial.problem.empty() && trial.time.count() <= 0) return std::nullopt;
  return trial;
}

/// Throws, or returns nothing, if the record is invalid.
std::optional<TuneRecord> record_of(const Json& json) {
  TuneRecord record{.kernel = json.at("kernel"),
                    .types = json.at("types"),
                    .parameters = json.at("parameters").get<std::vector<std::string>>(),
                    .complete = json.at("complete"),
                    .hint = json.at("hint")};
  if (const auto calls = json.find("calls"); calls != json.end())
    record.calls = store::whole_number<std::uint64_t>(*calls).value_or(0);
  for (const auto& [name, value] : json.at("sizes").items()) {
    const auto size = store::whole_number<std::int64_t>(value);
    if (!size) return std::nullopt;
    record.sizes.push_back({name, *size});
  }
  for (const Json& one : json.at("trials"))
    if (auto trial = trial_of(one, record.parameters.size())) record.trials.push_back(std::move(*trial));
  rank(record);
  return record;
}

/// Dropped first: records without trials, then hints, then rarely used ones.
std::tuple<bool, bool, std::uint64_t> worth(const TuneRecord& record) {
  return {!record.trials.empty(), !record.hint, record.calls};
}

}  // namespace

bool same_device(const Identity& a, const Identity& b) {
  return a.api == b.api && a.vendor == b.vendor && a.device == b.device;
}

bool same_call(const TuneRecord& a, const TuneRecord& b) noexcept {
  return a.kernel == b.kernel && a.types == b.types && a.sizes == b.sizes;
}

void rank(TuneRecord& record) {
  std::stable_sort(record.trials.begin(), record.trials.end(), [](const TuneTrial& a, const TuneTrial& b) {
    if (a.problem.empty() != b.problem.empty()) return a.problem.empty();
    return a.problem.empty() && a.time < b.time;
  });
}

const TuneRecord* Records::find(const TuneRecord& like) const noexcept {
  const auto found =
      std::find_if(all_.begin(), all_.end(), [&](const TuneRecord& one) { return same_call(one, like); });
  return found != all_.end() ? &*found : nullptr;
}

void Records::add(const TuneRecord& record) {
  const auto found =
      std::find_if(all_.begin(), all_.end(), [&](const TuneRecord& one) { return same_call(one, record); });
  if (found == all_.end()) {
    all_.push_back(record);
    if (all_.size() > most_records) all_.erase(std::ranges::min_element(all_, {}, worth));
    return;
  }
  found->calls += record.calls;
  if (record.trials.empty()) return;
  // Times from another driver, or of other parameters, cannot be compared with these.
  if (record.hint && !found->hint && !found->trials.empty()) return;
  if (record.hint != found->hint || record.parameters != found->parameters) {
    const std::uint64_t calls = found->calls;
    *found = record;
    found->calls = calls;
    return;
  }
  for (const TuneTrial& trial : record.trials) {
    const auto before = std::find_if(found->trials.begin(), found->trials.end(),
                                     [&](const TuneTrial& one) { return one.variant == trial.variant; });
    if (before != found->trials.end())
      *before = trial;
    else
      found->trials.push_back(trial);
  }
  found->complete = found->complete || record.complete;
  rank(*found);
  const auto usable = std::find_if(found->trials.begin(), found->trials.end(),
                                   [](const TuneTrial& one) { return !one.problem.empty(); });
  if (static_cast<std::size_t>(usable - found->trials.begin()) > most_trials)
    found->trials.erase(found->trials.begin() + most_trials, usable);
}

void Records::doubt(const TuneRecord& like) {
  for (TuneRecord& record : all_)
    if (same_call(record, like)) record.hint = true;
}

void Records::add(const std::vector<TuneRecord>& records) {
  for (const TuneRecord& record : records) add(record);
}

std::string to_json(const Identity& identity, const std::vector<TuneRecord>& records) {
  Json json = {{"version", version}, {"identity", json_of(identity)}};
  json["records"] = Json::array();
  for (const TuneRecord& record : records) json["records"].push_back(json_of(record));
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<std::optional<Parsed>> parse(std::string_view text) {
  const auto json = store::parse_json(text);
  if (!json) return std::optional<Parsed>();
  try {
    const auto found = store::whole_number<std::uint64_t>(json->at("version"));
    if (found && *found > version)
      return Error(ErrorCode::unsupported,
                   fmt::format("it has version {}; this version of Kiln reads up to {}", *found, version));
    auto identity = store::identity_in(*json);
    if (!found || !identity) return std::optional<Parsed>();
    Parsed parsed{std::move(*identity), {}};
    for (const Json& one : json->at("records")) {
      auto record = record_of(one);
      if (!record) return std::optional<Parsed>();
      parsed.records.push_back(std::move(*record));
    }
    return std::optional(std::move(parsed));
  } catch (const nlohmann::json::exception&) {
    return std::optional<Parsed>();
  }
}

Result<std::vector<TuneRecord>> read_records(const base::Folder& folder, const Identity& identity) {
  const auto file = folder.read(store::tuning_name, most_bytes);
  // Too large, or not this user's file: treated as damaged, and replaced.
  if (!file && file.error().code() == ErrorCode::damaged) return std::vector<TuneRecord>();
  if (!file) return file.error();
  if (!*file) return std::vector<TuneRecord>();
  auto parsed = parse({reinterpret_cast<const char*>((*file)->bytes.data()), (*file)->bytes.size()});
  if (!parsed)
    return Error(parsed.error().code(),
                 fmt::format("{}: {}", (folder.path() / store::tuning_name).string(), parsed.error().message()));
  if (!*parsed || !same_device((*parsed)->identity, identity)) return std::vector<TuneRecord>();
  const bool hints = (*parsed)->identity != identity;
  for (TuneRecord& record : (*parsed)->records) record.hint = record.hint || hints;
  return std::move((*parsed)->records);
}

Elsewhere read_elsewhere(const std::filesystem::path& folder, const Identity& identity) {
  const auto folders = store::device_folders(folder.parent_path());
  if (!folders) return {};
  Records hints;
  Records relatives;
  for (const store::DeviceFolder& other : *folders) {
    if (other.path == folder || !other.identity || other.identity->api != identity.api ||
        other.identity->vendor != identity.vendor)
      continue;
    const auto opened = base::Folder::open(other.path, false);
    if (!opened) continue;
    const auto records = read_records(*opened, *other.identity);
    if (!records) continue;
    for (TuneRecord record : *records) {
      record.hint = true;
      record.calls = 0;
      (same_device(*other.identity, identity) ? hints : relatives).add(record);
    }
  }
  return {hints.all(), relatives.all()};
}

Result<void> write_records(const std::filesystem::path& path, const Identity& identity,
                           const std::vector<TuneRecord>& more) {
  auto folder = KILN_TRY(base::Folder::open(path, true));
  auto lock_file = KILN_TRY(folder.open_lock_file(store::tuning_lock_name));
  const auto lock = base::FileLock::acquire(lock_file, 0, lock_timeout);
  const auto before = KILN_TRY(read_records(folder, identity));
  Records records;
  records.add(before);
  records.add(more);
  const std::string text = to_json(identity, records.all());
  return folder.replace(store::tuning_name, std::as_bytes(std::span(text)));
}

}  // namespace kiln::tune
