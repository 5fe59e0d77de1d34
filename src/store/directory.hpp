#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <kiln/identity.hpp>
#include <kiln/request.hpp>
#include <kiln/result.hpp>

#include "base/file.hpp"
#include "store/entry_file.hpp"

/// A cache directory as tools see it, without a device.
namespace kiln::store {

/// Files in the cache directory itself: the statistics; and in it and each device folder: the file for locks.
inline constexpr const char* stats_name = "cache_stats.json";
inline constexpr const char* lock_name = ".lock";
/// In a device folder: what was tuned, and the file that is locked while that is written.
inline constexpr const char* tuning_name = "tuning.json";
inline constexpr const char* tuning_lock_name = ".tuning-lock";

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

/// The device folders of a cache directory, by name. A directory that is not there has none.
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
Result<DecodedEntry> read_entry(const std::filesystem::path& folder, const std::string& file_name);

/// What .meta holds for an entry file, made from the entry file itself.
std::string meta_of(const DecodedEntry& decoded, std::uint64_t stored_bytes);

}  // namespace kiln::store
