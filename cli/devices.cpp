#include <algorithm>

#include "commands.hpp"
#include "inventory.hpp"

namespace kiln::cli {
namespace {

Json device_json(const DeviceInfo& device) {
  Json object = {{"name", device.name}};
  object.update(identity_json(device.identity));
  object["label"] = device.label.empty() ? device.identity.device : device.label;
  object["binaries"] = !device.identity.formats.empty();
  object["software"] = device.software;
  object["folder"] = or_null(device.problem.empty() ? device.identity.folder() : "");
  object["problem"] = or_null(device.problem);
  return object;
}

/// "NVIDIA H200 (sm_90)": what people call it, and what binaries are kept for.
std::string title_of(const DeviceInfo& device) {
  if (device.label.empty()) return device.identity.device;
  return device.identity.device.empty() ? device.label : device.label + " (" + device.identity.device + ")";
}

Table table_of(const std::vector<DeviceInfo>& devices) {
  Table table({{"NAME"}, {"DEVICE"}, {"DRIVER"}, {"BINARIES"}, {"RUNS ON"}, {"PROBLEM"}});
  for (const auto& device : devices) {
    const bool usable = device.problem.empty();
    const bool binaries = !device.identity.formats.empty();
    const auto known = [](const std::string& text) { return text.empty() ? "-" : text; };
    table.add(
        {{device.name, usable ? Ink::good : Ink::bad},
         known(title_of(device)),
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
      "BINARIES tells whether the driver gives compiled programs out, so that they can be kept on disk.\n"
      "Exits with 1 where no device can be used.\n\n"
      "Examples:\n"
      "  kiln devices\n"
      "  kiln devices --json | jq -r '.[] | select(.problem == null) | .name'");
  command->callback([&context] { run(context); });
}

}  // namespace kiln::cli
