#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/file.hpp"
#include "bundle.hpp"
#include "key/record_writer.hpp"
#include "quantity.hpp"
#include "store/json_file.hpp"

namespace kiln::cli {
namespace {

/// A bundle that is made of programs of others.
class BundleOfOthers {
 public:
  /// Adds a program; `bundle` is kept open.
  void add(const OpenBundle& bundle, const BundleRow& row) {
    const Identity& identity = bundle->identities()[row.program.identity];
    const auto known = std::ranges::find(contents_.identities, identity);
    const auto place = static_cast<std::size_t>(known - contents_.identities.begin());
    if (known == contents_.identities.end()) contents_.identities.push_back(identity);
    store::EntryToBundle entry;
    entry.identity = place;
    entry.key = row.program.key;
    entry.without_toolkit = without_toolkit(bundle, row.place);
    entry.read = [bundle, program = row.program] { return bundle->read(program); };
    contents_.entries.push_back(std::move(entry));
    targets_.insert(row.target->digest);
  }

  /// Adds the requests of a bundle that `is_wanted` returns true for. Damaged ones are complained about and
  /// skipped.
  void add_requests(Context& context, const store::BundleFile& bundle,
                    const std::function<bool(const Digest& key)>& is_wanted) {
    if (!bundle.has_requests()) return;
    const auto skip = [&](const std::string& why) {
      complain(why);
      context.status = exit_status::failed;
    };
    const auto record = bundle.requests().value();
    if (record.damaged() > 0)
      skip(fmt::format("{}: skipped {} in its requests", bundle.name(),
                       human_count(record.damaged(), "damaged item")));
    if (!scratch_) scratch_.emplace(base::ScratchFolder::create().value());
    key::RecordWriter writer(record_path());
    for (const auto& entry : record.entries()) {
      if (!is_wanted(entry.key.digest)) continue;
      const auto added = writer.add(record, entry);
      if (!added && added.error().code() != ErrorCode::damaged) throw Failure(added.error());
      if (!added)
        skip(fmt::format("{}: {}", entry.key.name, added.error().message()));
      else
        requests_ += *added ? 1 : 0;
    }
  }

  /// Writes the bundle and reports it.
  void write(Context& context, const std::string& path, const std::string& facts) {
    contents_.facts = facts;
    if (requests_ > 0) contents_.record = record_path();
    const std::uint64_t bytes = store::write_bundle(path, contents_).value();
    if (context.json)
      return print_json({{"file", path},
                         {"programs", contents_.entries.size()},
                         {"targets", targets_.size()},
                         {"requests", requests_},
                         {"bytes", bytes}});
    print(fmt::format("wrote {} for {} and {} to {}, {}\n", human_count(contents_.entries.size(), "program"),
                      human_count(targets_.size(), "target"), human_count(requests_, "request"), printable(path),
                      human_size(bytes)));
  }

 private:
  std::filesystem::path record_path() const { return scratch_->path() / "merged.kilnreq"; }

  std::optional<Digest> without_toolkit(const OpenBundle& bundle, std::size_t place) {
    auto [known, is_new] = digests_.try_emplace(bundle.get());
    if (is_new)
      for (const auto& [digest, of] : bundle->digests_without_toolkit()) known->second.emplace(of, digest);
    const auto found = known->second.find(place);
    return found != known->second.end() ? std::optional(found->second) : std::nullopt;
  }

  store::BundleContents contents_;
  std::set<Digest> targets_;
  /// Of each bundle, the digests without a toolkit by the places of the programs.
  std::map<const store::BundleFile*, std::map<std::size_t, Digest>> digests_;
  std::optional<base::ScratchFolder> scratch_;
  std::size_t requests_ = 0;
};

void remark_signatures(const Context& context, const std::vector<OpenBundle>& bundles) {
  if (std::ranges::any_of(bundles, [](const OpenBundle& bundle) { return !bundle->signatures().empty(); }))
    remark(context,
           "The signatures are left out, because they cover another index; sign the new bundle with `kiln "
           "bundle sign`.");
}

enum class Prefer { none, first, last };

struct MergeBundlesOptions {
  std::string to = {};
  std::vector<std::string> from = {};
  Prefer prefer = Prefer::none;
};

/// The members that all bundles agree on.
std::string common_facts(const std::vector<OpenBundle>& bundles) {
  auto common = store::parse_json(bundles.front()->facts()).value_or(Json::object());
  for (const OpenBundle& bundle : bundles) {
    const auto facts = store::parse_json(bundle->facts()).value_or(Json::object());
    auto agreed = Json::object();
    for (const auto& [name, value] : common.items())
      if (facts.contains(name) && facts[name] == value) agreed[name] = value;
    common = std::move(agreed);
  }
  return common.dump();
}

void merge_bundles(Context& context, const MergeBundlesOptions& options) {
  std::vector<OpenBundle> bundles;
  for (const std::string& path : options.from) bundles.push_back(open_bundle(path));
  struct Chosen {
    OpenBundle bundle;
    BundleRow row;
  };
  std::map<std::pair<Digest, Digest>, Chosen> programs;
  for (const OpenBundle& bundle : bundles)
    for (const BundleRow& row : rows_of(*bundle)) {
      const auto [known, is_new] = programs.try_emplace({row.target->digest, row.program.key}, Chosen{bundle, row});
      Chosen& chosen = known->second;
      if (is_new || chosen.row.program.body == row.program.body) continue;
      if (options.prefer == Prefer::none)
        throw Failure(Error(ErrorCode::invalid_request,
                            fmt::format("{} has different bytes for {} in {} and {}; choose with --prefer first or "
                                        "--prefer last",
                                        program_text(*bundle, row), target_name(row.target->identity),
                                        chosen.bundle->name(), bundle->name())));
      if (options.prefer == Prefer::last) chosen = {bundle, row};
    }
  BundleOfOthers merged;
  for (const auto& [place, chosen] : programs) merged.add(chosen.bundle, chosen.row);
  for (const OpenBundle& bundle : bundles)
    merged.add_requests(context, *bundle, [](const Digest&) { return true; });
  merged.write(context, options.to, common_facts(bundles));
  remark_signatures(context, bundles);
}

struct SplitOptions {
  std::string from = {};
  std::string to = {};
  std::vector<std::string> targets = {};
  std::vector<std::string> apis = {};
  std::vector<std::string> programs = {};
  bool drops_requests = false;
};

/// Whether a target is one of "cuda:sm_90", "cuda:sm_80,sm_90", "cuda:all" or "vulkan".
bool is_target(const std::string& wanted, const Identity& target) {
  if (wanted == target_name(target)) return true;
  const std::size_t colon = wanted.find(':');
  if (colon == std::string::npos || wanted.substr(0, colon) != target.api) return false;
  // Names of devices may have commas.
  const std::string devices = wanted.substr(colon + 1);
  return devices == "all" || devices == target.device ||
         ("," + devices + ",").find("," + target.device + ",") != std::string::npos;
}

/// Throws Failure if one of the values that the user gave selects nothing.
template <class Selects>
void check_selects(const store::BundleFile& bundle, const std::vector<std::string>& values, std::string_view what,
                   const Selects& selects_any) {
  for (const std::string& value : values) {
    if (selects_any(value)) continue;
    std::vector<std::string> targets;
    for (const auto& target : bundle.targets()) targets.push_back(target_name(target.identity));
    throw Failure(
        Error(ErrorCode::invalid_request, fmt::format("{} has no program {} {}; its targets are: {}", bundle.name(),
                                                      what, value, fmt::join(targets, ", "))));
  }
}

void split_bundle(Context& context, const SplitOptions& options) {
  if (options.targets.empty() && options.apis.empty() && options.programs.empty())
    throw UsageError("choose programs with --target, --api or --program");
  const auto bundle = open_bundle(options.from);
  const auto targets = bundle->targets();
  check_selects(*bundle, options.targets, "for", [&](const std::string& wanted) {
    return std::ranges::any_of(targets, [&](const auto& target) { return is_target(wanted, target.identity); });
  });
  check_selects(*bundle, options.apis, "for the API", [&](const std::string& api) {
    return std::ranges::any_of(targets, [&](const auto& target) { return target.identity.api == api; });
  });
  std::vector<BundleRow> rows = rows_of(*bundle);
  std::erase_if(rows, [&options](const BundleRow& row) {
    const Identity& target = row.target->identity;
    const bool has_target =
        options.targets.empty() ||
        std::ranges::any_of(options.targets, [&](const auto& wanted) { return is_target(wanted, target); });
    return !has_target ||
           !(options.apis.empty() || std::ranges::find(options.apis, target.api) != options.apis.end());
  });
  if (!options.programs.empty()) {
    const auto entries = read_entries(*bundle, rows);
    const auto selects = [](const std::string& wanted, const BundleEntry& entry) {
      return is_selected_by(wanted, entry.row.program.key, entry.name());
    };
    check_selects(*bundle, options.programs, "with the name or key", [&](const std::string& wanted) {
      return std::ranges::any_of(entries, [&](const BundleEntry& entry) { return selects(wanted, entry); });
    });
    rows.clear();
    for (const BundleEntry& entry : entries)
      if (std::ranges::any_of(options.programs, [&](const std::string& wanted) { return selects(wanted, entry); }))
        rows.push_back(entry.row);
  }
  BundleOfOthers chosen;
  std::set<Digest> keys;
  for (const BundleRow& row : rows) {
    chosen.add(bundle, row);
    keys.insert(row.program.key);
  }
  if (!options.drops_requests)
    chosen.add_requests(context, *bundle, [&keys](const Digest& key) { return keys.contains(key); });
  chosen.write(context, options.to, bundle->facts());
  remark_signatures(context, {bundle});
}

}  // namespace

void add_bundle_merge(CLI::App& bundle, Context& context) {
  auto* command = bundle.add_subcommand("merge", "Write a bundle with the programs of several ones");
  auto options = std::make_shared<MergeBundlesOptions>();
  command->add_option("OUT", options->to, "The bundle that is written, in place of one of this name")
      ->required()
      ->type_name("");
  command->add_option("IN", options->from, "The bundles that are read")->required()->type_name("");
  command->add_option("--prefer", options->prefer, "Which bytes to take if bundles differ: first or last")
      ->type_name("WHICH")
      ->transform(
          CLI::CheckedTransformer(std::map<std::string, Prefer>{{"first", Prefer::first}, {"last", Prefer::last}})
              .description(""));
  command->footer(
      "Refuses different bytes for the same target and key, unless --prefer says which bundle counts. The\n"
      "requests are merged too. Signatures of bundles are left out; those of their programs are kept.\n\n"
      "Example:\n"
      "  kiln bundle merge all.kiln cuda.kiln vulkan.kiln");
  command->callback([&context, options] { merge_bundles(context, *options); });
}

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
      "The options may be repeated. The requests of the chosen programs are kept.\n\n"
      "Examples:\n"
      "  kiln bundle split all.kiln hopper.kiln --target cuda:sm_90\n"
      "  kiln bundle split all.kiln conv.kiln --api cuda --program conv2d_3x3");
  command->callback([&context, options] { split_bundle(context, *options); });
}

}  // namespace kiln::cli
