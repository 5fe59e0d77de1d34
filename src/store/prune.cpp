#include <algorithm>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "store/directory.hpp"
#include "store/manifest.hpp"
#include "store/prune.hpp"

namespace kiln {
namespace {

using std::chrono::system_clock;

struct Device {
  base::Folder folder;
  std::optional<Identity> identity;
  bool changed = false;
};

struct Candidate {
  Device* device;
  store::StoredFile file;
  std::uint64_t bytes;
};

std::uint64_t size_of(const base::Folder& folder, const std::string& name) {
  const auto status = folder.status(name);
  return status ? static_cast<std::uint64_t>(status->st_size) : 0;
}

/// Whether it is a .meta whose entry is gone: its remover died between the two. One that is young may be that of an
/// entry which is removed and put again at this moment.
bool is_old_orphan(const base::Folder& folder, const std::string& name) {
  const auto entry = store::entry_of_meta(name);
  if (!entry || folder.status(*entry)) return false;
  const auto status = folder.status(name);
  return status && system_clock::now() - system_clock::from_time_t(status->st_mtime) >= store::leftover_age;
}

std::size_t remove_leftovers(const base::Folder& folder, bool dry_run) {
  std::size_t removed = 0;
  auto names = folder.names();
  if (!names) return 0;
  for (const std::string& name : *names) {
    const bool left_over =
        base::Folder::is_temporary(name) ? folder.is_abandoned(name) : is_old_orphan(folder, name);
    if (!left_over) continue;
    const auto gone = dry_run ? Result<bool>(true) : folder.remove(name);
    if (gone && *gone) ++removed;
  }
  return removed;
}

/// Removes an entry; whether it was still there.
Result<bool> remove(const Candidate& candidate) {
  auto removed = candidate.device->folder.remove(candidate.file.name);
  if (!removed) return removed;
  candidate.device->changed = true;
  // Without its entry it is left over, and goes with the next prune if not with this one.
  static_cast<void>(candidate.device->folder.remove(store::meta_file_name(candidate.file.name)));
  return removed;
}

}  // namespace

Result<PruneReport> prune(const std::filesystem::path& directory, const PruneOptions& options) {
  return store::prune_on(base::FileSystem::system(), directory, options);
}

Result<PruneReport> store::prune_on(const base::FileSystem& system, const std::filesystem::path& directory,
                                    const PruneOptions& options) {
  PruneReport report;
  auto found = store::device_folders(directory, system);
  if (!found) return std::move(found).error();

  std::vector<Device> devices;
  for (store::DeviceFolder& device : *found) {
    auto folder = base::Folder::open(device.path, false, system);
    if (folder) devices.push_back({std::move(*folder), std::move(device.identity)});
  }
  if (auto root = base::Folder::open(directory, false, system))
    report.leftovers += remove_leftovers(*root, options.dry_run);

  std::vector<Candidate> candidates;
  for (Device& device : devices) {
    report.leftovers += remove_leftovers(device.folder, options.dry_run);
    auto files = store::stored_files(device.folder);
    if (!files) continue;
    for (store::StoredFile& file : *files) {
      const std::uint64_t bytes = file.bytes + size_of(device.folder, store::meta_file_name(file.name));
      report.kept_bytes += bytes;
      candidates.push_back({&device, std::move(file), bytes});
    }
  }
  report.kept = candidates.size();
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.file.last_use < b.file.last_use; });

  std::optional<Error> first_error;
  const auto now = system_clock::now();
  for (const Candidate& candidate : candidates) {
    const auto age = std::chrono::duration_cast<std::chrono::seconds>(now - candidate.file.last_use);
    const bool too_old = options.max_age && age > *options.max_age;
    const bool too_much = options.max_bytes && report.kept_bytes > *options.max_bytes;
    if (!too_old && !too_much) break;
    auto removed = options.dry_run ? Result<bool>(true) : remove(candidate);
    if (!removed) {
      if (!first_error) first_error = std::move(removed).error();
      continue;
    }
    // Where another process was first, it is gone all the same, but not by us.
    report.removed += *removed ? 1 : 0;
    report.removed_bytes += *removed ? candidate.bytes : 0;
    report.kept -= 1;
    report.kept_bytes -= candidate.bytes;
  }
  for (const Device& device : devices)
    if (device.changed && device.identity) {
      // For people only: the next flush of a process that saved something writes it anyway.
      static_cast<void>(store::write_manifest(device.folder, *device.identity));
    }
  if (first_error && report.removed == 0) return *first_error;
  return report;
}

}  // namespace kiln
