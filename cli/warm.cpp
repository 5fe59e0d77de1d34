#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include <kiln/cache.hpp>

#include "commands.hpp"
#include "inventory.hpp"
#include "quantity.hpp"

namespace kiln::cli {
namespace {

struct Failed {
  std::string name;
  std::string problem;
};

Json report_json(const Device& device, const std::string& folder, std::size_t ready,
                 const std::vector<Failed>& failed, std::chrono::nanoseconds time) {
  Json object = {{"device", device.identity().device},
                 {"api", device.identity().api},
                 {"folder", folder},
                 {"programs", ready + failed.size()},
                 {"ready", ready},
                 {"failed", Json::array()},
                 {"ms", std::chrono::duration<double, std::milli>(time).count()}};
  for (const auto& [name, problem] : failed) object["failed"].push_back({{"name", name}, {"problem", problem}});
  return object;
}

void run(Context& context, const std::string& record) {
  const auto root = context.directory();
  const auto device = context.open_device();
  const std::string folder = device->identity().folder();
  std::size_t stored = 0;
  for (const auto& listing : list_folders(root)) {
    if (listing.folder.path.filename() != folder) continue;
    if (!listing.problem.empty()) throw Failure(Error(ErrorCode::io, listing.problem));
    stored = listing.files.size();
  }

  std::size_t ready = 0;
  std::vector<Failed> failed;
  const auto begin = std::chrono::steady_clock::now();
  // A Cache would create a directory that does not exist.
  if (stored > 0 || !record.empty()) {
    ProgressBar bar(context.terminal(), "Loading");
    CacheOptions options;
    options.directory = root;
    options.stores = context.stores();
    // Large bounds, so that every program is loaded and none is evicted.
    options.max_programs = std::numeric_limits<std::size_t>::max();
    options.max_bytes = std::numeric_limits<std::size_t>::max();
    options.max_disk_bytes = std::numeric_limits<std::uint64_t>::max();
    // Failures are printed below; log lines would break the progress bar.
    options.log = bar.shown() && !context.verbose ? Log(LogLevel::off, {}) : context.log();
    Cache cache(device, std::move(options));
    const auto show = [&](const Progress& progress) {
      if (progress.error != nullptr) failed.push_back({progress.name, progress.error->message()});
      bar.update(progress.done, progress.total, progress.name, progress.remaining);
    };
    const auto report = record.empty() ? cache.warm(show) : cache.warm(std::filesystem::path(record), show);
    // The record itself is not usable.
    if (report.ready + failed.size() == 0 && !report.errors.empty()) throw Failure(report.errors.front());
    ready = report.ready;
  }
  const auto time = std::chrono::steady_clock::now() - begin;

  context.status = failed.empty() ? exit_status::ok : exit_status::failed;
  if (context.json) return print_json(report_json(*device, folder, ready, failed, time));
  const std::string title = fmt::format("{} ({})", device->identity().device, device->identity().api);
  if (stored == 0 && record.empty())
    return remark(context, fmt::format("No programs are stored in {} for {}.", root.string(), title));
  const auto terminal = context.terminal();
  for (const auto& [name, problem] : failed)
    print(fmt::format("{} {}: {}\n", paint("failed", Ink::bad, terminal.colors), printable(name),
                      printable(problem)));
  print(fmt::format("{} loaded on {} in {}{}\n", human_count(ready, "program"), printable(title),
                    human_duration(time),
                    failed.empty() ? std::string() : fmt::format(", {} failed", failed.size())));
}

}  // namespace

void add_warm(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("warm", "Load all stored programs of a device with its driver");
  auto record = std::make_shared<std::string>();
  context.add_device_option(*command);
  command
      ->add_option("--record", *record,
                   "Fetch the programs of this record from the shared stores first,\n"
                   "all at once, and load only these")
      ->type_name("FILE");
  command->footer(
      "Checks that the driver accepts every stored program, and reads the files into the page cache of the\n"
      "operating system. If the driver rejects a program, the command removes it; the next request compiles it\n"
      "again.\n\n"
      "Exits with 1 if a program fails to load.\n\n"
      "Examples:\n"
      "  kiln warm\n"
      "  kiln warm --record app.kilnreq\n"
      "  kiln warm --device opengl:0 --json");
  command->callback([&context, record] { run(context, *record); });
}

}  // namespace kiln::cli
