#include <algorithm>
#include <cctype>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/try.hpp"
#include "commands.hpp"
#include "facts.hpp"
#include "inventory.hpp"
#include "quantity.hpp"

namespace kiln::cli {
namespace {

/// The smallest number of digits that selects programs by key.
constexpr std::size_t min_prefix = 4;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

bool is_hexadecimal(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isxdigit(c) != 0; });
}

Inventory find(const std::filesystem::path& root, const std::string& wanted) {
  const std::string prefix = wanted.size() >= min_prefix && is_hexadecimal(wanted) ? lower(wanted) : "";
  const auto by_key = [&prefix](const store::StoredFile& file) {
    return !prefix.empty() && file.key.digest.hex().starts_with(prefix);
  };
  InventoryFilter filter;
  // File names hold only a part of long program names: the full names are compared after reading.
  filter.file = [&](const store::StoredFile& file) {
    return by_key(file) || store::entry_file_name({file.key.digest, wanted}) == file.name;
  };
  auto inventory = take_inventory(root, filter);
  std::erase_if(inventory.programs, [&](const StoredProgram& program) {
    return !by_key(program.file) && program.damage.empty() && program.name() != wanted;
  });
  return inventory;
}

Json program_json(const Inventory& inventory, const StoredProgram& program) {
  const auto& folder = inventory.folders[program.folder];
  Json object = {{"name", program.name()},
                 {"key", program.file.key.digest.hex()},
                 {"file", (folder.path / program.file.name).string()},
                 {"stored_bytes", program.file.bytes},
                 {"last_use", iso_time(program.file.last_use)},
                 {"damage", or_null(program.damage)},
                 {"identity", folder.identity ? identity_json(*folder.identity) : Json(nullptr)}};
  if (!program.damage.empty()) return object;
  object["binary_bytes"] = program.binary_bytes;
  object["format"] = program.format;
  object["compile_ms"] = std::chrono::duration<double, std::milli>(program.compile_time).count();
  object["created"] = iso_time(program.created);
  object["gflops"] = program.gflops;
  object["gbps"] = program.gbps;
  object["request"] = program.facts;
  return object;
}

std::string describe(const Inventory& inventory, const StoredProgram& program, const Terminal& terminal,
                     bool lists_all) {
  const auto& folder = inventory.folders[program.folder];
  const auto now = std::chrono::system_clock::now();
  Table table = Table::of_fields();
  table.add({"  key", program.file.key.digest.hex()});
  table.add({"  file", (folder.path / program.file.name).string()});
  if (!program.damage.empty()) table.add({"  damage", {program.damage, Ink::bad}});
  table.add({"  stored", human_size(program.file.bytes)});
  if (program.damage.empty()) {
    table.add({"  binary", fmt::format("{} ({} bytes), format {:#x}", human_size(program.binary_bytes),
                                       program.binary_bytes, program.format)});
    table.add({"  compile time", human_duration(program.compile_time)});
    table.add({"  created", iso_time(program.created)});
  }
  table.add({"  last use",
             fmt::format("{} ({})", iso_time(program.file.last_use), human_age(program.file.last_use, now))});
  if (program.damage.empty()) {
    table.add({"  performance", program.performance()});
    add_facts(table, program.facts, lists_all);
  }
  if (folder.identity) {
    table.add({"  api", folder.identity->api});
    table.add({"  vendor", folder.identity->vendor});
    table.add({"  device", folder.identity->device});
    table.add({"  driver", folder.identity->driver});
    table.add({"  compiler", folder.identity->compiler});
    table.add({"  formats", fmt::format("{:#x}", fmt::join(folder.identity->formats, " "))});
  } else {
    table.add({"  device", "unknown: manifest.json of its folder is missing or wrong"});
  }
  return paint(printable(program.name()), Ink::heading, terminal.colors) + "\n" + table.format(terminal);
}

struct ShowOptions {
  std::string wanted = {};
  bool lists_all = false;
  bool reflects = false;
};

/// What an entry point of a stored program takes.
struct Reflected {
  std::string entry = {};
  std::vector<Parameter> parameters = {};
};

/// Loads the stored program on its device, and lists what each entry point takes.
Result<std::vector<Reflected>> reflect(const Context& context, const store::DeviceFolder& folder,
                                       const StoredProgram& program) {
  if (!program.damage.empty() || !folder.identity)
    return Error(ErrorCode::io, "the entry, or the manifest.json of its folder, is damaged");
  const auto device =
      KILN_TRY(kiln::open_device(context.device.empty() ? folder.identity->api : context.device, context.log()));
  if (device->identity() != *folder.identity)
    return Error(ErrorCode::unsupported,
                 fmt::format("{} has another device, driver or compiler than the program is for; choose one with "
                             "--device",
                             device->info().name));
  const auto opened = KILN_TRY(store::read_entry(folder.path, program.file.name));
  if (opened.entry.binary() == nullptr) return Error(ErrorCode::unsupported, "the entry has no binary");
  const auto module = KILN_TRY(device->load(*opened.entry.binary()));
  std::vector<Reflected> reflected;
  for (const std::string& entry : module->entries()) {
    auto parameters = KILN_TRY(device->parameters(*module->entry(entry)));
    reflected.push_back({entry, std::move(parameters)});
  }
  return reflected;
}

Json reflected_json(const std::vector<Reflected>& reflected) {
  auto list = Json::array();
  for (const auto& [entry, parameters] : reflected) {
    auto taken = Json::array();
    for (const Parameter& one : parameters)
      taken.push_back({{"kind", one.kind},
                       {"type", or_null(one.type)},
                       {"name", or_null(one.name)},
                       {"place", one.place},
                       {"bytes", one.bytes != 0 ? Json(one.bytes) : Json(nullptr)}});
    list.push_back({{"entry", entry}, {"arguments", std::move(taken)}});
  }
  return list;
}

void print_reflected(const std::vector<Reflected>& reflected, const Terminal& terminal) {
  for (const auto& [entry, parameters] : reflected) {
    if (parameters.empty()) {
      print(fmt::format("\n  {} takes no arguments\n", printable(entry)));
      continue;
    }
    print(fmt::format("\n  {} takes\n", printable(entry)));
    Table table({{"  PLACE"}, {"KIND"}, {"NAME"}, {"TYPE"}, {"BYTES", Table::Align::right}});
    for (const Parameter& one : parameters)
      table.add({"  " + one.place, one.kind, one.name.empty() ? "-" : one.name, one.type.empty() ? "-" : one.type,
                 one.bytes != 0 ? std::to_string(one.bytes) : "-"});
    print(table.format(terminal));
  }
}

void complain_about(Context& context, const StoredProgram& program, const Error& error) {
  complain(fmt::format("{}: cannot tell what it takes: {}", printable(program.name()), error.describe()));
  context.status = exit_status::failed;
}

void run(Context& context, const ShowOptions& options) {
  const std::string& wanted = options.wanted;
  const auto root = context.directory();
  const auto inventory = find(root, wanted);
  report_problems(context, inventory.problems);
  if (inventory.programs.empty()) {
    const std::string too_short =
        wanted.size() < min_prefix && is_hexadecimal(wanted) ? "; a key needs 4 digits or more" : "";
    throw Failure(Error(
        ErrorCode::io,
        fmt::format("no stored program in {} has the name or key \"{}\"{}; `kiln ls` lists the stored programs",
                    root.string(), printable(wanted), too_short)));
  }
  const bool any_sound = std::any_of(inventory.programs.begin(), inventory.programs.end(),
                                     [](const auto& program) { return program.damage.empty(); });
  if (!any_sound) context.status = exit_status::failed;
  if (context.json) {
    auto list = Json::array();
    for (const auto& program : inventory.programs) {
      list.push_back(program_json(inventory, program));
      if (!options.reflects) continue;
      const auto reflected = reflect(context, inventory.folders[program.folder], program);
      list.back()["takes"] = reflected ? reflected_json(*reflected) : Json(nullptr);
      if (!reflected) complain_about(context, program, reflected.error());
    }
    return print_json(list);
  }
  std::string separator;
  for (const auto& program : inventory.programs) {
    print(separator + describe(inventory, program, context.terminal(), options.lists_all));
    if (options.reflects) {
      const auto reflected = reflect(context, inventory.folders[program.folder], program);
      if (reflected)
        print_reflected(*reflected, context.terminal());
      else
        complain_about(context, program, reflected.error());
    }
    separator = "\n";
  }
}

}  // namespace

void add_show(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("show", "Show all details of a stored program");
  auto options = std::make_shared<ShowOptions>();
  command->add_option("PROGRAM", options->wanted, "Name of the program, or the first 4 or more digits of its key")
      ->required()
      ->type_name("");
  command->add_flag("-l,--long", options->lists_all, "List all files that the program can include");
  command->add_flag("--reflect", options->reflects,
                    "Load the program on its device, and list what each entry point takes");
  context.add_device_option(*command);
  command->footer(
      "Shows all programs that match. Exits with 1 if no program matches.\n\n"
      "Examples:\n"
      "  kiln show conv2d_3x3\n"
      "  kiln show 6b1d0e\n"
      "  kiln show saxpy --reflect\n"
      "  kiln show conv2d_3x3 --json | jq '.[0].request.defines'");
  command->callback([&context, options] { run(context, *options); });
}

}  // namespace kiln::cli
