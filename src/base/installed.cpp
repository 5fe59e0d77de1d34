#include "base/installed.hpp"

#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>

#include <sys/stat.h>
#include <unistd.h>

#include "base/dynamic_library.hpp"
#include "base/process.hpp"

namespace kiln::base {
namespace {

/// The file that holds Kiln's code, from /proc/self/maps; empty if that cannot be read. dladdr() would block on a
/// thread that is inside dlopen().
std::filesystem::path own_file() {
  const auto here = reinterpret_cast<std::uintptr_t>(&own_file);
  std::ifstream mappings("/proc/self/maps");
  for (std::string line; std::getline(mappings, line);) {
    std::istringstream fields(line);
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    char dash = 0;
    fields >> std::hex >> begin >> dash >> end;
    if (here < begin || here >= end) continue;
    std::string rights;
    std::string offset;
    std::string device;
    std::string inode;
    std::string path;
    std::getline(fields >> rights >> offset >> device >> inode >> std::ws, path);
    return path;
  }
  return {};
}

/// Whether no other user could have put code there; see find_own_library().
bool is_trusted(const std::filesystem::path& path, const std::optional<uid_t>& owner_of_kiln) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return false;
  const bool is_own = status.st_uid == ::geteuid();
  if (!is_own && status.st_uid != 0 && status.st_uid != owner_of_kiln) return false;
  if ((status.st_mode & S_IWOTH) != 0) return false;
  const bool has_own_group = is_own && status.st_gid == ::getgid() && !has_more_rights_than_its_caller();
  return (status.st_mode & S_IWGRP) == 0 || has_own_group;
}

std::optional<uid_t> owner_of(const std::filesystem::path& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) return std::nullopt;
  return status.st_uid;
}

}  // namespace

std::vector<std::filesystem::path> folders_of(const InstalledPlace& place) {
  std::vector<std::filesystem::path> folders;
  // An attacker can hard-link a set-uid program into a folder that they control, so files beside it are not
  // trusted.
  if (!has_more_rights_than_its_caller())
    if (const auto file = own_file(); file.is_absolute())
      folders = {file.parent_path(), file.parent_path() / place.from_libraries,
                 file.parent_path() / place.from_programs, file.parent_path() / place.from_helper};
  folders.emplace_back(place.folder);
  return folders;
}

std::optional<std::filesystem::path> find_own_library(const std::string& file_name, const char* override_variable) {
  if (const char* wanted = environment(override_variable); wanted != nullptr && *wanted != '\0') return wanted;
  auto folders = folders_of({".", KILN_LIB_FROM_BIN, KILN_LIB_FROM_LIBEXEC, KILN_LIBDIR});
  for (auto& folder : DynamicLibrary::search_path()) folders.push_back(std::move(folder));
  // Its code runs in this process already.
  const auto owner_of_kiln = owner_of(own_file());
  for (const auto& folder : folders) {
    auto path = (folder / file_name).lexically_normal();
    if (::access(path.c_str(), R_OK) == 0 && is_trusted(path, owner_of_kiln) &&
        is_trusted(path.parent_path(), owner_of_kiln))
      return path;
  }
  return std::nullopt;
}

}  // namespace kiln::base
