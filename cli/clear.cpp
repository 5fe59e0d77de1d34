#include <cstdio>
#include <iostream>

#include <unistd.h>

#include <fmt/format.h>

#include "base/file.hpp"
#include "commands.hpp"
#include "inventory.hpp"
#include "quantity.hpp"

namespace kiln::cli {
namespace {

struct Options {
  bool yes = false;
  bool all_devices = false;
};

/// The files removed, and the files left.
struct Cleared {
  std::size_t programs = 0;
  std::uint64_t bytes = 0;
  std::vector<std::string> folders = {};
  /// Files in device folders that Kiln did not create.
  std::vector<std::string> left = {};
  std::vector<std::string> problems = {};

  void clear_device(const std::filesystem::path& path) {
    folders.push_back(path.filename().string());
    for (auto& name : remove_files(path, store::is_device_file)) left.push_back((path / name).string());
  }
  void clear_root(const std::filesystem::path& path) {
    std::error_code error;
    if (const auto includes = path / store::includes_name; std::filesystem::is_directory(includes, error))
      for (auto& name : remove_files(includes, store::is_include_record))
        left.push_back((includes / name).string());
    remove_files(path, store::is_root_file);
  }

 private:
  std::vector<std::string> remove_files(const std::filesystem::path& path, bool (*ours)(const std::string&));
};

/// Removes the files of a folder whose name is `ours`, then the folder if it is empty. Returns the names of the
/// files that were left.
std::vector<std::string> Cleared::remove_files(const std::filesystem::path& path,
                                               bool (*ours)(const std::string&)) {
  std::vector<std::string> others;
  const auto folder = base::Folder::open(path, false);
  const auto names = folder ? folder->names() : Result<std::vector<std::string>>(folder.error());
  if (!names) {
    problems.push_back(names.error().message());
    return others;
  }
  for (const auto& name : *names) {
    if (!ours(name)) {
      others.push_back(name);
      continue;
    }
    const auto status = folder->status(name);
    const auto removed = folder->remove(name);
    if (!removed) {
      problems.push_back(removed.error().message());
    } else if (*removed && store::key_of_file(name)) {
      programs += 1;
      bytes += status ? static_cast<std::uint64_t>(status->st_size) : 0;
    }
  }
  // Fails if the folder is not empty, which is intended.
  rmdir(path.c_str());
  return others;
}

/// Whether Kiln created a folder: the name alone does not prove it. A folder that cannot be read counts, so that
/// the command reports it.
bool is_ours(const FolderListing& listing) {
  return listing.folder.identity || !listing.files.empty() || !listing.problem.empty();
}

std::vector<FolderListing> chosen_folders(const Context& context, const std::filesystem::path& root, bool all) {
  auto listings = list_folders(root);
  if (all) {
    std::erase_if(listings, [](const FolderListing& listing) { return !is_ours(listing); });
  } else {
    const std::string wanted = context.open_device()->identity().folder();
    std::erase_if(listings, [&](const FolderListing& listing) { return listing.folder.path.filename() != wanted; });
  }
  return listings;
}

bool confirmed(const std::filesystem::path& root, const std::vector<FolderListing>& listings) {
  std::size_t programs = 0;
  std::uint64_t bytes = 0;
  for (const auto& listing : listings) {
    programs += listing.files.size();
    bytes += listing.bytes();
  }
  const std::string whose =
      listings.size() == 1 ? device_of(listings[0].folder) : human_count(listings.size(), "device");
  fmt::print(stderr, "Remove {} ({}) of {} from {}? [y/N] ", human_count(programs, "program"), human_size(bytes),
             printable(whose), printable(root.string()));
  std::fflush(stderr);
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

void run(Context& context, const Options& options) {
  const auto root = context.directory();
  const auto terminal = context.terminal();
  const bool can_ask = terminal.in && terminal.error;
  if (!options.yes && !can_ask)
    throw UsageError("clear asks for confirmation on a terminal; to run it without one, give --yes");
  if (options.all_devices && !context.device.empty())
    throw UsageError("--all-devices and --device cannot be used together");

  const auto listings = chosen_folders(context, root, options.all_devices);
  Cleared cleared;
  const bool has_stats = options.all_devices && std::filesystem::exists(root / store::stats_name);
  if (!listings.empty() || has_stats) {
    if (!options.yes && !confirmed(root, listings)) {
      complain("no programs were removed");
      context.status = exit_status::failed;
      return;
    }
    for (const auto& listing : listings) cleared.clear_device(listing.folder.path);
    if (options.all_devices) cleared.clear_root(root);
  }
  report_problems(context, cleared.problems);
  if (context.json)
    return print_json({{"directory", root.string()},
                       {"removed", cleared.programs},
                       {"removed_bytes", cleared.bytes},
                       {"folders", cleared.folders},
                       {"left", cleared.left}});
  print(fmt::format("removed {} ({})\n", human_count(cleared.programs, "program"), human_size(cleared.bytes)));
  for (const auto& file : cleared.left)
    remark(context, fmt::format("left {}: Kiln did not create it", printable(file)));
}

}  // namespace

void add_clear(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("clear", "Remove all stored programs of a device or of all devices");
  auto options = std::make_shared<Options>();
  context.add_device_option(*command);
  command->add_flag("--yes,-y", options->yes, "Do not ask for confirmation");
  command->add_flag("--all-devices", options->all_devices,
                    "Remove the programs of all devices, and the statistics; needs no usable device");
  command->footer(
      "Removes only files that Kiln created, and folders that are then empty. Other processes may use the\n"
      "directory meanwhile; they compile the programs that they need again.\n\n"
      "Examples:\n"
      "  kiln clear\n"
      "  kiln clear --all-devices --yes");
  command->callback([&context, options] { run(context, *options); });
}

}  // namespace kiln::cli
