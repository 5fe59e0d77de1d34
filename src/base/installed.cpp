#include "base/installed.hpp"

#include <cstdint>
#include <fstream>
#include <sstream>

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

}  // namespace kiln::base
