#include "bake/part_folder.hpp"

#include <utility>

#include <sys/stat.h>

#include <fmt/format.h>

#include "base/try.hpp"

namespace kiln::baking {
namespace {

using Path = std::filesystem::path;

/// A program of another compiler has another name.
std::string name_of(const store::EntryLabel& label) {
  return fmt::format("{}-{}", label.identity.hex(), label.key.hex());
}

struct Lock {
  base::FileHandle file;
  base::FileLock lock;
};

/// Nothing if another process removed the folder meanwhile.
Result<std::optional<Lock>> lock_of(const base::Folder& folder, const std::string& name, const Path& output) {
  auto file = KILN_TRY(folder.open_lock_file(name));
  auto lock = base::FileLock::acquire(file, 0, std::chrono::milliseconds(0));
  if (!lock && !base::FileLock::is_held(file, 0))
    return Error(ErrorCode::io, fmt::format("{} cannot be locked: its file system has no locks; write the bundle "
                                            "to another folder, and move it",
                                            folder.path().string()));
  if (!lock)
    return Error(ErrorCode::timed_out, fmt::format("another process bakes {}; wait for its end", output.string()));
  struct stat locked {};
  const auto there = folder.status(name);
  const bool is_there = there && ::fstat(file.get(), &locked) == 0 && locked.st_ino == there->st_ino;
  if (!is_there) return std::optional<Lock>();
  return std::optional<Lock>(Lock{std::move(file), *std::move(lock)});
}

}  // namespace

Result<PartFolder> PartFolder::open(const Path& output) {
  const Path path = output.string() + ".part";
  for (;;) {
    auto root = KILN_TRY(base::Folder::open(path, true));
    auto lock = lock_of(root, lock_name, output);
    // Another process was about to remove the folder.
    if (!lock && !root.exists()) continue;
    if (!lock) return std::move(lock).error();
    if (!*lock) continue;
    std::error_code error;
    std::filesystem::remove_all(path / requests_name, error);
    std::filesystem::remove(path / record_name, error);
    auto entries = KILN_TRY(base::Folder::open(path / entries_name, true));
    PartFolder part(std::move(root), std::move(entries), std::move((*lock)->file), std::move((*lock)->lock));
    std::filesystem::create_directories(part.empty_, error);
    if (error)
      return Error(ErrorCode::io, fmt::format("cannot create {}: {}", part.empty_.string(), error.message()));
    return part;
  }
}

Path PartFolder::request_folder(const Digest& id) const {
  constexpr std::size_t digits = 16;
  return root_.path() / requests_name / id.hex(digits);
}

std::optional<std::uint64_t> PartFolder::find(const store::EntryLabel& label, std::chrono::nanoseconds compile_time,
                                              std::chrono::system_clock::time_point created) const {
  const auto sealed = read(label);
  if (!sealed) return std::nullopt;
  const auto opened = store::open_entry(*sealed);
  if (!opened || opened->label.target != label.target) return std::nullopt;
  const bool is_same = opened->label.key == label.key && opened->label.identity == label.identity &&
                       opened->entry.compile_time == compile_time && opened->entry.created == created;
  return is_same ? std::optional<std::uint64_t>(sealed->size()) : std::nullopt;
}

Result<void> PartFolder::keep(const store::EntryLabel& label, const std::vector<std::byte>& sealed) const {
  return entries_.replace(name_of(label), sealed);
}

Result<std::vector<std::byte>> PartFolder::read(const store::EntryLabel& label) const {
  const std::string name = name_of(label);
  auto contents = KILN_TRY(entries_.read(name, store::max_entry_bytes));
  if (!contents)
    return Error(ErrorCode::io,
                 fmt::format("{} was removed by another process", (entries_.path() / name).string()));
  return std::move(contents->bytes);
}

void PartFolder::remove() {
  std::error_code error;
  for (const char* name : {requests_name, entries_name, record_name})
    std::filesystem::remove_all(root_.path() / name, error);
  // The lock is the last: another process may create one as soon as it is gone, and then keeps the folder.
  std::filesystem::remove(root_.path() / lock_name, error);
  std::filesystem::remove(root_.path(), error);
}

}  // namespace kiln::baking
