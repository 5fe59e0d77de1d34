#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <kiln/identity.hpp>
#include <kiln/prune.hpp>
#include <kiln/request.hpp>
#include <kiln/result.hpp>

#include "base/file.hpp"
#include "base/file_system.hpp"
#include "store/sealed_entry.hpp"

/// A cache directory as tools see it, without a device.
namespace kiln::store {

inline constexpr const char* manifest_name = "manifest.json";

/// What manifest.json holds: the identity in full and the version of the folder's format.
nlohmann::ordered_json manifest_of(const Identity& identity);

/// The identity a manifest, or another file of a device folder, tells of; nothing where it is not to be understood.
std::optional<Identity> identity_in(const nlohmann::ordered_json& manifest);

/// Writes manifest.json.
Result<void> write_manifest(const base::Folder& folder, const Identity& identity);
/// Writes manifest.json if it is missing or says anything else.
Result<void> ensure_manifest(const base::Folder& folder, const Identity& identity);

/// The identity manifest.json tells of; nothing where it is missing or not to be understood.
std::optional<Identity> read_manifest_identity(const base::Folder& folder);

/// Files in the cache directory itself: the statistics; and in it and each device folder: the file for locks.
inline constexpr const char* stats_name = "cache_stats.json";
inline constexpr const char* lock_name = ".lock";
/// In the cache directory: its time of change is when it was last pruned.
inline constexpr const char* last_prune_name = ".last-prune";
/// Bytes of a device folder's lock file that are no key's. A key locks the byte of its first 64 bits.
namespace lock_byte {
inline constexpr std::uint64_t usage = 1;
inline constexpr std::uint64_t performance = 2;
}  // namespace lock_byte
/// In a device folder: what was tuned, and the file that is locked while that is written.
inline constexpr const char* tuning_name = "tuning.json";
inline constexpr const char* tuning_lock_name = ".tuning-lock";

/// How long to wait for the lock of a file that is not worth holding up a process for: counts, statistics,
/// measurements.
inline constexpr std::chrono::milliseconds bookkeeping_timeout{2000};

/// A file for people whose entry is gone for so long belongs to no process that still lives.
inline constexpr std::chrono::hours leftover_age{1};

/// Whether Kiln gives such names to files in a device folder, or in the cache directory itself: nothing else is
/// ever removed.
bool is_device_file(const std::string& name);
bool is_root_file(const std::string& name);

/// The name of the entry file: what of the name a file name can hold, and the whole digest.
std::string entry_file_name(const Key& key);
/// The file for people beside an entry file.
std::string meta_file_name(const std::string& entry_file);
/// The entry file that a file for people belongs to; nothing where the name is not of that kind.
std::optional<std::string> entry_of_meta(const std::string& meta_file);
/// The key an entry file's name stands for; the name is what the file name holds of it.
std::optional<Key> key_of_file(const std::string& file_name);

/// One device's folder.
struct DeviceFolder {
  std::filesystem::path path;
  /// From manifest.json; nothing where that is missing or does not fit the folder.
  std::optional<Identity> identity;
};

/// The paths of a cache directory's device folders, by name. A directory that does not exist has none; one that
/// cannot be read is an error.
Result<std::vector<std::filesystem::path>> device_folder_paths(
    const std::filesystem::path& root, const base::FileSystem& system = base::FileSystem::system());

/// The same, with their identities.
Result<std::vector<DeviceFolder>> device_folders(const std::filesystem::path& root,
                                                 const base::FileSystem& system = base::FileSystem::system());

/// One entry file.
struct StoredFile {
  std::string name;
  Key key;
  std::uint64_t bytes = 0;
  std::chrono::system_clock::time_point last_use;
};

/// The entry files of a device folder, by name.
Result<std::vector<StoredFile>> stored_files(const std::filesystem::path& folder);
Result<std::vector<StoredFile>> stored_files(const base::Folder& folder);

/// Reads an entry file and checks it whole, also that it is the one its name and folder promise.
Result<OpenedEntry> read_entry(const base::Folder& folder, const std::string& file_name);
Result<OpenedEntry> read_entry(const std::filesystem::path& folder, const std::string& file_name);

/// What became of a damaged entry that was to be removed.
enum class Removal { removed, sound_by_now, gone_by_now };
/// Removes a damaged entry and its .meta, under the lock of its key: a process that is replacing the entry keeps
/// what it saved. ErrorCode::timed_out if another process held the lock all the time. The counts in usage.json are
/// left to the caller.
Result<Removal> remove_damaged(const base::Folder& folder, const StoredFile& file,
                               std::chrono::milliseconds timeout);

/// What .meta holds for an entry, made from the entry itself.
std::string meta_of(const EntryLabel& label, const Entry& entry, std::uint64_t stored_bytes);

/// kiln::prune() on a file system.
Result<PruneReport> prune_on(const base::FileSystem& system, const std::filesystem::path& directory,
                             const PruneOptions& options);

/// Whether nobody has pruned the directory for a day. In one that never was, the day begins now.
bool is_prune_due(const std::filesystem::path& directory, const base::FileSystem& system);

}  // namespace kiln::store
