#include "store/settings.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>

#include <fmt/format.h>

#include "base/file.hpp"
#include "base/process.hpp"
#include "base/text.hpp"
#include "store/config_folders.hpp"
#include "store/store_url.hpp"

namespace kiln::store {
namespace {

constexpr std::string_view config_file_name = "kiln.conf";

std::optional<bool> parse_switch(std::string_view text) {
  if (text == "1" || text == "true" || text == "yes") return true;
  if (text == "0" || text == "false" || text == "no") return false;
  return std::nullopt;
}

/// As in "0s", "500ms" and "1.5s", up to an hour.
std::optional<std::chrono::milliseconds> parse_upload_limit(std::string_view text) {
  constexpr double most = 3'600'000;
  const double unit = text.ends_with("ms") ? 1 : 1000;
  if (!text.ends_with('s')) return std::nullopt;
  text.remove_suffix(unit == 1 ? 2 : 1);
  double value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (std::signbit(value) || !(value * unit <= most)) return std::nullopt;
  return std::chrono::milliseconds(static_cast<std::int64_t>(value * unit));
}

/// Fills a ParsedConfig. A place is a source with more details, for messages. Texts of the user are never quoted,
/// because each may be a password.
class ConfigReader {
 public:
  void complain(const std::string& place, std::string_view what) {
    if (config_.problems.size() < max_config_problems)
      config_.problems.push_back(fmt::format("{}: {}", place, what));
    else if (config_.problems.size() == max_config_problems)
      config_.problems.push_back(fmt::format("{}: there are further problems, which are not listed", place));
  }

  void set_share_facts(std::string_view text, const std::string& source) {
    set(config_.share_facts, parse_switch(text), source, "share_facts is not 1 or 0; the value is ignored");
  }

  void set_upload_limit(std::string_view text, const std::string& source) {
    set(config_.upload_limit, parse_upload_limit(text), source,
        "upload_limit is not a time up to 3600s, such as 500ms or 2s; the value is ignored");
  }

  void set_signing_key(std::string_view text, const std::string& source) {
    set(config_.signing_key, std::optional(std::filesystem::path(text)), source, "");
  }

  /// The list exists from now on, even if no valid URL follows: a wrong URL must not bring back another store.
  void begin_stores(const std::string& source) {
    if (!config_.stores) config_.stores = StoreList{{}, source};
  }

  void add_store(std::string_view text, const std::string& source, const std::string& place) {
    begin_stores(source);
    if (text == no_stores) return;
    auto& stores = config_.stores->value;
    if (const auto url = parse_store_url(text); !url)
      complain(place, url.error().message() + "; this store is not used");
    else if (stores.size() == max_configured_stores)
      complain(place, fmt::format("this store is not used, because there are {} before it", max_configured_stores));
    else
      stores.push_back({std::string(text), source});
  }

  /// As begin_stores().
  void begin_bundles(const std::string& source) {
    if (!config_.bundles) config_.bundles = BundleList{{}, source};
  }

  void add_bundle(std::string_view text, const std::string& source, const std::string& place) {
    begin_bundles(source);
    if (text == no_bundles) return;
    Bundle bundle;
    for (const auto& [ending, verify] :
         {std::pair("?verify=required", Verification::required), std::pair("?verify=off", Verification::off)})
      if (text.ends_with(ending)) {
        bundle.verify = verify;
        text.remove_suffix(std::string_view(ending).size());
      }
    bundle.path = text;
    auto& bundles = config_.bundles->value;
    if (text.empty())
      complain(place, "the path of a bundle is missing");
    else if (bundles.size() == max_configured_bundles)
      complain(place,
               fmt::format("this bundle is not used, because there are {} before it", max_configured_bundles));
    else
      bundles.push_back({std::move(bundle), source});
  }

  void set_compile(std::string_view text, const std::string& source) {
    set(config_.compile, compile_policy_of(text), source,
        "compile is not always, never or background; the value is ignored");
  }

  ParsedConfig finish() { return std::move(config_); }

 private:
  template <class T>
  void set(std::optional<Setting<T>>& setting, std::optional<T> value, const std::string& source,
           std::string_view problem) {
    if (!value)
      complain(source, problem);
    else if (setting)
      complain(source, "the setting was set before, at " + setting->source + "; this line is ignored");
    else
      setting = Setting<T>{*std::move(value), source};
  }

  ParsedConfig config_;
};

void read_config_line(std::string_view line, const std::string& place, ConfigReader& reader) {
  if (line.size() > max_config_line_bytes)
    return reader.complain(place,
                           fmt::format("the line has more than {} bytes; it is ignored", max_config_line_bytes));
  line = base::trimmed(line);
  if (line.empty() || line.starts_with('#')) return;
  const std::size_t equals = line.find('=');
  if (equals == std::string_view::npos)
    return reader.complain(place, "the line has no '='; write it as name = value");
  const std::string_view name = base::trimmed(line.substr(0, equals));
  const std::string_view value = base::trimmed(line.substr(equals + 1));
  constexpr std::array names = {"store", "bundle", "compile", "share_facts", "upload_limit", "signing_key"};
  if (std::ranges::find(names, name) == names.end())
    return reader.complain(
        place, fmt::format("there is no setting of this name; the settings are {}", fmt::join(names, ", ")));
  if (value.empty()) return reader.complain(place, "the setting has no value; the line is ignored");
  if (std::ranges::any_of(value, [](unsigned char c) { return c < ' ' || c == 0x7f; }))
    return reader.complain(place, "the value has control characters; the line is ignored");
  // The file applies to processes with any working folder.
  const bool is_path =
      (name == "signing_key" && value != no_signing_key) || (name == "bundle" && value != no_bundles);
  if (is_path && !value.starts_with('/'))
    return reader.complain(place,
                           "the setting needs an absolute path, and neither '~' nor variables are replaced; "
                           "the line is ignored");
  if (name == "share_facts") return reader.set_share_facts(value, place);
  if (name == "upload_limit") return reader.set_upload_limit(value, place);
  if (name == "signing_key") return reader.set_signing_key(value, place);
  if (name == "compile") return reader.set_compile(value, place);
  if (name == "bundle") return reader.add_bundle(value, place, place);
  reader.add_store(value, place, place);
}

/// The text of a config file; nothing if there is no file.
Result<std::optional<std::string>> read_config_text(const std::filesystem::path& path) {
  const base::FileSystem& system = base::FileSystem::system();
  const auto refused = [&path](std::string_view why) {
    return Error(ErrorCode::io, fmt::format("{} is ignored, because {}", path.string(), why));
  };
  struct stat status {};
  // First, because a folder without a config file need not be trusted.
  if (system.status(AT_FDCWD, path.c_str(), &status) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return std::optional<std::string>();
    return base::system_error("read", path);
  }
  const auto folder = base::Folder::open(path.parent_path(), false, system);
  if (!folder) return refused(folder.error().message());
  // Follows symbolic links, because managers of dotfiles and Kubernetes use them, but none of another user.
  const std::string name = path.filename();
  if (system.status(folder->descriptor(), name.c_str(), &status) != 0) return base::system_error("examine", path);
  if (const auto why = S_ISLNK(status.st_mode) ? base::why_not_trusted(status, path) : std::nullopt)
    return refused(*why);
  // O_NONBLOCK: a FIFO must not block.
  const base::FileHandle file(
      system.open(folder->descriptor(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0), system);
  if (!file && (errno == ENOENT || errno == ENOTDIR)) return std::optional<std::string>();
  if (!file) return base::system_error("read", path);
  if (system.status(file.get(), &status) != 0) return base::system_error("examine", path);
  if (!S_ISREG(status.st_mode)) return refused("it is not a regular file");
  if (const auto why = base::why_not_trusted(status, path)) return refused(*why);

  std::string text;
  std::array<char, 4096> buffer{};
  while (text.size() <= max_config_bytes) {
    const ssize_t got = system.read(file.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return base::system_error("read", path);
    if (got == 0) return std::optional(std::move(text));
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return refused(fmt::format("it has more than {} bytes", max_config_bytes));
}

struct ReadConfig {
  ConfigFile file;
  ParsedConfig config = {};
};

/// The config files in the order of their precedence.
std::vector<ReadConfig> read_config_files() {
  ConfigFolders folders = config_folders();
  std::vector<std::filesystem::path> paths;
  if (folders.user) paths.push_back(*folders.user / config_file_name);
  for (const auto& folder : folders.system) paths.push_back(folder / config_file_name);
  std::vector<ReadConfig> files;
  for (auto& path : paths) {
    ReadConfig read{{.path = std::move(path)}};
    const auto text = read_config_text(read.file.path);
    if (!text) {
      read.file.state = ConfigFile::State::ignored;
      read.config.problems.push_back(text.error().message());
    } else if (*text) {
      read.file.state = ConfigFile::State::read;
      read.config = parse_config(**text, read.file.path.string());
    }
    files.push_back(std::move(read));
  }
  return files;
}

/// An empty text if the variable is not set.
std::string_view text_of_variable(const char* name) {
  const char* value = base::environment(name);
  return value != nullptr ? value : "";
}

ParsedConfig read_variables() {
  ConfigReader reader;
  if (const auto text = text_of_variable("KILN_SHARE_FACTS"); !text.empty())
    reader.set_share_facts(text, "$KILN_SHARE_FACTS");
  if (const auto text = text_of_variable("KILN_SIGNING_KEY"); !text.empty())
    reader.set_signing_key(text, "$KILN_SIGNING_KEY");
  const std::string shared = "$KILN_SHARED";
  // An empty variable means that there are no stores.
  if (base::environment("KILN_SHARED") != nullptr) reader.begin_stores(shared);
  std::string_view text = text_of_variable("KILN_SHARED");
  for (int number = 1; !(text = base::trimmed(text)).empty(); ++number) {
    const std::string_view url = text.substr(0, text.find_first_of(base::blanks));
    text.remove_prefix(url.size());
    reader.add_store(url, shared, fmt::format("{}, URL {}", shared, number));
  }
  const std::string bundles = "$KILN_BUNDLES";
  if (base::environment("KILN_BUNDLES") != nullptr) reader.begin_bundles(bundles);
  text = text_of_variable("KILN_BUNDLES");
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view path = text.substr(0, text.find(':'));
    text.remove_prefix(std::min(path.size() + 1, text.size()));
    // As in $PATH, but an empty part is not the working folder.
    if (!path.empty()) reader.add_bundle(path, bundles, fmt::format("{}, path {}", bundles, number));
  }
  if (const auto policy = text_of_variable("KILN_COMPILE"); !policy.empty())
    reader.set_compile(policy, "$KILN_COMPILE");
  return reader.finish();
}

ParsedConfig read_options(const CommandLine& command_line) {
  ConfigReader reader;
  if (command_line.stores) {
    reader.begin_stores("--shared");
    for (const auto& url : *command_line.stores) reader.add_store(url, "--shared", "--shared");
  }
  return reader.finish();
}

/// The value of the first level that has one.
template <class T>
void take_first(Setting<T>& setting, std::vector<ParsedConfig>& levels,
                std::optional<Setting<T>> ParsedConfig::*member) {
  const auto level =
      std::ranges::find_if(levels, [member](const auto& config) { return (config.*member).has_value(); });
  if (level != levels.end()) setting = *std::move((*level).*member);
}

Setting<std::filesystem::path> directory_of(const CommandLine& command_line) {
  if (command_line.directory) return {*command_line.directory, "--dir"};
  Setting<std::filesystem::path> directory{.value = base::default_directory()};
  if (!text_of_variable("KILN_CACHE_DIR").empty())
    directory.source = "$KILN_CACHE_DIR";
  else if (!text_of_variable("XDG_CACHE_HOME").empty())
    directory.source = "$XDG_CACHE_HOME";
  return directory;
}

Setting<std::filesystem::path> record_setting() {
  const auto path = text_of_variable("KILN_RECORD");
  if (path.empty()) return {};
  return {.value = path, .source = "$KILN_RECORD"};
}

}  // namespace

ParsedConfig parse_config(std::string_view text, const std::string& file) {
  ConfigReader reader;
  if (text.size() > max_config_bytes) {
    reader.complain(file, fmt::format("it is ignored, because it has more than {} bytes", max_config_bytes));
    return reader.finish();
  }
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    read_config_line(line, fmt::format("{}:{}", file, number), reader);
  }
  return reader.finish();
}

Settings read_settings(const CommandLine& command_line) {
  std::vector<ParsedConfig> levels = {read_options(command_line), read_variables()};
  Settings settings;
  for (auto& read : read_config_files()) {
    settings.files.push_back(std::move(read.file));
    levels.push_back(std::move(read.config));
  }
  settings.directory = directory_of(command_line);
  settings.record = record_setting();
  take_first(settings.stores, levels, &ParsedConfig::stores);
  take_first(settings.share_facts, levels, &ParsedConfig::share_facts);
  take_first(settings.upload_limit, levels, &ParsedConfig::upload_limit);
  take_first(settings.signing_key, levels, &ParsedConfig::signing_key);
  take_first(settings.bundles, levels, &ParsedConfig::bundles);
  take_first(settings.compile, levels, &ParsedConfig::compile);
  for (auto& level : levels) std::ranges::move(level.problems, std::back_inserter(settings.problems));
  return settings;
}

}  // namespace kiln::store
