#include "store/config_folders.hpp"

#include <algorithm>
#include <string_view>

#include "base/process.hpp"

namespace kiln::store {
namespace {

/// The folder in an environment variable; nothing if it is not set, empty or relative.
std::optional<std::filesystem::path> folder_in_variable(const char* name) {
  const char* value = base::environment(name);
  if (value == nullptr) return std::nullopt;
  std::filesystem::path folder(value);
  if (!folder.is_absolute()) return std::nullopt;
  return folder;
}

}  // namespace

ConfigFolders config_folders() {
  ConfigFolders folders;
  if (base::has_more_rights_than_its_caller()) return folders;
  if (const auto config = folder_in_variable("XDG_CONFIG_HOME"))
    folders.user = *config / "kiln";
  else if (const auto home = folder_in_variable("HOME"))
    folders.user = *home / ".config" / "kiln";
  const char* value = base::environment("XDG_CONFIG_DIRS");
  std::string_view rest = value != nullptr && *value != '\0' ? value : "/etc/xdg";
  while (!rest.empty()) {
    const std::filesystem::path folder(rest.substr(0, rest.find(':')));
    rest.remove_prefix(std::min(folder.native().size() + 1, rest.size()));
    if (folder.is_absolute()) folders.system.push_back(folder / "kiln");
  }
  return folders;
}

}  // namespace kiln::store
