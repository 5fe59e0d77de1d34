#include "store/directory.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/stat.h>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/file.hpp"
#include "base/sha256.hpp"
#include "base/try.hpp"
#include "key/identity.hpp"
#include "store/bookkeeping.hpp"
#include "store/json_file.hpp"
#include "store/performance.hpp"

namespace kiln::store {

nlohmann::ordered_json manifest_of(const Identity& identity) {
  nlohmann::ordered_json manifest;
  manifest["version"] = 2;
  manifest["identity"] = {{"api", identity.api},
                          {"vendor", identity.vendor},
                          {"device", identity.device},
                          {"driver", identity.driver},
                          {"compiler", identity.compiler},
                          {"formats", identity.formats},
                          {"digest", identity.digest().hex()},
                          {"target_digest", identity.target_digest().hex()}};
  return manifest;
}

std::optional<Identity> identity_in(const nlohmann::ordered_json& manifest) {
  try {
    const auto& found = manifest.at("identity");
    Identity identity{found.at("api"), found.at("vendor"), found.at("device"), found.at("driver"),
                      found.at("compiler")};
    const auto& formats = found.at("formats");
    if (!formats.is_array()) return std::nullopt;
    for (const auto& one : formats) {
      const auto format = whole_number<std::uint32_t>(one);
      if (!format) return std::nullopt;
      identity.formats.push_back(*format);
    }
    return identity;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

Result<void> write_manifest(const base::Folder& folder, const Identity& identity) {
  return write_json(folder, manifest_name, manifest_of(identity));
}

Result<void> ensure_manifest(const base::Folder& folder, const Identity& identity) {
  // Much larger than an identity. A manifest of Kiln 0.1, which lists all programs, may be larger and is replaced.
  constexpr std::uint64_t largest = 64 << 10;
  const std::string expected = json_text(manifest_of(identity));
  const auto found = folder.read(manifest_name, largest);
  if (found && *found &&
      std::string_view(reinterpret_cast<const char*>((*found)->bytes.data()), (*found)->bytes.size()) == expected)
    return {};
  return write_manifest(folder, identity);
}

std::optional<Identity> read_manifest_identity(const base::Folder& folder) {
  const auto manifest = read_json(folder, manifest_name);
  return manifest ? identity_in(*manifest) : std::nullopt;
}

namespace {

/// Formats a time as 2026-01-31T12:34:56Z. Avoids gmtime(), whose lock a forked child could inherit locked.
std::string utc_text(std::chrono::system_clock::time_point time) {
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(std::chrono::floor<std::chrono::seconds>(time - day));
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), clock.hours().count(),
                     clock.minutes().count(), clock.seconds().count());
}

constexpr std::string_view entry_suffix = ".bin";
constexpr std::string_view meta_suffix = ".meta";
constexpr std::size_t digest_digits = 64;

/// The error of the last system call, from errno, on `path`.
Error cannot_examine(const std::filesystem::path& path) {
  return Error(ErrorCode::io, fmt::format("cannot examine {}: {}", path.string(), std::strerror(errno)));
}

}  // namespace

bool is_device_file(const std::string& name) {
  return key_of_file(name) || entry_of_meta(name) || name == manifest_name || name == lock_name ||
         name == usage_name || name == performance_name || name == tuning_name || name == tuning_lock_name ||
         base::Folder::is_temporary(name);
}

bool is_root_file(const std::string& name) {
  return name == stats_name || name == lock_name || name == last_prune_name || base::Folder::is_temporary(name);
}

bool is_include_record(const std::string& name) {
  return base::digest_from_hex(name).has_value() || base::Folder::is_temporary(name);
}

std::string entry_file_name(const Key& key) {
  return key::file_name_part(key.name, 80) + "-" + key.digest.hex() + std::string(entry_suffix);
}

std::string meta_file_name(const std::string& entry_file) {
  return entry_file.substr(0, entry_file.size() - entry_suffix.size()) + std::string(meta_suffix);
}

std::optional<std::string> entry_of_meta(const std::string& meta_file) {
  if (!meta_file.ends_with(meta_suffix)) return std::nullopt;
  std::string entry = meta_file.substr(0, meta_file.size() - meta_suffix.size()) + std::string(entry_suffix);
  return key_of_file(entry) ? std::optional(std::move(entry)) : std::nullopt;
}

std::optional<Key> key_of_file(const std::string& file_name) {
  const std::size_t tail = 1 + digest_digits + entry_suffix.size();
  if (file_name.size() <= tail || !file_name.ends_with(entry_suffix)) return std::nullopt;
  const std::size_t dash = file_name.size() - tail;
  const auto digest = base::digest_from_hex(std::string_view(file_name).substr(dash + 1, digest_digits));
  if (file_name[dash] != '-' || !digest) return std::nullopt;
  return Key{*digest, file_name.substr(0, dash)};
}

Result<std::vector<std::filesystem::path>> device_folder_paths(const std::filesystem::path& root,
                                                               const base::FileSystem& system) {
  std::vector<std::filesystem::path> paths;
  if (root.empty()) return paths;
  // Only a missing directory counts as empty. An unreachable one, for example below a regular file, is an error.
  if (struct stat status{}; stat(root.c_str(), &status) != 0) {
    if (errno == ENOENT) return paths;
    return cannot_examine(root);
  }
  auto opened = KILN_TRY(base::Folder::open(root, false, system));
  auto names = KILN_TRY(opened.names());
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    // A device folder's name ends in the first 16 digits of its identity's digest.
    const std::size_t dash = name.size() < 18 ? std::string::npos : name.size() - 17;
    if (dash == std::string::npos || name[dash] != '-') continue;
    if (name.find_first_not_of("0123456789abcdef", dash + 1) != std::string::npos) continue;
    const auto status = opened.status(name);
    // Another process may have removed the folder since the listing.
    if (!status && errno != ENOENT) return cannot_examine(root / name);
    if (!status || !S_ISDIR(status->st_mode)) continue;
    paths.push_back(root / name);
  }
  return paths;
}

Result<std::vector<DeviceFolder>> device_folders(const std::filesystem::path& root,
                                                 const base::FileSystem& system) {
  auto paths = KILN_TRY(device_folder_paths(root, system));
  std::vector<DeviceFolder> folders;
  for (std::filesystem::path& path : paths) {
    DeviceFolder folder{std::move(path), std::nullopt};
    if (auto device = base::Folder::open(folder.path, false, system)) {
      folder.identity = read_manifest_identity(*device);
      if (folder.identity && folder.identity->folder() != folder.path.filename()) folder.identity.reset();
    }
    folders.push_back(std::move(folder));
  }
  return folders;
}

Result<std::vector<StoredFile>> stored_files(const std::filesystem::path& path) {
  auto folder = KILN_TRY(base::Folder::open(path, false));
  return stored_files(folder);
}

Result<std::vector<StoredFile>> stored_files(const base::Folder& folder) {
  auto names = KILN_TRY(folder.names());
  std::sort(names.begin(), names.end());
  std::vector<StoredFile> files;
  for (std::string& name : names) {
    auto key = key_of_file(name);
    if (!key) continue;
    const auto status = folder.status(name);
    if (!status) continue;
    files.push_back({std::move(name), std::move(*key), static_cast<std::uint64_t>(status->st_size),
                     std::chrono::system_clock::from_time_t(status->st_mtime)});
  }
  return files;
}

Result<OpenedEntry> read_entry(const std::filesystem::path& path, const std::string& file_name) {
  auto folder = KILN_TRY(base::Folder::open(path, false));
  return read_entry(folder, file_name);
}

Result<OpenedEntry> read_entry(const base::Folder& folder, const std::string& file_name) {
  auto file = KILN_TRY(folder.read(file_name, max_entry_bytes));
  if (!file) return Error(ErrorCode::io, "it no longer exists");
  auto opened = open_entry(file->bytes);
  if (!opened) return opened;
  const auto key = key_of_file(file_name);
  if (!key || key->digest != opened->label.key)
    return Error(ErrorCode::damaged, "it holds a different program than its file name says");
  if (!folder.path().filename().string().ends_with("-" + opened->label.identity.hex(16)))
    return Error(ErrorCode::damaged, "it belongs to another device");
  return opened;
}

Result<Removal> remove_damaged(const base::Folder& folder, const StoredFile& file,
                               std::chrono::milliseconds timeout) {
  auto lock_file = KILN_TRY(folder.open_lock_file(lock_name));
  const auto lock = base::FileLock::acquire(lock_file, file.key.digest.word(0), timeout);
  // If the file system has no locks, continue without one.
  if (!lock && base::FileLock::is_held(lock_file, file.key.digest.word(0)))
    return Error(ErrorCode::timed_out,
                 fmt::format("{} is being replaced by another process", (folder.path() / file.name).string()));
  // Another process may have replaced the entry before this one got the lock.
  const auto entry = read_entry(folder, file.name);
  if (entry) return Removal::sound_by_now;
  if (!folder.status(file.name)) return Removal::gone_by_now;
  // An entry that cannot be read is not necessarily damaged.
  if (entry.error().code() != ErrorCode::damaged) return entry.error();
  auto removed = KILN_TRY(folder.remove(file.name));
  if (!removed) return Removal::gone_by_now;
  KILN_TRY(folder.remove(meta_file_name(file.name)));
  return Removal::removed;
}

std::string meta_of(const EntryLabel& label, const Entry& entry, std::uint64_t stored_bytes) {
  auto meta = parse_json(entry.facts).value_or(nlohmann::ordered_json::object());
  meta["key"] = label.key.hex();
  meta["identity"] = label.identity.hex();
  meta["target"] = label.target.hex();
  auto& parts = meta["parts"] = nlohmann::ordered_json::array();
  for (const auto& [name, part] : entry.parts)
    parts.push_back({{"name", name}, {"format", part.format}, {"bytes", part.bytes.size()}});
  meta["stored_bytes"] = stored_bytes;
  meta["compile_ms"] = std::chrono::duration<double, std::milli>(entry.compile_time).count();
  meta["created"] = utc_text(entry.created);
  return meta.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace kiln::store
