#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bundle.hpp"
#include "facts.hpp"
#include "inventory.hpp"
#include "quantity.hpp"
#include "store/json_file.hpp"

namespace kiln::cli {
namespace {

double milliseconds_of(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

/// What a bundle has for one target.
struct TargetSummary {
  const store::BundledTarget* target = nullptr;
  std::uint64_t bytes = 0;
};

std::vector<TargetSummary> summarise(const std::vector<BundleEntry>& entries) {
  std::vector<TargetSummary> summaries;
  for (const BundleEntry& entry : entries) {
    if (summaries.empty() || summaries.back().target != entry.row.target)
      summaries.push_back({.target = entry.row.target});
    summaries.back().bytes += entry.row.program.size;
  }
  return summaries;
}

/// How many requests a bundle has; nothing if it has no record of them. Complains if they cannot be read.
std::optional<std::size_t> count_requests(Context& context, const store::BundleFile& bundle) {
  if (!bundle.has_requests()) return std::nullopt;
  const auto record = bundle.checked_requests();
  if (record && record->damaged() == 0) return record->entries().size();
  complain(record ? fmt::format("{}: skipped {} in its requests", bundle.name(),
                                human_count(record->damaged(), "damaged item"))
                  : record.error().message());
  context.status = exit_status::failed;
  return record ? std::optional(record->entries().size()) : std::nullopt;
}

std::vector<std::string> signers_of(const store::BundleFile& bundle) {
  std::vector<std::string> names;
  for (const auto& signature : bundle.signatures()) names.push_back(printable(signature.signer));
  return names;
}

Json entry_json(const BundleEntry& entry) {
  Json object = {{"name", or_null(entry.name())},
                 {"key", entry.row.program.key.hex()},
                 {"target", target_name(*entry.identity)},
                 {"api", entry.identity->api},
                 {"device", entry.identity->device},
                 {"compiler", entry.identity->compiler},
                 {"compile_ms", milliseconds_of(entry.compile_time)},
                 {"bytes", entry.row.program.size},
                 {"damage", or_null(entry.damage)}};
  return object;
}

Json listing_json(const store::BundleFile& bundle, const std::vector<BundleEntry>& entries,
                  const std::optional<std::size_t>& requests) {
  auto facts = store::parse_json(bundle.facts());
  Json object = {{"file", bundle.name()},
                 {"bytes", bundle.bytes()},
                 {"digest", bundle.digest().hex()},
                 {"facts", facts ? *std::move(facts) : Json::object()},
                 {"signatures", signers_of(bundle)},
                 {"requests", requests ? Json(*requests) : Json(nullptr)},
                 {"targets", Json::array()},
                 {"programs", Json::array()}};
  for (const TargetSummary& summary : summarise(entries)) {
    Json target = identity_json(summary.target->identity);
    target.erase("compiler");
    object["targets"].push_back({{"name", target_name(summary.target->identity)},
                                 {"target", std::move(target)},
                                 {"programs", summary.target->count},
                                 {"bytes", summary.bytes}});
  }
  for (const BundleEntry& entry : entries) object["programs"].push_back(entry_json(entry));
  return object;
}

std::string listing_table(std::vector<BundleEntry> entries, const Terminal& terminal) {
  // By name, so that the targets of a program are together.
  std::ranges::stable_sort(entries, {}, &BundleEntry::name);
  using enum Table::Align;
  Table table({{"NAME", left, Table::Overflow::cut},
               {"API"},
               {"TARGET", left, Table::Overflow::cut},
               {"COMPILER", left, Table::Overflow::cut},
               {"COMPILE", right},
               {"SIZE", right},
               {"KEY"}});
  for (const BundleEntry& entry : entries) {
    const bool is_sound = entry.damage.empty();
    table.add({{is_sound ? entry.name() : "damaged", is_sound ? Ink::plain : Ink::bad},
               entry.identity->api,
               entry.identity->device,
               entry.identity->compiler,
               is_sound ? human_duration(entry.compile_time) : "-",
               human_size(entry.row.program.size),
               entry.row.program.key.hex(shown_key_digits)});
  }
  return table.format(terminal);
}

void list_bundle(Context& context, const std::string& path) {
  const auto bundle = open_bundle(path);
  const auto entries = read_entries(*bundle, rows_of(*bundle));
  const auto requests = count_requests(context, *bundle);
  for (const BundleEntry& entry : entries) {
    if (entry.damage.empty()) continue;
    complain(entry.damage);
    context.status = exit_status::failed;
  }
  if (context.json) return print_json(listing_json(*bundle, entries, requests));
  if (entries.empty()) remark(context, fmt::format("{} has no programs.", path));
  std::string text = entries.empty() ? "" : listing_table(entries, context.terminal()) + "\n";
  for (const TargetSummary& summary : summarise(entries))
    text += fmt::format("{}: {}, {}\n", printable(target_name(summary.target->identity)),
                        human_count(summary.target->count, "program"), human_size(summary.bytes));
  const auto signers = signers_of(*bundle);
  text += signers.empty() ? "not signed" : fmt::format("signed by {}", fmt::join(signers, ", "));
  text += requests ? fmt::format(", with {}\n", human_count(*requests, "request")) : ", without requests\n";
  print(text);
}

struct ShowBundleOptions {
  std::string path = {};
  std::string wanted = {};
  bool lists_all = false;
};

Json details_json(const BundleEntry& entry, const std::map<std::size_t, Digest>& without_toolkit) {
  Json object = entry_json(entry);
  object["identity"] = identity_json(*entry.identity);
  object["offset"] = entry.row.program.offset;
  object["sha256"] = entry.row.program.body.hex();
  const auto without = without_toolkit.find(entry.row.place);
  object["key_without_toolkit"] = without != without_toolkit.end() ? Json(without->second.hex()) : Json(nullptr);
  if (!entry.damage.empty()) return object;
  object["created"] = iso_time(entry.created);
  object["signatures"] = entry.signers;
  object["parts"] = Json::array();
  for (const auto& part : entry.parts)
    object["parts"].push_back({{"name", part.name}, {"format", part.format}, {"bytes", part.bytes}});
  object["request"] = entry.facts;
  return object;
}

std::string details_text(const BundleEntry& entry, const std::map<std::size_t, Digest>& without_toolkit,
                         const Terminal& terminal, bool lists_all) {
  Table table = Table::of_fields();
  table.add({"  key", entry.row.program.key.hex()});
  if (const auto without = without_toolkit.find(entry.row.place); without != without_toolkit.end())
    table.add({"  second key", without->second.hex()});
  if (!entry.damage.empty()) table.add({"  damage", {entry.damage, Ink::bad}});
  table.add({"  place", fmt::format("{} bytes at byte {}", entry.row.program.size, entry.row.program.offset)});
  table.add({"  sha256", entry.row.program.body.hex()});
  if (entry.damage.empty()) {
    for (const auto& part : entry.parts)
      table.add({"  part", fmt::format("{}, {} ({} bytes), format {:#x}", part.name, human_size(part.bytes),
                                       part.bytes, part.format)});
    table.add(
        {"  signed by", entry.signers.empty() ? "nobody" : fmt::format("{}", fmt::join(entry.signers, ", "))});
    table.add({"  compile time", human_duration(entry.compile_time)});
    table.add({"  created", iso_time(entry.created)});
    add_facts(table, entry.facts, lists_all);
  }
  table.add({"  api", entry.identity->api});
  table.add({"  vendor", entry.identity->vendor.empty() ? "any" : entry.identity->vendor});
  table.add({"  device", entry.identity->device});
  table.add({"  driver", entry.identity->driver.empty() ? "any" : entry.identity->driver});
  table.add({"  compiler", entry.identity->compiler});
  table.add({"  formats", fmt::format("{:#x}", fmt::join(entry.identity->formats, " "))});
  const std::string name = entry.damage.empty() ? printable(entry.name()) : "damaged";
  return paint(name, Ink::heading, terminal.colors) + "\n" + table.format(terminal);
}

void show_program(Context& context, const ShowBundleOptions& options) {
  const auto bundle = open_bundle(options.path);
  auto entries = read_entries(*bundle, rows_of(*bundle));
  std::erase_if(entries, [&options](const BundleEntry& entry) {
    return !is_selected_by(options.wanted, entry.row.program.key, entry.name());
  });
  if (entries.empty())
    throw Failure(Error(ErrorCode::io, fmt::format("no program in {} has the name or key \"{}\"; `kiln bundle ls` "
                                                   "lists the programs; a key needs {} digits or more",
                                                   options.path, printable(options.wanted), least_key_digits)));
  if (std::ranges::any_of(entries, [](const BundleEntry& entry) { return !entry.damage.empty(); }))
    context.status = exit_status::failed;
  const auto without_toolkit = digests_by_place(*bundle);
  auto list = Json::array();
  std::string separator;
  for (const BundleEntry& entry : entries) {
    if (context.json) {
      list.push_back(details_json(entry, without_toolkit));
      continue;
    }
    print(separator + details_text(entry, without_toolkit, context.terminal(), options.lists_all));
    separator = "\n";
  }
  if (context.json) print_json(list);
}

}  // namespace

void add_bundle_ls(CLI::App& bundle, Context& context) {
  auto* command = bundle.add_subcommand("ls", "List the programs of a bundle");
  auto path = std::make_shared<std::string>();
  command->add_option("FILE", *path, "The bundle")->required()->type_name("");
  command->footer("Reads every program. Exits with 1 if one is damaged.");
  command->callback([&context, path] { list_bundle(context, *path); });
}

void add_bundle_show(CLI::App& bundle, Context& context) {
  auto* command = bundle.add_subcommand("show", "Show all details of a program in a bundle");
  auto options = std::make_shared<ShowBundleOptions>();
  command->add_option("FILE", options->path, "The bundle")->required()->type_name("");
  command->add_option("PROGRAM", options->wanted, "Name of the program, or the first 4 or more digits of its key")
      ->required()
      ->type_name("");
  command->add_flag("-l,--long", options->lists_all, "List all files that the program can include");
  command->footer("Shows the program for each target. Exits with 1 if no program matches, or one is damaged.");
  command->callback([&context, options] { show_program(context, *options); });
}

}  // namespace kiln::cli
