#include <algorithm>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "base/try.hpp"
#include "store/bookkeeping.hpp"
#include "store/directory.hpp"

namespace kiln {
namespace {

using std::chrono::system_clock;

struct Device {
  base::Folder folder;
  /// Empty if the folder cannot be listed.
  std::optional<store::Usage> kept = {};
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

/// Whether `name` is a .meta file whose entry is missing because its remover died in between. A recent one is kept:
/// its entry may be about to be written again.
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
    Result<bool> gone = false;
    if (base::Folder::is_temporary(name))
      gone = dry_run ? folder.is_abandoned(name) : folder.remove_abandoned(name);
    else if (is_old_orphan(folder, name))
      gone = dry_run ? Result<bool>(true) : folder.remove(name);
    if (gone && *gone) ++removed;
  }
  return removed;
}

/// Removes include records that were unused for `max_age`. The next request that needs one writes it again.
void remove_old_records(const base::Folder& includes, std::chrono::seconds max_age) {
  const auto names = includes.names();
  if (!names) return;
  for (const std::string& name : *names) {
    const auto status = includes.status(name);
    if (status && store::is_include_record(name) && !base::Folder::is_temporary(name) &&
        system_clock::now() - system_clock::from_time_t(status->st_mtime) > max_age)
      static_cast<void>(includes.remove(name));
  }
}

/// Removes an entry; returns whether it still existed.
Result<bool> remove(const Candidate& candidate) {
  auto removed = candidate.device->folder.remove(candidate.file.name);
  if (!removed) return removed;
  // If this fails, the next prune removes the .meta file as a leftover.
  static_cast<void>(candidate.device->folder.remove(store::meta_file_name(candidate.file.name)));
  return removed;
}

}  // namespace

Result<PruneReport> prune(const std::filesystem::path& directory, const PruneOptions& options) {
  return store::prune_on(base::FileSystem::system(), directory, options);
}

bool store::is_prune_due(const std::filesystem::path& directory, const base::FileSystem& system) {
  const auto root = base::Folder::open(directory, false, system);
  if (!root) return false;
  const auto last = root->status(last_prune_name);
  if (!last) static_cast<void>(root->replace(last_prune_name, {}));
  return last && system_clock::now() - system_clock::from_time_t(last->st_mtime) > std::chrono::hours(24);
}

Result<PruneReport> store::prune_on(const base::FileSystem& system, const std::filesystem::path& directory,
                                    const PruneOptions& options) {
  PruneReport report;
  auto found = KILN_TRY(store::device_folder_paths(directory, system));

  std::vector<Device> devices;
  for (const std::filesystem::path& path : found) {
    auto folder = base::Folder::open(path, false, system);
    if (folder) devices.push_back({std::move(*folder)});
  }
  if (auto root = base::Folder::open(directory, false, system)) {
    report.leftovers += remove_leftovers(*root, options.dry_run);
    // If this fails, another process prunes earlier than necessary.
    if (!options.dry_run) static_cast<void>(root->replace(store::last_prune_name, {}));
  }
  if (auto includes = base::Folder::open(directory / store::includes_name, false, system)) {
    report.leftovers += remove_leftovers(*includes, options.dry_run);
    if (options.max_age && !options.dry_run) remove_old_records(*includes, *options.max_age);
  }

  std::vector<Candidate> candidates;
  for (Device& device : devices) {
    report.leftovers += remove_leftovers(device.folder, options.dry_run);
    auto files = store::stored_files(device.folder);
    if (!files) continue;
    device.kept.emplace();
    for (store::StoredFile& file : *files) {
      const std::uint64_t bytes = file.bytes + size_of(device.folder, store::meta_file_name(file.name));
      report.kept_bytes += bytes;
      device.kept->programs += 1;
      device.kept->bytes += bytes;
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
    // If another process removed the entry first, it does not count as removed here.
    report.removed += *removed ? 1 : 0;
    report.removed_bytes += *removed ? candidate.bytes : 0;
    report.kept -= 1;
    report.kept_bytes -= candidate.bytes;
    candidate.device->kept->programs -= 1;
    candidate.device->kept->bytes -= candidate.bytes;
  }
  if (!options.dry_run)
    for (const Device& device : devices) {
      // If this fails, usage.json keeps the old counts.
      if (device.kept) static_cast<void>(store::write_usage(device.folder, *device.kept));
    }
  if (first_error && report.removed == 0) return *first_error;
  return report;
}

}  // namespace kiln
