#include "inventory.hpp"

#include <cerrno>
#include <numeric>

#include <sys/stat.h>

#include <fmt/format.h>

#include "store/json_file.hpp"
#include "store/performance.hpp"

namespace kiln::cli {
namespace {

/// The program with the data of its entry; nothing if the file is gone.
std::optional<StoredProgram> read_program(const base::Folder& folder, StoredProgram program) {
  auto opened = store::read_entry(folder, program.file.name);
  if (!opened) {
    if (!folder.status(program.file.name)) return std::nullopt;
    program.damage = opened.error().message();
    return program;
  }
  const store::Entry& entry = opened->entry;
  if (const Binary* binary = entry.binary()) {
    program.format = binary->format;
    program.binary_bytes = binary->bytes.size();
  }
  program.compile_time = entry.compile_time;
  program.created = entry.created;
  if (auto facts = store::parse_json(entry.facts)) program.facts = std::move(*facts);
  if (const auto part = entry.parts.find(store::files_part); part != entry.parts.end()) {
    const auto& bytes = part->second.bytes;
    auto files = Json::parse(reinterpret_cast<const char*>(bytes.data()),
                             reinterpret_cast<const char*>(bytes.data()) + bytes.size(), nullptr, false);
    if (files.is_array()) program.facts["files"] = std::move(files);
  }
  return program;
}

}  // namespace

std::string StoredProgram::name() const {
  const auto known = facts.find("name");
  return known != facts.end() && known->is_string() ? known->get<std::string>() : file.key.name;
}

std::string StoredProgram::performance() const {
  std::string text;
  if (gflops > 0) text = fmt::format("{:.1f} GFLOP/s", gflops);
  if (gbps > 0) text += fmt::format("{}{:.1f} GB/s", text.empty() ? "" : ", ", gbps);
  return text.empty() ? "not measured" : text;
}

std::string Inventory::api(const StoredProgram& program) const { return api_of(folders[program.folder]); }

std::string Inventory::folder_name(const StoredProgram& program) const {
  return folders[program.folder].path.filename().string();
}

Inventory take_inventory(const std::filesystem::path& root, const InventoryFilter& filter) {
  Inventory inventory;
  std::vector<StoredProgram> listed;
  for (auto& [folder, files, problem] : list_folders(root)) {
    if (filter.folder && !filter.folder(folder)) continue;
    if (!problem.empty()) inventory.problems.push_back(std::move(problem));
    for (auto& file : files) {
      if (filter.file && !filter.file(file)) continue;
      StoredProgram program;
      program.folder = inventory.folders.size();
      program.file = std::move(file);
      listed.push_back(std::move(program));
    }
    inventory.folders.push_back(std::move(folder));
  }
  struct Opened {
    Result<base::Folder> folder;
    store::PerformanceFile measured;
  };
  std::vector<Opened> opened;
  for (const auto& folder : inventory.folders) {
    opened.push_back({base::Folder::open(folder.path, false), {}});
    if (opened.back().folder) opened.back().measured = store::PerformanceFile::read(*opened.back().folder);
  }
  std::vector<std::optional<StoredProgram>> read(listed.size());
  for_each_parallel(listed.size(), [&](std::size_t i) {
    const auto& [folder, measured] = opened[listed[i].folder];
    // Another process removed the folder after it was listed.
    if (!folder) return;
    const auto [gflops, gbps] = measured.find(listed[i].file.key.digest);
    listed[i].gflops = gflops;
    listed[i].gbps = gbps;
    read[i] = read_program(*folder, std::move(listed[i]));
  });
  for (auto& program : read)
    if (program) inventory.programs.push_back(std::move(*program));
  return inventory;
}

std::uint64_t FolderListing::bytes() const {
  return std::accumulate(files.begin(), files.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const store::StoredFile& file) { return sum + file.bytes; });
}

std::vector<FolderListing> list_folders(const std::filesystem::path& root) {
  std::vector<FolderListing> listings;
  auto folders = store::device_folders(root).value();
  for (auto& folder : folders) {
    FolderListing listing{std::move(folder), {}};
    auto files = store::stored_files(listing.folder.path);
    if (files) {
      listing.files = std::move(*files);
    } else if (struct stat status{}; stat(listing.folder.path.c_str(), &status) == 0 || errno != ENOENT) {
      listing.problem = files.error().message();
    }
    listings.push_back(std::move(listing));
  }
  return listings;
}

void report_problems(Context& context, const std::vector<std::string>& problems) {
  for (const auto& problem : problems) complain(problem);
  if (!problems.empty()) context.status = exit_status::failed;
}

void remark_empty(const Context& context, const std::filesystem::path& root) {
  remark(context,
         fmt::format("No programs are stored in {0} yet. To store sample programs, run: kiln demo --dir {0}",
                     root.string()));
}

std::string device_of(const store::DeviceFolder& folder) {
  return folder.identity && !folder.identity->device.empty() ? folder.identity->device
                                                             : folder.path.filename().string();
}

std::string api_of(const store::DeviceFolder& folder) { return folder.identity ? folder.identity->api : ""; }

Json identity_json(const Identity& identity) {
  return {{"api", identity.api},       {"vendor", identity.vendor},     {"device", identity.device},
          {"driver", identity.driver}, {"compiler", identity.compiler}, {"formats", identity.formats}};
}

std::string text_of(const Json& object, const std::string& field) {
  const auto found = object.find(field);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace kiln::cli
