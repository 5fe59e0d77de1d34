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

/// Access to a cache directory without a device.
namespace kiln::store {

inline constexpr const char* manifest_name = "manifest.json";

/// The contents of manifest.json: the full identity and the version of the folder's format.
nlohmann::ordered_json manifest_of(const Identity& identity);

/// Parses the identity in a manifest or another file of a device folder; nothing if it is invalid.
std::optional<Identity> identity_in(const nlohmann::ordered_json& manifest);

Result<void> write_manifest(const base::Folder& folder, const Identity& identity);
/// Writes manifest.json if it is missing or its contents differ.
Result<void> ensure_manifest(const base::Folder& folder, const Identity& identity);

/// The identity in manifest.json; nothing if the file is missing or invalid.
std::optional<Identity> read_manifest_identity(const base::Folder& folder);

/// Statistics, in the cache directory; and the lock file, in the cache directory and in each device folder.
inline constexpr const char* stats_name = "cache_stats.json";
inline constexpr const char* lock_name = ".lock";
/// In the cache directory: its modification time is the time of the last prune.
inline constexpr const char* last_prune_name = ".last-prune";
/// The folder of the records of included files (key/include_record.hpp).
inline constexpr const char* includes_name = "includes";
/// Reserved bytes of a device folder's lock file. The lock byte of a key is the first 64 bits of its digest.
namespace lock_byte {
inline constexpr std::uint64_t usage = 1;
inline constexpr std::uint64_t performance = 2;
}  // namespace lock_byte
/// In a device folder: tuning results, and the file to lock while writing them.
inline constexpr const char* tuning_name = "tuning.json";
inline constexpr const char* tuning_lock_name = ".tuning-lock";

/// How long to wait for the lock of counts, statistics or measurements. They are not worth a longer delay.
inline constexpr std::chrono::milliseconds bookkeeping_timeout{2000};

/// After this time without an entry, a .meta file belongs to no running process.
inline constexpr std::chrono::hours leftover_age{1};

/// Whether Kiln uses file names of this form in a device folder, or in the cache directory. Kiln never removes
/// other files.
bool is_device_file(const std::string& name);
bool is_root_file(const std::string& name);
/// The same for the folder `includes_name`.
bool is_include_record(const std::string& name);

/// The name of an entry file: the file-name part of the program's name, and the whole digest.
std::string entry_file_name(const Key& key);
/// The name of the .meta file beside an entry file.
std::string meta_file_name(const std::string& entry_file);
/// The entry file that a .meta file belongs to; nothing for other files.
std::optional<std::string> entry_of_meta(const std::string& meta_file);
/// The key of an entry file. Its name is the program name as far as the file name preserves it.
std::optional<Key> key_of_file(const std::string& file_name);

struct DeviceFolder {
  std::filesystem::path path;
  /// From manifest.json; nothing if that is missing or does not match the folder.
  std::optional<Identity> identity;
};

/// The paths of a cache directory's device folders, sorted by name. A missing directory has none; an unreadable one
/// is an error.
Result<std::vector<std::filesystem::path>> device_folder_paths(
    const std::filesystem::path& root, const base::FileSystem& system = base::FileSystem::system());

/// The same, with their identities.
Result<std::vector<DeviceFolder>> device_folders(const std::filesystem::path& root,
                                                 const base::FileSystem& system = base::FileSystem::system());

/// An entry file.
struct StoredFile {
  std::string name;
  Key key;
  std::uint64_t bytes = 0;
  std::chrono::system_clock::time_point last_use;
};

/// The entry files of a device folder, sorted by name.
Result<std::vector<StoredFile>> stored_files(const std::filesystem::path& folder);
Result<std::vector<StoredFile>> stored_files(const base::Folder& folder);

/// Reads an entry file and checks all of it, including that its key and identity match its file and folder name.
Result<OpenedEntry> read_entry(const base::Folder& folder, const std::string& file_name);
Result<OpenedEntry> read_entry(const std::filesystem::path& folder, const std::string& file_name);

/// The result of remove_damaged(): another process may have replaced or removed the entry first.
enum class Removal { removed, sound_by_now, gone_by_now };
/// Removes a damaged entry and its .meta file under the key's lock, so that an entry that another process just
/// replaced stays. Fails with ErrorCode::timed_out if another process holds the lock until the timeout. The caller
/// updates usage.json.
Result<Removal> remove_damaged(const base::Folder& folder, const StoredFile& file,
                               std::chrono::milliseconds timeout);

/// The contents of an entry's .meta file.
std::string meta_of(const EntryLabel& label, const Entry& entry, std::uint64_t stored_bytes);

/// kiln::prune() on a given file system.
Result<PruneReport> prune_on(const base::FileSystem& system, const std::filesystem::path& directory,
                             const PruneOptions& options);

/// Whether the last prune was more than a day ago. If there was none, creates the marker file and returns false.
bool is_prune_due(const std::filesystem::path& directory, const base::FileSystem& system);

}  // namespace kiln::store
