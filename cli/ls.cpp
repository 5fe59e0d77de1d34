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

Table table_of(const Inventory& inventory) {
  using enum Table::Align;
  Table table({{"NAME"},
               {"KEY"},
               {"SIZE", right},
               {"USED", right},
               {"SAVES", right},
               {"GFLOP/S", right},
               {"DEVICE FOLDER"}});
  const auto now = std::chrono::system_clock::now();
  for (const auto& program : inventory.programs) {
    const bool sound = program.damage.empty();
    table.add({{program.name(), sound ? Ink::plain : Ink::bad},
               {program.file.key.digest.hex(12), Ink::faint},
               human_size(program.file.bytes),
               human_age(program.file.last_use, now),
               sound ? Table::Cell(human_duration(program.compile_time)) : Table::Cell("damaged", Ink::bad),
               sound && program.gflops > 0 ? fmt::format("{:.1f}", program.gflops) : "-",
               inventory.folder_name(program)});
  }
  return table;
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
    remark(context,
           options.device_folder.empty()
               ? fmt::format("Nothing is stored in {0} yet; `kiln demo --dir {0}` puts some programs there.",
                             root.string())
               : fmt::format("Nothing is stored in {} for a device folder with \"{}\" in its name.", root.string(),
                             options.device_folder));
    return;
  }
  print(table_of(inventory).format(context.terminal()));
  const auto damaged = std::count_if(inventory.programs.begin(), inventory.programs.end(),
                                     [](const auto& program) { return !program.damage.empty(); });
  if (damaged > 0)
    remark(
        context,
        fmt::format("{} damaged; `kiln verify` says why, `kiln verify --repair` removes damaged entries.",
                    human_count(static_cast<std::uint64_t>(damaged), "entry") + (damaged == 1 ? " is" : " are")));
}

}  // namespace

void add_ls(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("ls", "List the stored programs of all devices");
  auto options = std::make_shared<Options>();
  command->add_option("--device-folder", options->device_folder, "Only folders with this text in their name")
      ->type_name("TEXT");
  command
      ->add_option_function<std::string>(
          "--sort",
          [options](const std::string& word) {
            options->order = word == "size" ? Order::size : word == "age" ? Order::age : Order::name;
          },
          "By name, by size (largest first) or by age (last used first)")
      ->check(CLI::IsMember({"name", "size", "age"}).description(""))
      ->type_name("ORDER");
  command->footer(
      "USED is how long ago a program was last used (noted at most once an hour), SAVES what compiling it took\n"
      "and so what every load of it saves.\n\n"
      "Examples:\n"
      "  kiln ls --sort size\n"
      "  kiln ls --device-folder llvmpipe\n"
      "  kiln ls --json | jq '[.[].bytes] | add'");
  command->callback([&context, options] { run(context, *options); });
}

}  // namespace kiln::cli
