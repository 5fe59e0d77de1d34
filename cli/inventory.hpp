#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <kiln/identity.hpp>

#include "context.hpp"
#include "store/directory.hpp"

namespace kiln::cli {

/// A stored program: its file, and what that says about it besides the binary.
struct StoredProgram {
  /// The device folder it is in, a position in Inventory::folders.
  std::size_t folder = 0;
  store::StoredFile file;
  /// Why the entry cannot be used; empty where it can. What follows is only known where this is empty.
  std::string damage = {};
  std::uint32_t format = 0;
  std::uint64_t binary_bytes = 0;
  std::chrono::nanoseconds compile_time = {};
  std::chrono::system_clock::time_point created = {};
  double gflops = 0;
  double gbps = 0;
  /// Request::describe(); always an object, empty where the entry holds no such thing.
  Json facts = Json::object();

  /// The name in full where the entry is sound, else what the file name holds of it.
  std::string name() const;
};

/// What a cache directory holds.
struct Inventory {
  std::vector<store::DeviceFolder> folders;
  std::vector<StoredProgram> programs;
  /// What went wrong with device folders that could not be read.
  std::vector<std::string> problems;

  std::string folder_name(const StoredProgram& program) const;
};

/// Which device folders, and which files of them, are worth reading.
struct InventoryFilter {
  std::function<bool(const store::DeviceFolder&)> folder = {};
  std::function<bool(const store::StoredFile&)> file = {};
};

/// Reads and checks the entries of a cache directory. Damaged entries are among them; entries that went away
/// in between are not. Throws Failure where the directory itself cannot be read; one that is not there is empty.
Inventory take_inventory(const std::filesystem::path& root, const InventoryFilter& filter = {});

/// A device folder and the names of its entry files, none of them read.
struct FolderListing {
  store::DeviceFolder folder;
  std::vector<store::StoredFile> files;
  /// Why the folder cannot be read; empty where it can.
  std::string problem = {};

  std::uint64_t bytes() const;
};
std::vector<FolderListing> list_folders(const std::filesystem::path& root);

/// Complains about what could not be read, and lets the command fail for it in the end.
void report_problems(Context& context, const std::vector<std::string>& problems);

/// What people call a device folder's device.
std::string device_of(const store::DeviceFolder& folder);

Json identity_json(const Identity& identity);

/// A field of a JSON object as text; empty where it is not there or is something else.
std::string text_of(const Json& object, const std::string& field);

}  // namespace kiln::cli
