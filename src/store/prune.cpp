#include <kiln/prune.hpp>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "store/directory.hpp"

namespace kiln {
namespace {

using std::chrono::system_clock;

// What is this old belongs to no writer that is still at work.
constexpr std::chrono::hours leftover_age{1};

struct Candidate {
  const base::Folder* folder;
  store::StoredFile file;
  std::uint64_t bytes;
};

std::uint64_t size_of(const base::Folder& folder, const std::string& name) {
  const auto status = folder.status(name);
  return status ? static_cast<std::uint64_t>(status->st_size) : 0;
}

/// Whether it is a .meta whose entry is gone: its remover died between the two.
bool is_orphan(const base::Folder& folder, const std::string& name) {
  const auto entry = store::entry_of_meta(name);
  return entry && !folder.status(*entry);
}

std::size_t remove_leftovers(const base::Folder& folder) {
  std::size_t removed = 0;
  auto names = folder.names();
  if (!names) return 0;
  for (const std::string& name : *names) {
    if (!base::Folder::is_temporary(name) && !is_orphan(folder, name)) continue;
    const auto status = folder.status(name);
    if (!status || system_clock::now() - system_clock::from_time_t(status->st_mtime) < leftover_age) continue;
    if (auto gone = folder.remove(name); gone && *gone) ++removed;
  }
  return removed;
}

}  // namespace

Result<PruneReport> prune(const std::filesystem::path& directory, const PruneOptions& options) {
  PruneReport report;
  auto devices = store::device_folders(directory);
  if (!devices) return std::move(devices).error();

  std::vector<base::Folder> folders;
  for (const store::DeviceFolder& device : *devices) {
    auto folder = base::Folder::open(device.path, false);
    if (folder) folders.push_back(std::move(*folder));
  }
  if (auto root = base::Folder::open(directory, false)) report.leftovers += remove_leftovers(*root);

  std::vector<Candidate> candidates;
  for (const base::Folder& folder : folders) {
    report.leftovers += remove_leftovers(folder);
    auto files = store::stored_files(folder);
    if (!files) continue;
    for (store::StoredFile& file : *files) {
      const std::uint64_t bytes = file.bytes + size_of(folder, store::meta_file_name(file.name));
      report.kept_bytes += bytes;
      candidates.push_back({&folder, std::move(file), bytes});
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
    auto removed = candidate.folder->remove(candidate.file.name);
    if (!removed) {
      if (!first_error) first_error = std::move(removed).error();
      continue;
    }
    // Without its entry it is left over, and goes with the next prune if not with this one.
    static_cast<void>(candidate.folder->remove(store::meta_file_name(candidate.file.name)));
    // Where another process was first, it is gone all the same, but not by us.
    report.removed += *removed ? 1 : 0;
    report.removed_bytes += *removed ? candidate.bytes : 0;
    report.kept -= 1;
    report.kept_bytes -= candidate.bytes;
  }
  if (first_error && report.removed == 0) return *first_error;
  return report;
}

}  // namespace kiln
