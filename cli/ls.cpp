#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "commands.hpp"
#include "inventory.hpp"
#include "quantity.hpp"

namespace kiln::cli {
namespace {

enum class Order { name, size, age };

struct Options {
  std::string device_folder = {};
  Order order = Order::name;
  bool details = false;
};

bool contains_ignoring_case(std::string_view text, std::string_view part) {
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
  };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

void sort(std::vector<StoredProgram>& programs, Order order) {
  std::stable_sort(programs.begin(), programs.end(),
                   [](const auto& a, const auto& b) { return a.file.name < b.file.name; });
  if (order == Order::size)
    std::stable_sort(programs.begin(), programs.end(),
                     [](const auto& a, const auto& b) { return a.file.bytes > b.file.bytes; });
  if (order == Order::age)
    std::stable_sort(programs.begin(), programs.end(),
                     [](const auto& a, const auto& b) { return a.file.last_use > b.file.last_use; });
}

Json listing_json(const Inventory& inventory) {
  auto list = Json::array();
  for (const auto& program : inventory.programs) {
    const bool sound = program.damage.empty();
    const auto if_sound = [sound](auto value) -> Json {
      if (!sound) return nullptr;
      return value;
    };
    list.push_back(
        {{"name", program.name()},
         {"api", or_null(inventory.api(program))},
         {"key", program.file.key.digest.hex()},
         {"bytes", program.file.bytes},
         {"last_use", iso_time(program.file.last_use)},
         {"compile_ms", if_sound(std::chrono::duration<double, std::milli>(program.compile_time).count())},
         {"gflops", if_sound(program.gflops)},
         {"gbps", if_sound(program.gbps)},
         {"folder", inventory.folder_name(program)},
         {"damage", or_null(program.damage)}});
  }
  return list;
}

std::string table_of(const Inventory& inventory, const Terminal& terminal) {
  using enum Table::Align;
  Table table({{"NAME", left, Table::Overflow::cut},
               {"API"},
               {"KEY"},
               {"SIZE", right},
               {"USED AGO", right},
               {"COMPILED IN", right}});
  const auto now = std::chrono::system_clock::now();
  for (const auto& program : inventory.programs) {
    const bool sound = program.damage.empty();
    const std::string api = inventory.api(program);
    table.add({{program.name(), sound ? Ink::plain : Ink::bad},
               api.empty() ? "-" : api,
               {program.file.key.digest.hex(12), Ink::faint},
               human_size(program.file.bytes),
               human_age(program.file.last_use, now),
               sound ? Table::Cell(human_duration(program.compile_time)) : Table::Cell("damaged", Ink::bad)});
  }
  return table.format(terminal);
}

std::string details_of(const Inventory& inventory, const StoredProgram& program, const Terminal& terminal) {
  const auto& folder = inventory.folders[program.folder];
  Table fields = Table::of_fields();
  fields.add({"  api", folder.identity ? folder.identity->api : "unknown"});
  fields.add({"  device", folder.identity ? folder.identity->device : "unknown"});
  fields.add({"  driver", folder.identity ? folder.identity->driver : "unknown"});
  fields.add({"  folder", inventory.folder_name(program)});
  fields.add({"  key", program.file.key.digest.hex()});
  fields.add({"  size", human_size(program.file.bytes)});
  fields.add({"  last use", iso_time(program.file.last_use)});
  if (!program.damage.empty()) {
    fields.add({"  damaged", {program.damage, Ink::bad}});
  } else {
    fields.add({"  compiled in", human_duration(program.compile_time)});
    fields.add({"  performance", program.performance()});
  }
  return paint(printable(program.name()), Ink::heading, terminal.colors) + "\n" + fields.format(terminal);
}

void print_details(const Inventory& inventory, const Terminal& terminal) {
  std::string separator;
  for (const auto& program : inventory.programs) {
    print(separator + details_of(inventory, program, terminal));
    separator = "\n";
  }
}

void run(Context& context, const Options& options) {
  const auto root = context.directory();
  InventoryFilter filter;
  filter.folder = [&options](const store::DeviceFolder& folder) {
    return contains_ignoring_case(folder.path.filename().string(), options.device_folder);
  };
  auto inventory = take_inventory(root, filter);
  report_problems(context, inventory.problems);
  sort(inventory.programs, options.order);
  if (context.json) return print_json(listing_json(inventory));
  if (inventory.programs.empty()) {
    if (options.device_folder.empty()) return remark_empty(context, root);
    return remark(context, fmt::format("No programs are stored in device folders of {} with \"{}\" in their name.",
                                       root.string(), options.device_folder));
  }
  if (options.details) {
    print_details(inventory, context.terminal());
  } else {
    print(table_of(inventory, context.terminal()));
  }
  const auto damaged = std::count_if(inventory.programs.begin(), inventory.programs.end(),
                                     [](const auto& program) { return !program.damage.empty(); });
  if (damaged > 0)
    remark(
        context,
        fmt::format("{} damaged. `kiln verify` explains the damage; `kiln verify --repair` removes the entries.",
                    human_count(static_cast<std::uint64_t>(damaged), "entry") + (damaged == 1 ? " is" : " are")));
}

}  // namespace

void add_ls(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("ls", "List the stored programs of all devices");
  auto options = std::make_shared<Options>();
  command
      ->add_option("--device-folder", options->device_folder,
                   "List only device folders with this text in their name")
      ->type_name("TEXT");
  command
      ->add_option_function<std::string>(
          "--sort",
          [options](const std::string& word) {
            options->order = word == "size" ? Order::size : word == "age" ? Order::age : Order::name;
          },
          "Order: name, size (largest first) or age (last used first) [name]")
      ->check(CLI::IsMember({"name", "size", "age"}).description(""))
      ->type_name("ORDER");
  command->add_flag("-l,--long", options->details,
                    "Show all details of each program: device, driver, folder, full key, performance");
  command->footer(
      "SIZE is the size on disk. USED AGO is the time since the last use, which is recorded at most once an\n"
      "hour. COMPILED IN is the time that the compiler took; each load from the cache saves this time. The\n"
      "command checks each entry and marks damaged ones.\n\n"
      "Examples:\n"
      "  kiln ls --sort size\n"
      "  kiln ls --long\n"
      "  kiln ls --device-folder llvmpipe\n"
      "  kiln ls --json | jq '[.[].bytes] | add'");
  command->callback([&context, options] { run(context, *options); });
}

}  // namespace kiln::cli
