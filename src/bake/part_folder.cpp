#include "bake/part_folder.hpp"

#include <cstring>
#include <utility>

#include <sys/stat.h>

#include <fmt/format.h>

#include "base/bytes.hpp"
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
  const Path path = output.string() + ".baking";
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

std::optional<PartFolder::Kept> PartFolder::find(const store::EntryLabel& label,
                                                 std::chrono::nanoseconds compile_time,
                                                 std::chrono::system_clock::time_point created) const {
  auto kept = read(label);
  if (!kept) return std::nullopt;
  const auto opened = store::open_entry(kept->sealed);
  if (!opened || opened->label.key != label.key || opened->label.identity != label.identity) return std::nullopt;
  const bool is_same = opened->label.target == label.target && opened->entry.compile_time == compile_time &&
                       opened->entry.created == created;
  return is_same ? std::optional(*std::move(kept)) : std::nullopt;
}

// A file is the digest without the toolkit, or zeros, and then the sealed entry.

Result<void> PartFolder::keep(const store::EntryLabel& label, const Kept& program) const {
  base::ByteWriter writer;
  writer.raw(program.without_toolkit.value_or(Digest()).bytes);
  writer.raw(program.sealed);
  return entries_.replace(name_of(label), writer.bytes());
}

Result<PartFolder::Kept> PartFolder::read(const store::EntryLabel& label) const {
  const std::string name = name_of(label);
  const auto wrong = [&](std::string_view why) {
    return Error(ErrorCode::io,
                 fmt::format("{} was {} by another process", (entries_.path() / name).string(), why));
  };
  Digest digest;
  auto contents = KILN_TRY(entries_.read(name, store::max_entry_bytes + sizeof digest.bytes));
  if (!contents) return wrong("removed");
  auto& bytes = contents->bytes;
  if (bytes.size() < sizeof digest.bytes) return wrong("changed");
  const auto end = bytes.begin() + sizeof digest.bytes;
  std::memcpy(digest.bytes.data(), bytes.data(), sizeof digest.bytes);
  Kept kept;
  if (digest != Digest()) kept.without_toolkit = digest;
  bytes.erase(bytes.begin(), end);
  kept.sealed = std::move(bytes);
  return kept;
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
