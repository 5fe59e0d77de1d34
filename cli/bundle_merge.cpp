#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "bundle_of_others.hpp"
#include "store/json_file.hpp"

namespace kiln::cli {
namespace {

enum class Prefer { none, first, last };

struct MergeBundlesOptions {
  std::string to = {};
  std::vector<std::string> from = {};
  Prefer prefer = Prefer::none;
};

/// The members that all bundles agree on, in the order of their names.
std::string common_facts(const std::vector<OpenBundle>& bundles) {
  using Sorted = nlohmann::json;
  const auto facts_of = [](const OpenBundle& bundle) {
    return Sorted(store::parse_json(bundle->facts()).value_or(Json::object()));
  };
  Sorted common = facts_of(bundles.front());
  for (const OpenBundle& bundle : bundles) {
    const Sorted facts = facts_of(bundle);
    auto agreed = Sorted::object();
    for (const auto& [name, value] : common.items())
      if (facts.contains(name) && facts[name] == value) agreed[name] = value;
    common = std::move(agreed);
  }
  return common.dump();
}

/// A program of a bundle.
struct ChosenProgram {
  OpenBundle bundle;
  BundleRow row;
  std::optional<Digest> without_toolkit;

  /// Equal programs may have different signatures. Takes the same one whichever bundle comes first.
  void add_equal(const ChosenProgram& other) {
    const auto digest = std::max(without_toolkit, other.without_toolkit);
    const auto order = [](const ChosenProgram& each) {
      return std::tuple(each.row.program.size, each.row.program.checksum);
    };
    if (order(other) > order(*this)) *this = other;
    without_toolkit = digest;
  }
};

void merge_bundles(Context& context, const MergeBundlesOptions& options) {
  std::vector<OpenBundle> bundles;
  for (const std::string& path : options.from) bundles.push_back(open_bundle(path));
  std::map<std::pair<Digest, Digest>, ChosenProgram> programs;
  for (const OpenBundle& bundle : bundles) {
    const auto digests = digests_by_place(*bundle);
    for (const BundleRow& row : rows_of(*bundle)) {
      const ChosenProgram program{bundle, row, value_at(digests, row.place)};
      const auto [known, is_new] = programs.try_emplace({row.target->digest, row.program.key}, program);
      if (is_new) continue;
      ChosenProgram& chosen = known->second;
      if (chosen.row.program.body == row.program.body) {
        chosen.add_equal(program);
        continue;
      }
      if (options.prefer == Prefer::none)
        throw Failure(Error(ErrorCode::invalid_request,
                            fmt::format("{} has different bytes for {} in {} and {}; choose with --prefer first or "
                                        "--prefer last",
                                        program_text(*bundle, row), target_name(row.target->identity),
                                        chosen.bundle->name(), bundle->name())));
      if (options.prefer == Prefer::last) chosen = program;
    }
  }
  BundleOfOthers merged;
  for (const auto& [place, chosen] : programs) merged.add(chosen.bundle, chosen.row, chosen.without_toolkit);
  for (const OpenBundle& bundle : bundles)
    merged.add_requests(context, *bundle, [](const Digest&) { return true; });
  if (merged.write(context, options.to, common_facts(bundles))) remark_signatures(context, bundles);
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

}  // namespace kiln::cli
