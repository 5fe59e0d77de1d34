#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <kiln/bundle.hpp>

namespace kiln::store {

/// The source of a setting that is set nowhere.
inline constexpr const char* default_source = "the default";

/// In place of a URL: no stores. In place of the path of a private key: no key.
inline constexpr std::string_view no_stores = "none";
inline constexpr std::string_view no_signing_key = "none";
/// In place of the path of a bundle: no bundles.
inline constexpr std::string_view no_bundles = "none";

/// The limits of a config file and of a list of stores.
inline constexpr std::size_t max_config_bytes = std::size_t{1} << 20;
inline constexpr std::size_t max_config_line_bytes = std::size_t{16} << 10;
inline constexpr std::size_t max_configured_stores = 16;
inline constexpr std::size_t max_configured_bundles = 64;
/// Further problems of one config file are not listed.
inline constexpr std::size_t max_config_problems = 20;

/// A value, and its source for people: default_source, "--shared", "$KILN_SHARED" or "/etc/xdg/kiln/kiln.conf:3".
template <class T>
struct Setting {
  T value = {};
  std::string source = default_source;

  friend bool operator==(const Setting&, const Setting&) = default;
};

/// Valid URLs, fastest store first. They may contain passwords: print StoreUrl::display(). The source of the whole
/// list is that of its first item, or of the text that empties the list.
using StoreList = Setting<std::vector<Setting<std::string>>>;

/// The first bundle is searched first.
using BundleList = Setting<std::vector<Setting<Bundle>>>;

/// What one config file sets, or the command line, or the environment.
struct ParsedConfig {
  std::optional<StoreList> stores = {};
  std::optional<Setting<bool>> share_facts = {};
  std::optional<Setting<std::chrono::milliseconds>> upload_limit = {};
  std::optional<Setting<std::filesystem::path>> signing_key = {};
  std::optional<BundleList> bundles = {};
  std::optional<Setting<CompilePolicy>> compile = {};
  /// One sentence for each part that is ignored, with its source and without secrets.
  std::vector<std::string> problems = {};
};

/// Reads the text of a config file; `file` is the first part of sources and problems. Never fails: lines that are
/// not valid are ignored. docs/sharing.md describes the format.
ParsedConfig parse_config(std::string_view text, const std::string& file = "kiln.conf");

/// A place of a config file.
struct ConfigFile {
  /// `ignored` files exist but cannot be used; one of Settings::problems says why.
  enum class State { absent, read, ignored };

  std::filesystem::path path;
  State state = State::absent;
};

/// The options of a command line that are settings too.
struct CommandLine {
  std::optional<std::string> directory = {};
  std::optional<std::vector<std::string>> stores = {};
};

/// The settings of caches that the application does not set in CacheOptions. A value.
struct Settings {
  /// Config files do not set it. Empty if there is no default: see kiln::default_directory().
  Setting<std::filesystem::path> directory = {};
  /// Config files do not set it. Empty if requests are not recorded.
  Setting<std::filesystem::path> record = {};
  StoreList stores = {};
  /// Whether shared entries contain facts: names, options, defines and the names of files (docs/privacy.md).
  Setting<bool> share_facts = {.value = true};
  /// How long flush() and the end of a cache wait for uploads.
  Setting<std::chrono::milliseconds> upload_limit = {.value = std::chrono::seconds(2)};
  /// The private key that signs; empty: all keys in the user's folder of keys; "none": no key.
  Setting<std::filesystem::path> signing_key = {};
  /// Without those that are embedded in the application.
  BundleList bundles = {};
  Setting<CompilePolicy> compile = {.value = CompilePolicy::always};
  /// The files that were looked for, in the order of their precedence.
  std::vector<ConfigFile> files = {};
  std::vector<std::string> problems = {};
};

/// The command line comes first, then the environment, the user's config file and those of the system. A list of
/// stores, or of bundles, replaces the lists of later sources. In a program with more rights than its caller,
/// environment and files are ignored. Reads the files with each call.
Settings read_settings(const CommandLine& command_line = {});

}  // namespace kiln::store
