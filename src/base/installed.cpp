#include "base/installed.hpp"

#include <cstdint>
#include <fstream>
#include <sstream>

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
  for (const auto& folder : folders) {
    auto path = (folder / file_name).lexically_normal();
    if (::access(path.c_str(), R_OK) == 0) return path;
  }
  return std::nullopt;
}

}  // namespace kiln::base
