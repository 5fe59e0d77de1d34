#pragma once

#include <filesystem>
#include <optional>
#include <vector>

namespace kiln::store {

/// The folders of the configuration: kiln.conf, trusted-keys and revoked-keys. They need not exist.
struct ConfigFolders {
  /// `$XDG_CONFIG_HOME/kiln`, else `~/.config/kiln`; nothing if neither variable is set. Private keys are in its
  /// folder `keys`.
  std::optional<std::filesystem::path> user = {};
  /// `kiln` in each folder of `$XDG_CONFIG_DIRS`, else `/etc/xdg/kiln`. Those at the front have precedence.
  std::vector<std::filesystem::path> system = {};
};

/// Reads the environment. Relative paths are ignored. A program with more rights than its caller gets no folder:
/// its caller could choose keys and servers for it.
ConfigFolders config_folders();

}  // namespace kiln::store
