#include <fmt/format.h>

#include <kiln/prune.hpp>

#include "commands.hpp"
#include "inventory.hpp"
#include "quantity.hpp"

namespace kiln::cli {
namespace {

struct Options {
  std::string max_age = {};
  std::string max_size = {};
  bool dry_run = false;
};

PruneOptions bounds(const Options& options) {
  if (options.max_age.empty() && options.max_size.empty())
    throw UsageError("prune needs a limit: --max-age 30d, --max-size 500MB, or both");
  PruneOptions bounds{.dry_run = options.dry_run};
  if (!options.max_age.empty()) {
    const auto max_age = parse_duration(options.max_age);
    if (!max_age)
      throw UsageError(fmt::format("--max-age must be a number with a unit, as in 30d, 12h or 2w, but is \"{}\"",
                                   options.max_age));
    bounds.max_age = std::chrono::floor<std::chrono::seconds>(*max_age);
  }
  if (!options.max_size.empty()) {
    bounds.max_bytes = parse_size(options.max_size);
    if (!bounds.max_bytes)
      throw UsageError(
          fmt::format("--max-size must be a size, as in 500MB or 2GiB, but is \"{}\"", options.max_size));
  }
  return bounds;
}

void run(Context& context, const Options& options) {
  const auto root = context.directory();
  const auto limits = bounds(options);
  std::vector<std::string> problems;
  for (const auto& listing : list_folders(root))
    if (!listing.problem.empty()) problems.push_back(listing.problem);
  report_problems(context, problems);
  const auto report = prune(root, limits).value();
  if (context.json) {
    return print_json({{"directory", root.string()},
                       {"dry_run", options.dry_run},
                       {"removed", report.removed},
                       {"removed_bytes", report.removed_bytes},
                       {"kept", report.kept},
                       {"kept_bytes", report.kept_bytes},
                       {"leftovers", report.leftovers}});
  }
  print(fmt::format("{} {} ({}), {} {} ({})\n", options.dry_run ? "would remove" : "removed",
                    human_count(report.removed, "program"), human_size(report.removed_bytes),
                    options.dry_run ? "would keep" : "kept", report.kept, human_size(report.kept_bytes)));
  if (report.leftovers > 0)
    print(fmt::format("{} {} of processes that were killed\n", options.dry_run ? "would remove" : "removed",
                      human_count(report.leftovers, "temporary file")));
}

}  // namespace

void add_prune(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("prune", "Remove old programs, or reduce the cache to a size");
  auto options = std::make_shared<Options>();
  command
      ->add_option("--max-age", options->max_age,
                   "Remove programs not used for this long: 45s, 90m, 12h, 30d, 2w, 1y")
      ->type_name("TIME");
  command
      ->add_option("--max-size", options->max_size,
                   "Then remove the least recently used programs until the rest fits this size: 500MB, 2GiB")
      ->type_name("SIZE");
  command->add_flag("--dry-run", options->dry_run, "Print the result, but remove nothing");
  command->footer(
      "Both limits apply to the programs of all devices together. Other processes may use the directory\n"
      "meanwhile. In a size, k, M, G and T are powers of 1000; Ki, Mi, Gi and Ti are powers of 1024.\n\n"
      "Examples:\n"
      "  kiln prune --max-age 30d\n"
      "  kiln prune --max-age 90d --max-size 500MB --dry-run");
  command->callback([&context, options] { run(context, *options); });
}

}  // namespace kiln::cli
