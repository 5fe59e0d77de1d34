#include <algorithm>
#include <functional>
#include <iterator>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bundle_of_others.hpp"

namespace kiln::cli {
namespace {

struct SplitOptions {
  std::string from = {};
  std::string to = {};
  std::vector<std::string> targets = {};
  std::vector<std::string> apis = {};
  std::vector<std::string> programs = {};
  bool drops_requests = false;
};

/// What a value of an option selects in a bundle.
struct WantedTargets {
  /// As in "cuda:sm_90".
  std::string name = {};
  std::set<Digest> targets = {};
};

Failure nothing_selected(const store::BundleFile& bundle, std::string_view what) {
  std::vector<std::string> targets;
  for (const auto& target : bundle.targets()) targets.push_back(target_name(target.identity));
  return Failure(Error(ErrorCode::invalid_request, fmt::format("{} has no program {}; its targets are: {}",
                                                               bundle.name(), what, fmt::join(targets, ", "))));
}

/// The targets that `is_wanted` returns true for. Throws Failure if there are none.
WantedTargets find_targets(const store::BundleFile& bundle, const std::string& name, const std::string& what,
                           const std::function<bool(const Identity&)>& is_wanted) {
  WantedTargets found{.name = name};
  for (const auto& target : bundle.targets())
    if (is_wanted(target.identity)) found.targets.insert(target.digest);
  if (found.targets.empty()) throw nothing_selected(bundle, what);
  return found;
}

/// Each target of "cuda:sm_90", "cuda:sm_80,sm_90", "cuda:all" or "vulkan". Throws Failure if one has no program.
std::vector<WantedTargets> targets_in(const store::BundleFile& bundle, const std::string& wanted) {
  const std::string api = wanted.substr(0, wanted.find(':'));
  std::string_view devices = std::string_view(wanted).substr(std::min(api.size() + 1, wanted.size()));
  const auto is_named = [&](const auto& target) { return target_name(target.identity) == wanted; };
  if (devices.empty() || std::ranges::any_of(bundle.targets(), is_named))
    return {find_targets(bundle, wanted, "for " + wanted,
                         [&](const Identity& target) { return target_name(target) == wanted; })};
  if (devices == "all")
    return {
        find_targets(bundle, wanted, "for " + wanted, [&](const Identity& target) { return target.api == api; })};
  std::vector<WantedTargets> found;
  while (!devices.empty()) {
    // Names of devices may have commas, so the longest that matches counts.
    std::size_t end = std::min(devices.find(','), devices.size());
    for (const auto& [target, digest, first, count] : bundle.targets())
      if (target.api == api && (devices == target.device || devices.starts_with(target.device + ",")))
        end = std::max(end, target.device.size());
    const std::string_view device = devices.substr(0, end);
    const std::string name = fmt::format("{}:{}", api, device);
    found.push_back(find_targets(bundle, name, "for " + name, [&](const Identity& target) {
      return target.api == api && target.device == device;
    }));
    devices.remove_prefix(std::min(end + 1, devices.size()));
  }
  return found;
}

bool has_target(const std::vector<WantedTargets>& wanted, const Digest& target) {
  return wanted.empty() ||
         std::ranges::any_of(wanted, [&](const WantedTargets& each) { return each.targets.contains(target); });
}

/// The rows of these programs, by name or key. Throws Failure if there is none for one of them.
std::vector<BundleRow> rows_of_programs(const store::BundleFile& bundle, const std::vector<BundleRow>& rows,
                                        const std::vector<std::string>& programs) {
  const auto entries = read_entries(bundle, rows);
  std::set<std::size_t> places;
  for (const std::string& wanted : programs) {
    bool is_found = false;
    for (const BundleEntry& entry : entries) {
      if (!is_selected_by(wanted, entry.row.program.key, entry.name())) continue;
      places.insert(entry.row.place);
      is_found = true;
    }
    if (!is_found) throw nothing_selected(bundle, "with the name or key " + wanted);
  }
  std::vector<BundleRow> found = rows;
  std::erase_if(found, [&places](const BundleRow& row) { return !places.contains(row.place); });
  return found;
}

/// Throws Failure if the options select nothing, or if one of them selects nothing that the others select too.
std::vector<BundleRow> selected_rows(const store::BundleFile& bundle, const SplitOptions& options) {
  std::vector<WantedTargets> targets;
  for (const std::string& wanted : options.targets)
    std::ranges::move(targets_in(bundle, wanted), std::back_inserter(targets));
  std::vector<WantedTargets> apis;
  for (const std::string& api : options.apis)
    apis.push_back(find_targets(bundle, api, "for the API " + api,
                                [&api](const Identity& target) { return target.api == api; }));
  std::vector<BundleRow> rows = rows_of(bundle);
  std::erase_if(rows, [&](const BundleRow& row) {
    return !has_target(targets, row.target->digest) || !has_target(apis, row.target->digest);
  });
  const auto check = [&] {
    for (const auto* wanted : {&targets, &apis})
      for (const WantedTargets& each : *wanted)
        if (std::ranges::none_of(rows,
                                 [&](const BundleRow& row) { return each.targets.contains(row.target->digest); }))
          throw Failure(Error(
              ErrorCode::invalid_request,
              fmt::format("{} has no program for {} that the other options select too", bundle.name(), each.name)));
  };
  check();
  if (options.programs.empty()) return rows;
  rows = rows_of_programs(bundle, rows, options.programs);
  check();
  return rows;
}

void split_bundle(Context& context, const SplitOptions& options) {
  if (options.targets.empty() && options.apis.empty() && options.programs.empty())
    throw UsageError("choose programs with --target, --api or --program");
  const auto bundle = open_bundle(options.from);
  const auto rows = selected_rows(*bundle, options);
  const auto digests = digests_by_place(*bundle);
  BundleOfOthers chosen;
  std::set<Digest> keys;
  for (const BundleRow& row : rows) {
    chosen.add(bundle, row, value_at(digests, row.place));
    keys.insert(row.program.key);
  }
  if (!options.drops_requests)
    chosen.add_requests(context, *bundle, [&keys](const Digest& key) { return keys.contains(key); });
  if (chosen.write(context, options.to, bundle->facts())) remark_signatures(context, {bundle});
}

}  // namespace

void add_bundle_split(CLI::App& bundle, Context& context) {
  auto* command = bundle.add_subcommand("split", "Write a bundle with some programs of another one");
  auto options = std::make_shared<SplitOptions>();
  command->add_option("IN", options->from, "The bundle that is read")->required()->type_name("");
  command->add_option("OUT", options->to, "The bundle that is written, in place of one of this name")
      ->required()
      ->type_name("");
  command->add_option("--target", options->targets, "Only programs for this target, such as cuda:sm_90 or vulkan")
      ->type_name("TARGET")
      ->allow_extra_args(false);
  command->add_option("--api", options->apis, "Only programs for this API, on any device")
      ->type_name("API")
      ->allow_extra_args(false);
  command
      ->add_option("--program", options->programs,
                   "Only programs of this name, or with these first digits of the key")
      ->type_name("PROGRAM")
      ->allow_extra_args(false);
  command->add_flag("--no-requests", options->drops_requests, "Leave out the requests of the programs too");
  command->footer(
      "The options may be repeated. Each of them, and each target of a list, must select a program. The requests\n"
      "of the chosen programs are kept.\n\n"
      "Examples:\n"
      "  kiln bundle split all.kiln hopper.kiln --target cuda:sm_90\n"
      "  kiln bundle split all.kiln conv.kiln --api cuda --program conv2d_3x3");
  command->callback([&context, options] { split_bundle(context, *options); });
}

}  // namespace kiln::cli
