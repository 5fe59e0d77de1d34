#include <kiln/bake.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <kiln/cache.hpp>

#include "commands.hpp"
#include "key/request_record.hpp"
#include "quantity.hpp"
#include "stop_request.hpp"

namespace kiln::cli {
namespace {

using Clock = std::chrono::steady_clock;

/// Between the lines that show the progress if standard error is no terminal.
constexpr auto line_interval = std::chrono::seconds(10);
constexpr unsigned most_jobs = 1024;

struct BakeFlags {
  std::vector<std::string> records = {};
  std::vector<std::string> targets = {};
  std::string output = {};
  unsigned jobs = 0;
  bool no_ptx = false;
  bool no_requests = false;
  bool no_compression = false;
  bool refresh = false;
};

/// The targets of a list such as "cuda:sm_80,sm_90": items without an API have that of the item before.
std::vector<std::string> targets_in(const std::string& list) {
  constexpr std::array<std::string_view, 5> apis = {"cuda", "hip", "opencl", "opengl", "vulkan"};
  std::vector<std::string> targets;
  std::string api;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    std::string item = list.substr(begin, end - begin);
    begin = end + 1;
    if (item.empty()) throw UsageError(fmt::format("--target has an empty item in \"{}\"", list));
    const std::string first = item.substr(0, item.find(':'));
    if (std::ranges::find(apis, first) != apis.end())
      api = first;
    else if (!api.empty())
      item = fmt::format("{}:{}", api, item);
    targets.push_back(std::move(item));
  }
  return targets;
}

std::vector<std::filesystem::path> paths_of(const BakeFlags& flags) {
  return {flags.records.begin(), flags.records.end()};
}

/// Shows the progress: a bar on a terminal, else a line now and then.
class BakeDisplay {
 public:
  BakeDisplay(const Context& context, std::string_view label)
      : context_(context), bar_(context.terminal(), label) {}

  void update(std::size_t done, std::size_t total, const std::string& what,
              std::optional<std::chrono::nanoseconds> remaining) {
    if (bar_.shown()) return bar_.update(done, total, what, remaining);
    const auto now = Clock::now();
    if (now < next_line_) return;
    next_line_ = now + line_interval;
    remark(context_, fmt::format("{} of {} done{}", done, human_count(total, "program"),
                                 remaining ? fmt::format(", {} left", human_duration(*remaining)) : ""));
  }

 private:
  const Context& context_;
  ProgressBar bar_;
  Clock::time_point next_line_ = Clock::now() + line_interval;
};

Json json_of(const Error& error) {
  return {{"code", to_string(error.code())}, {"message", error.message()}, {"log", error.log()}};
}

Json json_of(const BakeReport& report, const std::string& output, std::chrono::nanoseconds time) {
  Json object = {{"file", output},
                 {"programs", report.programs},
                 {"compiled", report.compiled},
                 {"resumed", report.resumed},
                 {"skipped", report.skipped},
                 {"retriable", report.retriable},
                 {"bytes", report.bytes},
                 {"interrupted", report.was_interrupted},
                 {"seconds", std::chrono::duration<double>(time).count()},
                 {"targets", Json::array()},
                 {"failures", Json::array()}};
  for (const auto& target : report.targets)
    object["targets"].push_back({{"name", target.name}, {"programs", target.programs}, {"bytes", target.bytes}});
  for (const auto& failed : report.failures)
    object["failures"].push_back(
        {{"name", failed.name}, {"target", or_null(failed.target)}, {"error", json_of(failed.error)}});
  return object;
}

void print_text(const BakeReport& report, const std::string& output, std::chrono::nanoseconds time,
                const Terminal& terminal) {
  using enum Table::Align;
  Table table({{"TARGET"}, {"PROGRAMS", right}, {"SIZE", right}});
  for (const auto& target : report.targets)
    table.add({target.name, std::to_string(target.programs), human_size(target.bytes)});
  print(table.format(terminal));
  for (const auto& failed : report.failures)
    complain(fmt::format("{}{}: {}", failed.name,
                         failed.target.empty() ? "" : fmt::format(" for {}", failed.target),
                         failed.error.describe()));
  std::string details;
  if (report.resumed > 0) details += fmt::format(", {} of them compiled before", report.resumed);
  if (report.skipped > 0)
    details += fmt::format(", {} skipped that a target cannot use", human_count(report.skipped, "request"));
  if (!report.failures.empty()) details += fmt::format(", {} failed", report.failures.size());
  print(fmt::format("{}: {} for {}, {} in {}{}\n", printable(output), human_count(report.programs, "program"),
                    human_count(report.targets.size(), "target"), human_size(report.bytes), human_duration(time),
                    details));
  if (report.retriable > 0)
    complain(
        fmt::format("{} of the failures may not happen again: the same command tries these programs again; "
                    "{}.baking keeps the others",
                    report.retriable, printable(output)));
}

void write_bundle(Context& context, const BakeFlags& flags) {
  if (flags.targets.empty()) throw UsageError("bake needs a target, as in --target cuda:sm_90 or --target vulkan");
  if (flags.output.empty()) throw UsageError("bake needs a file for the bundle: -o FILE");
  if (!context.device.empty()) throw UsageError("--device is for --refresh; use --target");
  BakeOptions options{.records = paths_of(flags), .output = flags.output};
  for (const std::string& list : flags.targets)
    for (std::string& target : targets_in(list)) options.targets.push_back(std::move(target));
  options.adds_ptx = !flags.no_ptx;
  options.adds_requests = !flags.no_requests;
  options.compresses = !flags.no_compression;
  options.jobs = flags.jobs;
  options.log = context.log();
  const StopRequest stop_request;
  options.interrupted = stop_request.descriptor();
  const auto begin = Clock::now();
  std::size_t total = 0;
  const auto report = [&] {
    BakeDisplay display(context, "Baking");
    return bake(options,
                [&](const BakeProgress& progress) {
                  total = progress.total;
                  display.update(progress.done, progress.total,
                                 fmt::format("{} ({})", progress.name, progress.target), progress.remaining);
                })
        .value();
  }();
  if (!report.failures.empty()) context.status = exit_status::failed;
  if (report.was_interrupted) context.status = exit_status::interrupted;
  const auto time = Clock::now() - begin;
  if (context.json) return print_json(json_of(report, flags.output, time));
  if (!report.was_interrupted) return print_text(report, flags.output, time, context.terminal());
  complain(fmt::format("interrupted: {}{} compiled, and kept in {}.baking; run the same command to go on",
                       report.programs, total > 0 ? fmt::format(" of {}", human_count(total, "program")) : "",
                       flags.output));
}

struct Refreshed {
  std::string api;
  std::string device;
  std::size_t ready = 0;
  std::vector<Error> errors = {};
};

/// Opens the devices for the records. Those that are not there are skipped, unless none is.
std::vector<std::shared_ptr<Device>> devices_for(const Context& context, const BakeFlags& flags) {
  if (!context.device.empty()) return {context.open_device()};
  std::set<std::string> apis;
  for (const auto& path : paths_of(flags)) {
    const auto record = key::RequestRecord::read(path).value();
    for (const auto& entry : record.entries()) apis.insert(entry.api);
  }
  if (apis.empty()) throw Failure(Error(ErrorCode::invalid_request, "the records have no request"));
  std::vector<std::shared_ptr<Device>> devices;
  std::vector<std::string> reasons;
  for (const std::string& api : apis) {
    auto device = open_device(api, context.log());
    if (device)
      devices.push_back(*std::move(device));
    else
      reasons.push_back(fmt::format("{}: {}", api, device.error().message()));
  }
  for (const std::string& reason : reasons) {
    if (devices.empty())
      complain(reason);
    else
      remark(context, fmt::format("skipped {}", reason));
  }
  if (devices.empty())
    throw Failure(Error(ErrorCode::no_device, "no device of this machine is for the requests of the records"));
  return devices;
}

Refreshed refresh(const Context& context, const BakeFlags& flags, const std::shared_ptr<Device>& device) {
  CacheOptions options;
  options.directory = context.directory();
  options.stores = context.stores();
  options.compile = CompilePolicy::always;
  options.max_disk_bytes = std::numeric_limits<std::uint64_t>::max();
  options.log = context.log();
  const Identity& identity = device->identity();
  Refreshed refreshed{.api = identity.api, .device = identity.device};
  BakeDisplay display(context, "Compiling");
  Cache cache(device, std::move(options));
  for (const auto& path : paths_of(flags)) {
    const auto report = cache.refresh(path, [&](const Progress& progress) {
      display.update(progress.done, progress.total, fmt::format("{} ({})", progress.name, identity.api),
                     progress.remaining);
    });
    refreshed.ready += report.ready;
    refreshed.errors.insert(refreshed.errors.end(), report.errors.begin(), report.errors.end());
  }
  return refreshed;
}

void refresh_all(Context& context, const BakeFlags& flags) {
  if (!flags.targets.empty() || !flags.output.empty())
    throw UsageError(
        "--refresh compiles for the devices of this machine, and writes no bundle: remove --target "
        "and -o");
  const auto begin = Clock::now();
  auto list = Json::array();
  std::size_t ready = 0;
  std::size_t failed = 0;
  for (const auto& device : devices_for(context, flags)) {
    const Refreshed refreshed = refresh(context, flags, device);
    ready += refreshed.ready;
    failed += refreshed.errors.size();
    auto errors = Json::array();
    for (const Error& error : refreshed.errors) errors.push_back(json_of(error));
    list.push_back({{"api", refreshed.api},
                    {"device", refreshed.device},
                    {"ready", refreshed.ready},
                    {"errors", std::move(errors)}});
    if (context.json) continue;
    for (const Error& error : refreshed.errors) complain(error.describe());
    print(fmt::format("{} ({}): {} ready{}\n", printable(refreshed.device), refreshed.api,
                      human_count(refreshed.ready, "program"),
                      refreshed.errors.empty() ? "" : fmt::format(", {} failed", refreshed.errors.size())));
  }
  if (failed > 0) context.status = exit_status::failed;
  const auto time = Clock::now() - begin;
  if (context.json)
    return print_json({{"devices", std::move(list)},
                       {"ready", ready},
                       {"failed", failed},
                       {"seconds", std::chrono::duration<double>(time).count()}});
  print(fmt::format("{} ready in {}\n", human_count(ready, "program"), human_duration(time)));
}

}  // namespace

void add_bake(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("bake", "Compile a record for GPUs that need not be present");
  auto flags = std::make_shared<BakeFlags>();
  command->add_option("RECORD", flags->records, "Records of requests")->required()->type_name("");
  command
      ->add_option("--target", flags->targets,
                   "What to compile for: cuda:sm_90, cuda:all, cuda:compute_90 (PTX), hip:gfx90a, vulkan, or "
                   "opengl:here, opencl:here, vulkan:here; repeatable, or a list as in cuda:sm_80,sm_90")
      ->allow_extra_args(false)
      ->type_name("TARGET");
  command->add_option("-o,--output", flags->output, "The bundle that is written")->type_name("FILE");
  command->add_option("--jobs", flags->jobs, "How many programs to compile at once [one for each processor]")
      ->check(CLI::Range(1U, most_jobs).description(""))
      ->type_name("N");
  command->add_flag("--no-ptx", flags->no_ptx, "Add no PTX of the newest CUDA architecture for future GPUs");
  command->add_flag("--no-requests", flags->no_requests,
                    "Add no requests, from which other devices compile what is missing");
  command->add_flag("--no-compression", flags->no_compression,
                    "Do not compress the programs: they load faster, and take more room");
  command->add_flag("--refresh", flags->refresh,
                    "Write no bundle: compile the records into the cache for the devices of this machine, as after "
                    "an update of a driver");
  context.add_device_option(*command);
  command->footer(
      "An application records its requests if KILN_RECORD names a file. Without the device of an API, `kiln\n"
      "record add` makes requests of source files. An application finds the programs of a bundle if KILN_BUNDLES\n"
      "names it.\n\n"
      "Until the bundle is complete, FILE.baking keeps what is compiled. Ctrl-C ends the command with 130; the\n"
      "same command goes on later. Exits with 1 if a program fails; the bundle then has the others. After a\n"
      "failure that may not happen again, such as a lack of memory, the folder remains, and the same command\n"
      "tries only the programs that failed.\n\n"
      "Examples:\n"
      "  kiln bake app.kilnreq --target cuda:sm_80,sm_90 --target vulkan -o app.kiln\n"
      "  kiln bake app.kilnreq --target cuda:all --target hip:gfx90a -o app.kiln\n"
      "  kiln bake --refresh app.kilnreq");
  command->callback([&context, flags] {
    if (flags->refresh)
      refresh_all(context, *flags);
    else
      write_bundle(context, *flags);
  });
}

}  // namespace kiln::cli
