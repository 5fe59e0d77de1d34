#include <algorithm>

#include <fmt/format.h>

#include "commands.hpp"
#include "inventory.hpp"

namespace kiln::cli {
namespace {

bool usable(const DeviceInfo& device) { return device.problem.empty(); }

bool lacks_compiler(const DeviceInfo& device) { return usable(device) && !device.compiler_problem.empty(); }

std::string label_of(const DeviceInfo& device) {
  return device.label.empty() ? device.identity.device : device.label;
}

/// Unknown values are null.
Json traits_json(const DeviceInfo& device) {
  const auto number = [](std::uint64_t value) { return value != 0 ? Json(value) : Json(nullptr); };
  const DeviceTraits& traits = device.traits;
  return {{"vendor", or_null(traits.vendor)},
          {"architecture", or_null(traits.architecture)},
          {"compute_units", number(traits.compute_units)},
          {"subgroup_width", number(traits.subgroup_width)},
          {"shared_bytes", number(device.limits.shared_bytes)},
          {"fp16", traits.fp16},
          {"matrix_units", traits.matrix_units}};
}

Json device_json(const DeviceInfo& device) {
  Json object = {{"name", device.name}};
  object.update(identity_json(device.identity));
  object["label"] = label_of(device);
  object["uuid"] = or_null(device.uuid);
  object["binaries"] = !device.identity.formats.empty();
  object["software"] = device.software;
  object["traits"] = traits_json(device);
  object["folder"] = or_null(usable(device) ? device.identity.folder() : "");
  object["problem"] = or_null(device.problem);
  object["compiler_problem"] = or_null(device.compiler_problem);
  return object;
}

/// The label and the architecture, as in "NVIDIA H200 (sm_90)".
std::string title_of(const DeviceInfo& device) {
  const std::string label = label_of(device);
  const std::string& architecture = device.traits.architecture;
  return architecture.empty() || architecture == label ? label : label + " (" + architecture + ")";
}

Table::Cell binaries_cell(const DeviceInfo& device) {
  return device.identity.formats.empty() ? Table::Cell("no", Ink::warning) : Table::Cell("yes");
}

std::string table_of(const std::vector<DeviceInfo>& devices, const Terminal& terminal) {
  Table table(
      {{"NAME"}, {"VENDOR"}, {"DEVICE", Table::Align::left, Table::Overflow::cut}, {"RUNS ON"}, {"BINARIES"}});
  for (const auto& device : devices) {
    if (!usable(device)) continue;
    table.add({{device.name, Ink::good},
               device.traits.vendor.empty() ? "-" : device.traits.vendor,
               title_of(device),
               device.software ? "CPU" : "GPU",
               binaries_cell(device)});
  }
  return table.format(terminal);
}

std::string details_of(const DeviceInfo& device, const Terminal& terminal) {
  const auto known = [](const std::string& text) { return text.empty() ? "unknown" : text; };
  const auto number = [](std::uint64_t value) { return value == 0 ? "unknown" : std::to_string(value); };
  const std::uint64_t shared_kib = device.limits.shared_bytes / 1024;
  Table fields = Table::of_fields();
  fields.add({"  api", device.identity.api});
  fields.add({"  vendor", known(device.traits.vendor)});
  fields.add({"  device", label_of(device)});
  fields.add({"  uuid", known(device.uuid)});
  fields.add({"  architecture", known(device.traits.architecture)});
  fields.add({"  driver", device.identity.driver});
  fields.add({"  compiler", lacks_compiler(device) ? Table::Cell("none: " + device.compiler_problem, Ink::warning)
                                                   : Table::Cell(known(device.identity.compiler))});
  fields.add({"  compute units", number(device.traits.compute_units)});
  fields.add({"  subgroup width", number(device.traits.subgroup_width)});
  fields.add({"  shared memory", shared_kib == 0 ? "unknown" : fmt::format("{} KiB", shared_kib)});
  fields.add({"  fp16", device.traits.fp16 ? "yes" : "no"});
  fields.add({"  matrix units", device.traits.matrix_units ? "yes" : "no"});
  fields.add({"  runs on", device.software ? "CPU" : "GPU"});
  fields.add({"  binaries", binaries_cell(device)});
  fields.add({"  folder", device.identity.folder()});
  return paint(printable(device.name), Ink::heading, terminal.colors) + "\n" + fields.format(terminal);
}

/// The devices that have no compiler, what is missing, and what works without it.
std::string missing_compilers_of(const std::vector<DeviceInfo>& devices, const Terminal& terminal) {
  Table fields = Table::of_fields();
  for (const auto& device : devices)
    if (lacks_compiler(device)) fields.add({{"  " + device.name, Ink::warning}, device.compiler_problem});
  fields.add({"", "Programs that are compiled already still run: from the cache, bundles and shared stores."});
  return paint("No compiler:", Ink::heading, terminal.colors) + "\n" + fields.format(terminal);
}

/// The APIs and devices that cannot be used, and why.
std::string problems_of(const std::vector<DeviceInfo>& devices, const Terminal& terminal) {
  Table fields = Table::of_fields();
  for (const auto& device : devices)
    if (!usable(device)) fields.add({{"  " + device.name, Ink::bad}, device.problem});
  return paint("Not available:", Ink::heading, terminal.colors) + "\n" + fields.format(terminal);
}

void run(Context& context, bool details) {
  const auto devices = list_devices(context.log());
  const bool any_usable = std::any_of(devices.begin(), devices.end(), usable);
  const bool all_usable = std::all_of(devices.begin(), devices.end(), usable);
  context.status = any_usable ? exit_status::ok : exit_status::failed;
  if (context.json) {
    auto list = Json::array();
    for (const auto& device : devices) list.push_back(device_json(device));
    print_json(list);
    return;
  }
  const auto terminal = context.terminal();
  std::vector<std::string> sections;
  if (any_usable && !details) sections.push_back(table_of(devices, terminal));
  for (const auto& device : devices)
    if (details && usable(device)) sections.push_back(details_of(device, terminal));
  if (std::any_of(devices.begin(), devices.end(), lacks_compiler))
    sections.push_back(missing_compilers_of(devices, terminal));
  if (!all_usable) sections.push_back(problems_of(devices, terminal));
  for (std::size_t i = 0; i < sections.size(); ++i) print((i > 0 ? "\n" : "") + sections[i]);
  if (!any_usable)
    complain(
        "no device can be used; install a driver, or on Debian libegl1 and libgl1-mesa-dri, which run OpenGL on "
        "the "
        "CPU");
}

}  // namespace

void add_devices(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("devices", "List the GPU devices of this machine");
  auto details = std::make_shared<bool>(false);
  command->add_flag("-l,--long", *details,
                    "Show all details of each device: UUID, driver, compute units, memory, folder and more");
  command->footer(
      "NAME is the value for --device. RUNS ON says whether programs run on a GPU or on the CPU. BINARIES says\n"
      "whether the driver returns compiled programs; without them, Kiln cannot store programs on disk. \"No\n"
      "compiler\" lists the devices that run only programs that are compiled already, and what is missing. \"Not\n"
      "available\" lists the APIs that cannot be used, and why.\n\n"
      "Exits with 1 if no device can be used.\n\n"
      "Examples:\n"
      "  kiln devices\n"
      "  kiln devices --long\n"
      "  kiln devices --json | jq -r '.[] | select(.problem == null) | .name'");
  command->callback([&context, details] { run(context, *details); });
}

}  // namespace kiln::cli
