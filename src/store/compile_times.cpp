#include "store/compile_times.hpp"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "store/directory.hpp"
#include "store/json_file.hpp"

namespace kiln::store {
namespace {

/// Bounds the time for directories with very many entries; the least recently used ones are left out.
constexpr std::size_t max_files = 20'000;

}  // namespace

std::map<std::string, std::chrono::nanoseconds> compile_times(const std::filesystem::path& root,
                                                              const Identity& identity,
                                                              const std::set<std::string>& names,
                                                              const base::FileSystem& system) {
  std::map<std::string, std::chrono::nanoseconds> times;
  // File names may hold only a part of a program's name.
  std::multimap<std::string, std::string> by_part;
  for (const std::string& name : names) by_part.emplace(key_of_file(entry_file_name({{}, name}))->name, name);

  auto folders = device_folders(root, system);
  if (!folders) return times;
  std::erase_if(*folders, [&](const DeviceFolder& folder) {
    return !folder.identity || folder.identity->api != identity.api;
  });
  // This identity's folder first.
  std::ranges::stable_partition(
      *folders, [own = identity.folder()](const DeviceFolder& folder) { return folder.path.filename() == own; });
  std::size_t left = max_files;
  for (const DeviceFolder& each : *folders) {
    if (times.size() == names.size() || left == 0) break;
    const auto folder = base::Folder::open(each.path, false, system);
    auto files = folder ? stored_files(*folder) : Result<std::vector<StoredFile>>(folder.error());
    if (!files) continue;
    std::ranges::sort(*files, std::greater(), &StoredFile::last_use);
    if (files->size() > left) files->erase(files->begin() + static_cast<std::ptrdiff_t>(left), files->end());
    left -= files->size();
    for (const StoredFile& file : *files) {
      const auto [begin, end] = by_part.equal_range(file.key.name);
      if (std::all_of(begin, end, [&](const auto& part) { return times.contains(part.second); })) continue;
      const auto meta = read_json(*folder, meta_file_name(file.name));
      if (!meta || !meta->contains("compile_ms") || !(*meta)["compile_ms"].is_number()) continue;
      const std::chrono::duration<double, std::milli> took((*meta)["compile_ms"].get<double>());
      if (!(took.count() > 0 && took.count() < 1e9)) continue;
      for (auto part = begin; part != end; ++part)
        times.try_emplace(part->second, std::chrono::duration_cast<std::chrono::nanoseconds>(took));
    }
  }
  return times;
}

}  // namespace kiln::store
