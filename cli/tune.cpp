#include <algorithm>
#include <charconv>
#include <chrono>
#include <functional>
#include <optional>

#include <fmt/format.h>

#include <kiln/cache.hpp>
#include <kiln/kernels/kernels.hpp>
#include <kiln/kernels/tuner.hpp>

#include "base/file.hpp"
#include "commands.hpp"
#include "kernels/tune/records.hpp"
#include "quantity.hpp"
#include "tune_report.hpp"

namespace kiln::cli {
namespace {

struct Options {
  std::string kernel = {};
  std::string shape = {};
  std::string budget = "60s";
  std::string report = {};
  std::uint64_t seed = 0;
  bool from_profile = false;
};

/// The extents of "1024x1024x64", each at most Tensor::max_count.
Shape parse_shape(const std::string& text) {
  Shape shape;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('x', at), text.size());
    std::int64_t extent = 0;
    const auto [rest, error] = std::from_chars(text.data() + at, text.data() + end, extent);
    if (error != std::errc() || rest != text.data() + end || extent < 1)
      throw UsageError(
          fmt::format("--shape must be numbers with x between them, as in 1024x1024x64, but is \"{}\"", text));
    if (extent > Tensor::max_count)
      throw UsageError(fmt::format("--shape {}: {} is too large; a tensor has at most {} elements", text, extent,
                                   Tensor::max_count));
    shape.push_back(extent);
    at = end + 1;
  }
  // No call has so many: none of its tensors would exist, and products of the sizes would overflow.
  double all = 1;
  for (const std::int64_t extent : shape) all *= static_cast<double>(extent);
  if (all > 0x1p62) throw UsageError(fmt::format("--shape {} is too large", text));
  return shape;
}

/// CLI11 silently replaces a number that is too large by the largest one.
std::uint64_t parse_seed(const std::string& text) {
  std::uint64_t seed = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error != std::errc() || rest != text.data() + text.size())
    throw UsageError(fmt::format("--seed must be a whole number below 2^64, but is \"{}\"", text));
  return seed;
}

/// Throws UsageError if a tensor of the call would be too large.
void check_inputs(const Tunable& call, const std::string& shape) {
  for (const Shape& input : call.inputs) {
    double count = 1;
    for (const std::int64_t extent : input) count *= static_cast<double>(extent);
    if (count > static_cast<double>(Tensor::max_count))
      throw UsageError(fmt::format("--shape {} needs a tensor of more than {} elements", shape, Tensor::max_count));
  }
}

/// A variant as text, as in "tm=64 tn=128".
std::string describe(const std::vector<std::string>& parameters, const Variant& variant) {
  std::string text;
  for (std::size_t i = 0; i < variant.size() && i < parameters.size(); ++i)
    text += fmt::format("{}{}={}", i > 0 ? " " : "", parameters[i], variant[i]);
  return text;
}

std::string sizes_of(const TuneRecord& record) {
  std::string text;
  for (const TuneSize& size : record.sizes)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", size.name, size.value);
  return text;
}

/// Whether a variant of the record works.
bool is_usable(const TuneRecord& record) { return !record.trials.empty() && record.trials.front().problem.empty(); }

double microseconds(std::chrono::nanoseconds time) { return static_cast<double>(time.count()) / 1000; }

Json json_of(const TuneRecord& record) {
  Json sizes = Json::object();
  for (const TuneSize& size : record.sizes) sizes[size.name] = size.value;
  Json trials = Json::array();
  for (const TuneTrial& trial : record.trials) {
    Json variant = Json::object();
    for (std::size_t i = 0; i < trial.variant.size(); ++i) variant[record.parameters[i]] = trial.variant[i];
    Json one = {{"variant", std::move(variant)}};
    if (trial.problem.empty())
      one["us"] = microseconds(trial.time);
    else
      one["problem"] = trial.problem;
    trials.push_back(std::move(one));
  }
  return {{"kernel", record.kernel},    {"types", record.types},       {"sizes", std::move(sizes)},
          {"calls", record.calls},      {"complete", record.complete}, {"hint", record.hint},
          {"trials", std::move(trials)}};
}

CacheOptions cache_options(const Context& context) {
  CacheOptions options;
  options.directory = context.directory();
  options.stores = context.stores();
  options.compile = CompilePolicy::always;
  options.log = context.log();
  return options;
}

void print_result(const Context& context, const Tunable& tunable, const TuneRecord& record) {
  if (!is_usable(record))
    return print(fmt::format("No variant of {} works on this device.\n", printable(record.kernel)));
  Table table({{"RANK", Table::Align::right},
               {"TIME", Table::Align::right},
               {"VARIANT", Table::Align::left, Table::Overflow::wrap_words}});
  std::size_t rank = 0;
  for (const TuneTrial& trial : record.trials) {
    if (!trial.problem.empty() || ++rank > 5) break;
    table.add({std::to_string(rank), human_duration(trial.time), describe(record.parameters, trial.variant)});
  }
  print(table.format(context.terminal()));
  const auto initial = std::find_if(record.trials.begin(), record.trials.end(),
                                    [&](const TuneTrial& trial) { return trial.variant == tunable.initial; });
  const auto problems = std::count_if(record.trials.begin(), record.trials.end(),
                                      [](const TuneTrial& trial) { return !trial.problem.empty(); });
  print(fmt::format("{} {}: tried {} variants, {} of them failed{}\n", printable(record.kernel),
                    printable(sizes_of(record)), record.trials.size(), problems,
                    record.complete ? "" : "; run the command again to continue the search"));
  if (initial != record.trials.end() && initial->problem.empty())
    print(fmt::format("The best variant takes {:.2f} times as long as the default variant.\n",
                      microseconds(record.trials.front().time) / microseconds(initial->time)));
}

std::chrono::nanoseconds budget_of(const Options& options) {
  const auto budget = parse_duration(options.budget);
  if (!budget)
    throw UsageError(
        fmt::format("--budget must be a number with a unit, as in 60s or 5m, but is \"{}\"", options.budget));
  return *budget;
}

/// Tunes with a progress bar. Appends the trials to `trials` in the order in which they ran.
Result<TuneRecord> tune_with_bar(Context& context, Tuner& tuner, const Tunable& call,
                                 std::chrono::nanoseconds budget, const std::string& title,
                                 std::vector<TuneTrial>& trials) {
  ProgressBar bar(context.terminal(), title);
  return tuner.tune(call, budget, [&](const TuneProgress& progress) {
    trials.push_back(progress.last);
    bar.update(progress.tried, progress.of, fmt::format("best {}", human_duration(progress.best.time)));
    return true;
  });
}

/// Throws Failure if the cache cannot use its directory. The cache itself only logs this.
void check_folder(const Cache& cache, const Device& device, const Context& context) {
  if (!cache.folder().empty() || device.identity().formats.empty()) return;
  for (const auto& path : {context.directory(), context.directory() / device.identity().folder()})
    base::Folder::open(path, false).value();
  throw Failure(
      Error(ErrorCode::io, fmt::format("cannot use the cache directory {}", context.directory().string())));
}

/// Throws Failure if records cannot be written, before a search wastes time.
void check_writable(const Cache& cache, const Device& device, const Context& context) {
  const Identity& identity = device.identity();
  if (identity.formats.empty())
    throw Failure(
        Error(ErrorCode::unsupported,
              fmt::format("the driver of {} returns no binaries, so Kiln cannot store tuning records for it",
                          identity.device)));
  check_folder(cache, device, context);
  tune::write_records(cache.folder(), identity, {}).value();
}

/// Throws Failure if the records are not on disk.
void check_saved(const Tuner& tuner) {
  if (const auto saved = tuner.saved(); !saved)
    throw Failure(
        Error(saved.error().code(), fmt::format("the tuning records are not saved: {}", saved.error().message())));
}

TuneOptions tune_options(const Context& context, std::uint64_t seed = 0) {
  TuneOptions how{.policy = TunePolicy::lookup, .seed = seed};
  how.log = context.log();
  return how;
}

void tune_call(Context& context, const Options& options) {
  if (options.kernel.empty() || options.shape.empty())
    throw UsageError(
        "tune needs a kernel and a shape, as in `kiln tune gemm --shape 1024x1024x1024`, or --from-profile");
  const auto budget = budget_of(options);
  const Shape shape = parse_shape(options.shape);
  const auto device = context.open_device();
  const Tunable call = tunable(*device, options.kernel, shape).value();
  check_inputs(call, options.shape);
  Cache cache(device, cache_options(context));
  check_writable(cache, *device, context);
  const auto tuner = Tuner::create(device, cache, tune_options(context, options.seed)).value();
  std::vector<TuneTrial> trials;
  const TuneRecord record = tune_with_bar(context, *tuner, call, budget, "Tuning", trials).value();
  if (!options.report.empty()) write_tune_report(options.report, *device, record, trials);
  if (context.json) {
    print_json(json_of(record));
  } else {
    if (!trials.empty()) print(plot_of(trials, context.terminal()));
    print_result(context, call, record);
  }
  check_saved(*tuner);
}

/// The total time of all calls; the number of calls if their time is unknown.
double weight_of(const TuneRecord& record) {
  return static_cast<double>(record.calls) * (is_usable(record) ? microseconds(record.trials.front().time) : 1);
}

void tune_profile(Context& context, const Options& options) {
  if (!options.kernel.empty() || !options.shape.empty() || !options.report.empty())
    throw UsageError("--from-profile cannot be used with a kernel, --shape or --report");
  const auto budget = budget_of(options);
  const auto device = context.open_device();
  Cache cache(device, cache_options(context));
  check_writable(cache, *device, context);
  const auto tuner = Tuner::create(device, cache, tune_options(context, options.seed)).value();
  std::vector<std::pair<TuneRecord, Tunable>> calls;
  for (const TuneRecord& record : tuner->records()) {
    if (record.calls == 0) continue;
    if (auto call = tunable(*device, record))
      calls.emplace_back(record, std::move(*call));
    else
      complain(fmt::format("skipped {}: {}", record.kernel, call.error().message()));
  }
  std::ranges::sort(calls, std::greater(), [](const auto& call) { return weight_of(call.first); });
  if (calls.empty())
    remark(context, fmt::format("No calls of tunable kernels are recorded for {}.", device->identity().device));
  Json done = Json::array();
  const auto end = std::chrono::steady_clock::now() + budget;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const auto& [before, call] = calls[i];
    // Time that one call does not use goes to the next calls.
    const auto left = end - std::chrono::steady_clock::now();
    const auto share = left / static_cast<std::int64_t>(calls.size() - i);
    if (share <= share.zero()) break;
    std::vector<TuneTrial> trials;
    const std::string title = fmt::format("{} of {}: {}", i + 1, calls.size(), call.kernel);
    const auto record = tune_with_bar(context, *tuner, call, share, title, trials);
    if (!record) {
      complain(fmt::format("{}: {}", call.kernel, record.error().message()));
      context.status = exit_status::failed;
    } else if (context.json) {
      done.push_back(json_of(*record));
    } else {
      print_result(context, call, *record);
    }
  }
  if (context.json) print_json(done);
  check_saved(*tuner);
}

std::string best_of(const TuneRecord& record) {
  if (!is_usable(record)) return "-";
  return describe(record.parameters, record.trials.front().variant) + (record.hint ? " (hint)" : "");
}

std::string table_of(const std::vector<TuneRecord>& records, const Terminal& terminal) {
  using enum Table::Align;
  Table table({{"KERNEL"},
               {"SIZES", left, Table::Overflow::wrap},
               {"CALLS", right},
               {"TIME", right},
               {"BEST VARIANT", left, Table::Overflow::wrap}});
  for (const TuneRecord& record : records)
    table.add({record.kernel, sizes_of(record), std::to_string(record.calls),
               is_usable(record) ? human_duration(record.trials.front().time) : "-", best_of(record)});
  return table.format(terminal);
}

std::string details_of(const TuneRecord& record, const Terminal& terminal) {
  const auto failed = std::count_if(record.trials.begin(), record.trials.end(),
                                    [](const TuneTrial& trial) { return !trial.problem.empty(); });
  Table fields = Table::of_fields();
  fields.add({"  sizes", sizes_of(record)});
  fields.add({"  types", record.types});
  fields.add({"  calls", std::to_string(record.calls)});
  fields.add({"  time", is_usable(record) ? human_duration(record.trials.front().time) : "-"});
  fields.add({"  best variant", best_of(record)});
  fields.add({"  variants tried", fmt::format("{}, {} of them failed", record.trials.size(), failed)});
  fields.add({"  search", record.complete ? "complete" : "not complete"});
  return paint(printable(record.kernel), Ink::heading, terminal.colors) + "\n" + fields.format(terminal);
}

void list(Context& context, bool details) {
  const auto device = context.open_device();
  Cache cache(device, cache_options(context));
  check_folder(cache, *device, context);
  const auto records = Tuner::create(device, cache, {.policy = TunePolicy::lookup}).value()->records();
  if (context.json) {
    Json all = Json::array();
    for (const TuneRecord& record : records) all.push_back(json_of(record));
    return print_json(all);
  }
  if (records.empty())
    return remark(context, fmt::format("No tuning records are stored for {}.", device->identity().device));
  const auto terminal = context.terminal();
  if (!details) return print(table_of(records, terminal));
  for (std::size_t i = 0; i < records.size(); ++i) print((i > 0 ? "\n" : "") + details_of(records[i], terminal));
}

/// The result of `tune export` and `tune import`.
Json transfer_json(const Device& device, const std::string& file, std::size_t records) {
  return {{"device", device.identity().device}, {"file", file}, {"records", records}};
}

void export_to(Context& context, const std::string& file) {
  const auto device = context.open_device();
  Cache cache(device, cache_options(context));
  check_folder(cache, *device, context);
  const auto tuner = Tuner::create(device, cache, {.policy = TunePolicy::lookup}).value();
  tuner->export_to(file).value();
  const std::size_t count = tuner->records().size();
  if (context.json) return print_json(transfer_json(*device, file, count));
  remark(context, fmt::format("Wrote {} to {}", human_count(count, "record"), file));
}

void import_from(Context& context, const std::string& file) {
  const auto device = context.open_device();
  Cache cache(device, cache_options(context));
  check_writable(cache, *device, context);
  const auto tuner = Tuner::create(device, cache, {.policy = TunePolicy::lookup}).value();
  const std::size_t count = tuner->import_from(file).value();
  check_saved(*tuner);
  if (context.json) return print_json(transfer_json(*device, file, count));
  remark(context, fmt::format("Added {} from {}", human_count(count, "record"), file));
}

}  // namespace

void add_tune(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("tune", "Find and store the fastest variant of a kernel on a device");
  auto options = std::make_shared<Options>();
  command
      ->add_option("KERNEL", options->kernel,
                   "gemm, gemm_nt, gemm_tn, gemm_tt, weighted_matmul, conv2d, "
                   "conv2d_winograd, softmax, flash_attention or flash_attention_causal")
      ->type_name("");
  command->add_option("--shape", options->shape, "Sizes of the call, as in 1024x1024x1024")->type_name("MxNxK...");
  command->add_option("--budget", options->budget, "Time limit of the search [60s]")->type_name("TIME");
  command
      ->add_option_function<std::string>(
          "--seed", [options](const std::string& text) { options->seed = parse_seed(text); }, "Random seed [0]")
      ->type_name("NUMBER");
  command->add_flag("--from-profile", options->from_profile,
                    "Tune the calls that applications made on the device, those with the longest total time first");
  command->add_option("--report", options->report, "Write a plot of the search to this .html or .svg file")
      ->type_name("FILE");
  context.add_device_option(*command);
  auto* ls = command->add_subcommand("ls", "List the tuning records of the device");
  auto details = std::make_shared<bool>(false);
  ls->add_flag("-l,--long", *details,
               "Show all details of each record: types, variants tried, state of the search");
  ls->callback([&context, details] { list(context, *details); });
  auto* out = command->add_subcommand("export", "Write the tuning records of the device to a file");
  auto file = std::make_shared<std::string>();
  out->add_option("FILE", *file, "The file to write")->required()->type_name("");
  out->callback([&context, file] { export_to(context, *file); });
  auto* in = command->add_subcommand("import", "Add the tuning records of a file of the same device");
  in->add_option("FILE", *file, "The file to read")->required()->type_name("");
  in->callback([&context, file] { import_from(context, *file); });
  for (auto* part : {ls, out, in}) {
    part->group("Commands");
    context.add_device_option(*part);
    context.add_common_options(*part);
  }
  command->footer(
      "Shapes:\n"
      "  gemm, gemm_nt, gemm_tn, gemm_tt          MxNxK, or MxNxKxBATCH\n"
      "  weighted_matmul                          BxHxQxKxD\n"
      "  conv2d, conv2d_winograd                  NxCxHxWxKxRxS, padded by R/2 and S/2\n"
      "  softmax                                  ROWSxWIDTH\n"
      "  flash_attention, flash_attention_causal  BxHxQxD, or BxHxQxKxD\n\n"
      "Kiln stores the result in the device's folder of the cache directory, and all later processes use it.\n"
      "The next run continues a search that was interrupted or ran out of time.\n\n"
      "Exits with 1 if the result cannot be stored.\n\n"
      "Examples:\n"
      "  kiln tune gemm --shape 1024x1024x1024 --budget 60s\n"
      "  kiln tune conv2d --shape 32x64x56x56x64x3x3 --report conv2d.html\n"
      "  kiln tune --from-profile --budget 10m\n"
      "  kiln tune ls");
  command->callback([&context, options, command] {
    if (!command->get_subcommands().empty()) return;
    if (options->from_profile)
      tune_profile(context, *options);
    else
      tune_call(context, *options);
  });
}

}  // namespace kiln::cli
