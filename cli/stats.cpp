#include <algorithm>

#include <fmt/format.h>

#include "commands.hpp"
#include "inventory.hpp"
#include "quantity.hpp"
#include "store/bookkeeping.hpp"

namespace kiln::cli {
namespace {

using Moment = std::chrono::system_clock::time_point;

/// What one device has on disk.
struct OnDisk {
  std::string folder;
  std::string device;
  std::size_t programs = 0;
  std::uint64_t bytes = 0;
  std::optional<Moment> last_use = {};
};

OnDisk on_disk(const FolderListing& listing) {
  OnDisk device{listing.folder.path.filename().string(), device_of(listing.folder), listing.files.size(),
                listing.bytes()};
  for (const auto& file : listing.files)
    device.last_use = device.last_use ? std::max(*device.last_use, file.last_use) : file.last_use;
  return device;
}

/// The line for people. Stats::to_line() counts programs in memory, of which a command has none.
std::string line(const store::LifetimeStats& lifetime, const std::vector<OnDisk>& devices) {
  std::size_t programs = 0;
  std::uint64_t bytes = 0;
  for (const auto& device : devices) {
    programs += device.programs;
    bytes += device.bytes;
  }
  std::string text = fmt::format("{} on disk ({})", human_count(programs, "program"), human_size(bytes));
  if (lifetime.totals.requests > 0)
    text += fmt::format(", {} of compiling saved, {:.0f}% hit rate",
                        human_duration(lifetime.totals.compile_time_saved), 100 * lifetime.totals.hit_rate());
  return text;
}

Table counters(const store::LifetimeStats& lifetime) {
  const Stats& totals = lifetime.totals;
  Table table({{"SINCE THE BEGINNING"}, {"", Table::Align::right}});
  const auto count = [&table](const char* what, std::uint64_t value) { table.add({what, std::to_string(value)}); };
  count("caches opened", lifetime.sessions);
  count("requests", totals.requests);
  count("  from memory", totals.memory_hits);
  count("  from disk", totals.disk_hits);
  count("  from a shared store", totals.shared_hits);
  count("  joined another thread's", totals.joined);
  count("  compiled", totals.compiles);
  count("  failed", totals.failures);
  count("  looked for in vain", totals.absent);
  count("calls on stores that failed", totals.store_failures);
  count("evictions", totals.evictions);
  count("programs saved", totals.saves);
  count("programs not saved", totals.save_failures);
  count("entries replaced", totals.replaced);
  table.add({"time spent compiling", human_duration(totals.compile_time)});
  table.add({"compiling saved", human_duration(totals.compile_time_saved)});
  return table;
}

Table devices_table(const std::vector<OnDisk>& devices) {
  using enum Table::Align;
  Table table({{"DEVICE"}, {"PROGRAMS", right}, {"SIZE", right}, {"USED", right}, {"FOLDER"}});
  const auto now = std::chrono::system_clock::now();
  for (const auto& device : devices)
    table.add({device.device, std::to_string(device.programs), human_size(device.bytes),
               device.last_use ? human_age(*device.last_use, now) : "-", device.folder});
  return table;
}

Json stats_json(const std::filesystem::path& root, const store::LifetimeStats& lifetime,
                const std::vector<OnDisk>& devices) {
  Json object = {{"directory", root.string()}, {"line", line(lifetime, devices)}, {"sessions", lifetime.sessions}};
  object["lifetime"] = Json::parse(lifetime.totals.to_json(), nullptr, false);
  auto& list = object["devices"] = Json::array();
  for (const auto& device : devices)
    list.push_back({{"folder", device.folder},
                    {"device", device.device},
                    {"programs", device.programs},
                    {"bytes", device.bytes},
                    {"last_use", or_null(device.last_use ? iso_time(*device.last_use) : "")}});
  return object;
}

void run(Context& context) {
  const auto root = context.directory();
  std::vector<OnDisk> devices;
  std::vector<std::string> problems;
  for (const auto& listing : list_folders(root)) {
    devices.push_back(on_disk(listing));
    if (!listing.problem.empty()) problems.push_back(listing.problem);
  }
  const auto lifetime = store::read_lifetime(root);
  report_problems(context, problems);
  if (context.json) return print_json(stats_json(root, lifetime, devices));

  const auto terminal = context.terminal();
  print(paint(line(lifetime, devices), Ink::heading, terminal.colors) + "\n");
  if (!devices.empty()) print("\n" + devices_table(devices).format(terminal));
  if (lifetime.sessions > 0) print("\n" + counters(lifetime).format(terminal));
  if (devices.empty() && lifetime.sessions == 0)
    remark(context, fmt::format("Nothing is stored in {0} yet; `kiln demo --dir {0}` puts some programs there.",
                                root.string()));
}

}  // namespace

void add_stats(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("stats", "Tell what the cache holds and what it has saved so far");
  command->footer(
      "The counters are those of all processes that ever used the directory, added up as each of them ends or\n"
      "flushes its cache.\n\n"
      "Examples:\n"
      "  kiln stats\n"
      "  kiln stats --json | jq .lifetime.hit_rate");
  command->callback([&context] { run(context); });
}

}  // namespace kiln::cli
