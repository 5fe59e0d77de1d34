#include "backend/probe.hpp"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include <unistd.h>

#include "base/environment.hpp"

namespace kiln::backend {
namespace {

constexpr const char* helper_name = "kiln-helper";

/// The file that holds Kiln's code, by the kernel's list of mappings; empty if that cannot be read. dladdr() would
/// wait for a thread that is inside dlopen().
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

/// Where a helper may be, best first.
std::vector<std::filesystem::path> places() {
  std::vector<std::filesystem::path> folders;
  // An attacker can hard-link a set-uid program into a folder of their own, so files beside it are not trusted.
  if (!base::has_more_rights_than_its_caller())
    if (const auto file = own_file(); file.is_absolute())
      folders = {file.parent_path(), file.parent_path() / KILN_LIBEXEC_FROM_LIB,
                 file.parent_path() / KILN_LIBEXEC_FROM_BIN};
  folders.emplace_back(KILN_LIBEXEC);
  return folders;
}

}  // namespace

std::string_view helper_greeting() noexcept { return "kiln-helper " KILN_VERSION ", protocol 1\n"; }

std::optional<std::string> find_helper() {
  if (const char* wanted = base::environment("KILN_HELPER"); wanted != nullptr && *wanted != '\0') return wanted;
  for (const auto& folder : places()) {
    const auto path = (folder / helper_name).lexically_normal();
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return std::nullopt;
}

}  // namespace kiln::backend
