#include <algorithm>

#include <fmt/format.h>

#include "commands.hpp"
#include "inventory.hpp"

namespace kiln::cli {
namespace {

/// Null for what is not known.
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
  object["label"] = device.label.empty() ? device.identity.device : device.label;
  object["binaries"] = !device.identity.formats.empty();
  object["software"] = device.software;
  object["traits"] = traits_json(device);
  object["folder"] = or_null(device.problem.empty() ? device.identity.folder() : "");
  object["problem"] = or_null(device.problem);
  return object;
}

/// "NVIDIA H200 (sm_90)": what people call it, and what it is to a compiler.
std::string title_of(const DeviceInfo& device) {
  const std::string& name = device.label.empty() ? device.identity.device : device.label;
  const std::string& architecture = device.traits.architecture;
  return architecture.empty() || architecture == name ? name : name + " (" + architecture + ")";
}

Table table_of(const std::vector<DeviceInfo>& devices) {
  Table table({{"NAME"},
               {"VENDOR"},
               {"DEVICE"},
               {"UNITS", Table::Align::right},
               {"WIDTH", Table::Align::right},
               {"SHARED", Table::Align::right},
               {"FP16"},
               {"MATRIX"},
               {"DRIVER"},
               {"BINARIES"},
               {"RUNS ON"},
               {"PROBLEM"}});
  for (const auto& device : devices) {
    const bool usable = device.problem.empty();
    const bool binaries = !device.identity.formats.empty();
    const auto known = [](const std::string& text) { return text.empty() ? "-" : text; };
    const auto number = [](std::uint32_t value) { return value == 0 ? "-" : std::to_string(value); };
    const std::uint64_t shared_kib = device.limits.shared_bytes / 1024;
    const auto has = [&](bool trait) { return device.traits.vendor.empty() ? "-" : trait ? "yes" : "no"; };
    table.add(
        {{device.name, usable ? Ink::good : Ink::bad},
         known(device.traits.vendor),
         known(title_of(device)),
         number(device.traits.compute_units),
         number(device.traits.subgroup_width),
         shared_kib == 0 ? "-" : fmt::format("{} KiB", shared_kib),
         has(device.traits.fp16),
         has(device.traits.matrix_units),
         known(device.identity.driver),
         !usable ? Table::Cell("-") : Table::Cell(binaries ? "yes" : "no", binaries ? Ink::plain : Ink::warning),
         !usable           ? "-"
         : device.software ? "CPU"
                           : "GPU",
         {usable ? "-" : device.problem, usable ? Ink::plain : Ink::bad}});
  }
  return table;
}

void run(Context& context) {
  const auto devices = list_devices(context.log());
  const bool any_usable =
      std::any_of(devices.begin(), devices.end(), [](const auto& device) { return device.problem.empty(); });
  context.status = any_usable ? exit_status::ok : exit_status::failed;
  if (context.json) {
    auto list = Json::array();
    for (const auto& device : devices) list.push_back(device_json(device));
    print_json(list);
    return;
  }
  if (!devices.empty()) print(table_of(devices).format(context.terminal()));
  if (!any_usable)
    complain(
        "no device can be used; install a driver with OpenGL 4.3 or later (on Debian, libegl1 and "
        "libgl1-mesa-dri run it on the CPU)");
}

}  // namespace

void add_devices(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("devices", "List the devices of this machine");
  command->footer(
      "UNITS is how many compute units there are, WIDTH how many work items run in step, SHARED the memory of a\n"
      "work group, FP16 whether programs compute with f16, MATRIX whether there are units that multiply matrices.\n"
      "BINARIES tells whether the driver gives compiled programs out, so that they can be kept on disk.\n"
      "Exits with 1 where no device can be used.\n\n"
      "Examples:\n"
      "  kiln devices\n"
      "  kiln devices --json | jq -r '.[] | select(.problem == null) | .name'");
  command->callback([&context] { run(context); });
}

}  // namespace kiln::cli
