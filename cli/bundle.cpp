#include "bundle.hpp"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "base/try.hpp"
#include "commands.hpp"
#include "inventory.hpp"
#include "store/json_file.hpp"
#include "store/sealed_entry.hpp"

namespace kiln::cli {

OpenBundle open_bundle(const std::string& path) { return store::BundleFile::open(path).value(); }

std::vector<BundleRow> rows_of(const store::BundleFile& bundle) {
  std::vector<BundleRow> rows;
  rows.reserve(bundle.size());
  for (const auto& target : bundle.targets())
    for (std::size_t place = target.first; place < target.first + target.count; ++place)
      rows.push_back({.place = place, .target = &target, .program = bundle.program(place)});
  return rows;
}

std::map<std::size_t, Digest> digests_by_place(const store::BundleFile& bundle) {
  std::map<std::size_t, Digest> digests;
  for (const auto& [digest, place] : bundle.digests_without_toolkit()) digests.emplace(place, digest);
  return digests;
}

std::string BundleEntry::name() const { return text_of(facts, "name"); }

BundleEntry read_entry(const store::BundleFile& bundle, const BundleRow& row) {
  BundleEntry entry{.row = row, .identity = &bundle.identities()[row.program.identity]};
  const auto read = [&]() -> Result<void> {
    const auto sealed = KILN_TRY(bundle.read(row.program));
    const auto examined = KILN_TRY(store::examine_entry(sealed));
    const auto opened = KILN_TRY(store::unpack_entry(examined));
    entry.compile_time = opened.entry.compile_time;
    entry.created = opened.entry.created;
    if (auto facts = store::parse_json(opened.entry.facts)) entry.facts = *std::move(facts);
    for (const auto& [name, part] : opened.entry.parts)
      entry.parts.push_back({.name = name, .format = part.format, .bytes = part.bytes.size()});
    for (const auto& signature : examined.signatures) entry.signers.push_back(signature.signer);
    return {};
  }();
  if (!read) entry.damage = read.error().message();
  return entry;
}

std::vector<BundleEntry> read_entries(const store::BundleFile& bundle, const std::vector<BundleRow>& rows) {
  std::vector<BundleEntry> entries(rows.size());
  for_each_parallel(rows.size(), [&](std::size_t i) { entries[i] = read_entry(bundle, rows[i]); });
  return entries;
}

std::string target_name(const Identity& target) {
  const bool is_portable = target.api == "vulkan" && target.vendor.empty() && target.device == "SPIR-V";
  return is_portable ? target.api : target.api + ":" + target.device;
}

std::string program_text(const store::BundleFile& bundle, const BundleRow& row) {
  const std::string name = read_entry(bundle, row).name();
  const std::string key = "the key " + row.program.key.hex(shown_key_digits);
  return name.empty() ? "the program with " + key : fmt::format("the program {} with {}", name, key);
}

bool is_selected_by(std::string_view wanted, const Digest& key, std::string_view name) {
  if (wanted == name) return true;
  std::string prefix(wanted);
  std::ranges::transform(prefix, prefix.begin(), [](unsigned char c) { return std::tolower(c); });
  return prefix.size() >= least_key_digits && key.hex().starts_with(prefix);
}

void add_bundle(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("bundle", "List, check, merge, sign, push and pull bundles of programs");
  command->require_subcommand(1);
  for (const auto add : {add_bundle_ls, add_bundle_show, add_bundle_verify, add_bundle_merge, add_bundle_split,
                         add_bundle_diff, add_bundle_sign, add_bundle_push, add_bundle_pull})
    add(*command, context);
  for (auto* part : command->get_subcommands([](CLI::App*) { return true; })) {
    part->group("Commands");
    context.add_common_options(*part);
  }
  command->footer(
      "A bundle is one file with programs that were compiled ahead of time. `kiln bake` makes it, and an\n"
      "application uses it if KILN_BUNDLES names it.\n\n"
      "Examples:\n"
      "  kiln bundle ls app.kiln\n"
      "  kiln bundle verify --signed app.kiln\n"
      "  kiln bundle merge all.kiln cuda.kiln vulkan.kiln\n"
      "  kiln bundle split all.kiln small.kiln --target cuda:sm_90\n"
      "  kiln bundle push app.kiln oci://registry.example/team/app:v1");
}

}  // namespace kiln::cli
