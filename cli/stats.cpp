#include <algorithm>

#include <fmt/format.h>

#include "commands.hpp"
#include "inventory.hpp"
#include "key/stats.hpp"
#include "quantity.hpp"
#include "store/bookkeeping.hpp"

namespace kiln::cli {
namespace {

using Moment = std::chrono::system_clock::time_point;

/// The stored programs of one device folder.
struct OnDisk {
  std::string folder;
  std::string api;
  std::string device;
  std::string driver;
  std::size_t programs = 0;
  std::uint64_t bytes = 0;
  std::optional<Moment> last_use = {};
};

OnDisk on_disk(const FolderListing& listing) {
  OnDisk device{.folder = listing.folder.path.filename().string(),
                .api = api_of(listing.folder),
                .device = device_of(listing.folder),
                .driver = listing.folder.identity ? listing.folder.identity->driver : "",
                .programs = listing.files.size(),
                .bytes = listing.bytes()};
  for (const auto& file : listing.files)
    device.last_use = device.last_use ? std::max(*device.last_use, file.last_use) : file.last_use;
  return device;
}

/// The summary. Stats::to_line() does not fit: it counts programs in memory, and the command has none.
std::string line(const store::LifetimeStats& lifetime, const std::vector<OnDisk>& devices) {
  std::size_t programs = 0;
  std::uint64_t bytes = 0;
  for (const auto& device : devices) {
    programs += device.programs;
    bytes += device.bytes;
  }
  std::string text = fmt::format("{} on disk ({})", human_count(programs, "program"), human_size(bytes));
  if (lifetime.totals.requests > 0)
    text += fmt::format(", {} of compile time saved, {:.0f}% hit rate",
                        human_duration(lifetime.totals.compile_time_saved), 100 * lifetime.totals.hit_rate());
  return text;
}

Table counters(const store::LifetimeStats& lifetime) {
  const Stats& totals = lifetime.totals;
  Table table({{"TOTALS OF ALL PROCESSES"}, {"", Table::Align::right}});
  const auto count = [&table](const char* what, std::uint64_t value) { table.add({what, std::to_string(value)}); };
  count("caches opened", lifetime.sessions);
  count("requests", totals.requests);
  count("  memory hits", totals.memory_hits);
  count("  disk hits", totals.disk_hits);
  count("  bundle hits", totals.bundle_hits);
  count("  shared store hits", totals.shared_hits);
  count("  completed by the driver at launch", totals.incomplete);
  count("  waited for another thread", totals.joined);
  count("  compiled", totals.compiles);
  count("  failed", totals.failures);
  count("  not found", totals.absent);
  count("failed store calls", totals.store_failures);
  count("evictions", totals.evictions);
  count("programs saved", totals.saves);
  count("programs not saved", totals.save_failures);
  count("entries replaced", totals.replaced);
  table.add({"compile time", human_duration(totals.compile_time)});
  table.add({"compile time saved", human_duration(totals.compile_time_saved)});
  return table;
}

std::string reads_table(const std::vector<StoreStats>& stores, const Terminal& terminal) {
  using enum Table::Align;
  Table table({{"SHARED STORE", left, Table::Overflow::wrap},
               {"HITS", right},
               {"MISSES", right},
               {"ERRORS", right},
               {"REFUSED", right},
               {"RACES WON", right},
               {"LOST", right},
               {"READ", right}});
  for (const StoreStats& store : stores)
    table.add({store.name, std::to_string(store.hits), std::to_string(store.misses), std::to_string(store.errors),
               std::to_string(store.refusals), std::to_string(store.races_won), std::to_string(store.races_lost),
               human_size(store.bytes_read)});
  return table.format(terminal);
}

/// Empty if no store had leases.
std::string leases_table(const std::vector<StoreStats>& stores, const Terminal& terminal) {
  using enum Table::Align;
  Table table(
      {{"SHARED STORE", left, Table::Overflow::wrap}, {"LEASES", right}, {"WAITED", right}, {"IN VAIN", right}});
  bool any = false;
  for (const StoreStats& store : stores) {
    if (store.leases + store.lease_waits + store.lease_timeouts == 0) continue;
    any = true;
    table.add({store.name, std::to_string(store.leases), std::to_string(store.lease_waits),
               std::to_string(store.lease_timeouts)});
  }
  return any ? table.format(terminal) : std::string();
}

std::string uploads_table(const std::vector<StoreStats>& stores, const Terminal& terminal) {
  using enum Table::Align;
  Table table({{"SHARED STORE", left, Table::Overflow::wrap},
               {"UPLOADS", right},
               {"NOT UPLOADED", right},
               {"WRITTEN", right}});
  for (const StoreStats& store : stores)
    table.add({store.name, std::to_string(store.uploads), std::to_string(store.upload_errors),
               human_size(store.bytes_written)});
  return table.format(terminal);
}

std::string state_of(const StoreStats& store) {
  if (store.reading && store.writing) return "in use";
  if (store.reading) return "uploads skipped";
  return store.writing ? "reads skipped" : "skipped";
}

std::string answers_table(const std::vector<StoreStats>& stores, const Terminal& terminal) {
  using enum Table::Align;
  Table table({{"LAST PROCESS", left, Table::Overflow::wrap},
               {"MEDIAN", right},
               {"90 %", right},
               {"99 %", right},
               {"STATE"}});
  const auto time = [](std::chrono::nanoseconds latency) {
    return latency.count() > 0 ? human_duration(latency) : std::string("-");
  };
  for (const StoreStats& store : stores)
    table.add(
        {store.name, time(store.latency_p50), time(store.latency_p90), time(store.latency_p99), state_of(store)});
  return table.format(terminal);
}

std::string devices_table(const std::vector<OnDisk>& devices, const Terminal& terminal) {
  using enum Table::Align;
  Table table(
      {{"API"}, {"DEVICE", left, Table::Overflow::cut}, {"PROGRAMS", right}, {"SIZE", right}, {"USED AGO", right}});
  const auto now = std::chrono::system_clock::now();
  for (const auto& device : devices)
    table.add({device.api.empty() ? "-" : device.api, device.device, std::to_string(device.programs),
               human_size(device.bytes), device.last_use ? human_age(*device.last_use, now) : "-"});
  return table.format(terminal);
}

std::string details_of(const OnDisk& device, const Terminal& terminal) {
  const auto known = [](const std::string& text) { return text.empty() ? "unknown" : text; };
  Table fields = Table::of_fields();
  fields.add({"  api", known(device.api)});
  fields.add({"  driver", known(device.driver)});
  fields.add({"  folder", device.folder});
  fields.add({"  programs", std::to_string(device.programs)});
  fields.add({"  size", human_size(device.bytes)});
  fields.add({"  last use", device.last_use ? iso_time(*device.last_use) : "-"});
  return paint(printable(device.device), Ink::heading, terminal.colors) + "\n" + fields.format(terminal);
}

Json stats_json(const std::filesystem::path& root, const store::LifetimeStats& lifetime,
                const std::vector<OnDisk>& devices) {
  Json object = {{"directory", root.string()}, {"line", line(lifetime, devices)}, {"sessions", lifetime.sessions}};
  object["lifetime"] = Json::parse(lifetime.totals.to_json(), nullptr, false);
  // The totals have no latency, mode or state of a store.
  auto& stores = object["lifetime"]["stores"] = Json::array();
  for (const StoreStats& store : lifetime.totals.stores) {
    auto& counters = stores.emplace_back(Json{{"name", store.name}});
    for (const auto& [name, member] : key::store_counters) counters[name] = store.*member;
    const auto seconds = [](std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); };
    counters["latency_p50_s"] = seconds(store.latency_p50);
    counters["latency_p90_s"] = seconds(store.latency_p90);
    counters["latency_p99_s"] = seconds(store.latency_p99);
    counters["reading"] = store.reading;
    counters["writing"] = store.writing;
  }
  auto& list = object["devices"] = Json::array();
  for (const auto& device : devices)
    list.push_back({{"folder", device.folder},
                    {"api", or_null(device.api)},
                    {"device", device.device},
                    {"programs", device.programs},
                    {"bytes", device.bytes},
                    {"last_use", or_null(device.last_use ? iso_time(*device.last_use) : "")}});
  return object;
}

void run(Context& context, bool details) {
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
  if (!devices.empty() && !details) print("\n" + devices_table(devices, terminal));
  for (const auto& device : devices)
    if (details) print("\n" + details_of(device, terminal));
  if (lifetime.sessions > 0) print("\n" + counters(lifetime).format(terminal));
  if (const auto& stores = lifetime.totals.stores; !stores.empty()) {
    print("\n" + reads_table(stores, terminal) + "\n" + uploads_table(stores, terminal) + "\n");
    if (const std::string leases = leases_table(stores, terminal); !leases.empty()) print(leases + "\n");
    print(answers_table(stores, terminal));
  }
  if (devices.empty() && lifetime.sessions == 0) remark_empty(context, root);
}

}  // namespace

void add_stats(CLI::App& app, Context& context) {
  auto* command =
      app.add_subcommand("stats", "Show how many programs are stored and how much compile time they saved");
  auto details = std::make_shared<bool>(false);
  command->add_flag("-l,--long", *details, "Show all details of each device: driver, folder, time of last use");
  command->footer(
      "USED AGO is the time since the last use of a program of the device. The totals count all processes that\n"
      "have used the directory. A process adds its counters when it flushes or closes its cache.\n\n"
      "The tables of shared stores count what programs asked each store for. REFUSED entries were damaged, of\n"
      "another program, or without a trusted signature. If a store answers late, the program is compiled as well:\n"
      "RACES WON and LOST count which was first. NOT UPLOADED are uploads that failed or were dropped. LAST "
      "PROCESS\n"
      "shows how long the last process waited for answers, and whether it skipped the store at its end.\n\n"
      "Examples:\n"
      "  kiln stats\n"
      "  kiln stats --long\n"
      "  kiln stats --json | jq .lifetime.hit_rate");
  command->callback([&context, details] { run(context, *details); });
}

}  // namespace kiln::cli
