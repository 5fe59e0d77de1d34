#include <fmt/format.h>

#include "commands.hpp"
#include "store/config_folders.hpp"
#include "store/file_store.hpp"
#include "store/settings.hpp"
#include "store/signatures.hpp"
#include "store/store_url.hpp"

namespace kiln::cli {
namespace {

using store::ConfigFile;
using store::Settings;
using store::StoreUrl;

std::string mode_of(const StoreUrl& url) {
  switch (url.mode) {
    case StoreMode::read_write: return "rw";
    case StoreMode::read_only: return "ro";
    case StoreMode::write_only: return "wo";
  }
  return "unknown";
}

/// What the cache does with entries of this store. Nothing for a folder that does not exist: the first use creates
/// it, and its permissions decide then.
std::optional<Verification> verification_of(const StoreUrl& url) {
  if (url.verify) return url.verify;
  if (url.is_network()) return Verification::required;
  std::error_code ignored;
  if (std::filesystem::status(url.path, ignored).type() == std::filesystem::file_type::not_found)
    return std::nullopt;
  return store::is_trusted_folder(url.path) ? Verification::off : Verification::required;
}

std::string_view name_of(Verification verification) {
  return verification == Verification::off ? "off" : "required";
}

std::string state_of(const ConfigFile& file) {
  switch (file.state) {
    case ConfigFile::State::absent: return "absent";
    case ConfigFile::State::read: return "read";
    case ConfigFile::State::ignored: return "ignored";
  }
  return "unknown";
}

/// As it is written in kiln.conf.
std::string config_text(std::chrono::milliseconds time) {
  return time.count() % 1000 == 0 ? fmt::format("{}s", time.count() / 1000) : fmt::format("{}ms", time.count());
}

/// "none" if nothing is signed.
std::string signing_key_of(const Settings& settings) {
  if (!settings.signing_key.value.empty()) return settings.signing_key.value.string();
  const auto folders = store::config_folders();
  if (!folders.user) return std::string(store::no_signing_key);
  return *folders.user / store::private_keys_name / (std::string("*") + store::private_key_suffix);
}

template <class T>
Json setting_json(Json value, const store::Setting<T>& setting) {
  return {{"value", std::move(value)}, {"source", setting.source}};
}

Json settings_json(const Settings& settings) {
  Json object;
  object["directory"] = setting_json(or_null(settings.directory.value.string()), settings.directory);
  auto stores = Json::array();
  for (const auto& configured : settings.stores.value) {
    const StoreUrl url = store::parse_store_url(configured.value).value();
    const auto verification = verification_of(url);
    stores.push_back({{"url", url.display()},
                      {"mode", mode_of(url)},
                      {"timeout_ms", url.timeout.count()},
                      {"verify", verification ? Json(name_of(*verification)) : Json(nullptr)},
                      {"source", configured.source}});
  }
  object["record"] = setting_json(or_null(settings.record.value.string()), settings.record);
  object["stores"] = setting_json(std::move(stores), settings.stores);
  auto bundles = Json::array();
  for (const auto& configured : settings.bundles.value)
    bundles.push_back({{"path", configured.value.path.string()},
                       {"verify", name_of(configured.value.verify)},
                       {"source", configured.source}});
  object["bundles"] = setting_json(std::move(bundles), settings.bundles);
  object["compile"] = setting_json(to_string(settings.compile.value), settings.compile);
  object["share_facts"] = setting_json(settings.share_facts.value, settings.share_facts);
  object["upload_limit_ms"] = setting_json(settings.upload_limit.value.count(), settings.upload_limit);
  object["signing_key"] = setting_json(signing_key_of(settings), settings.signing_key);
  auto& files = object["files"] = Json::array();
  for (const auto& file : settings.files)
    files.push_back({{"path", file.path.string()}, {"state", state_of(file)}});
  object["problems"] = settings.problems;
  return object;
}

std::string settings_table(const Settings& settings, const Terminal& terminal) {
  using enum Table::Overflow;
  constexpr auto left = Table::Align::left;
  Table table({{"SETTING"}, {"VALUE", left, wrap_words}, {"SOURCE", left, wrap_words}});
  const std::string directory = settings.directory.value.string();
  table.add({"directory", directory.empty() ? "none" : directory, settings.directory.source});
  for (const auto& configured : settings.stores.value) {
    const StoreUrl url = store::parse_store_url(configured.value).value();
    const auto verification = verification_of(url);
    table.add({"store",
               fmt::format("{} mode={} timeout={} verify={}", url.display(), mode_of(url), config_text(url.timeout),
                           verification ? name_of(*verification) : "required unless the new folder is private"),
               configured.source});
  }
  if (settings.stores.value.empty()) table.add({"store", std::string(store::no_stores), settings.stores.source});
  for (const auto& configured : settings.bundles.value)
    table.add({"bundle",
               fmt::format("{} verify={}", configured.value.path.string(), name_of(configured.value.verify)),
               configured.source});
  if (settings.bundles.value.empty())
    table.add({"bundle", std::string(store::no_bundles), settings.bundles.source});
  table.add({"compile", std::string(to_string(settings.compile.value)), settings.compile.source});
  table.add({"share_facts", settings.share_facts.value ? "1" : "0", settings.share_facts.source});
  table.add({"upload_limit", config_text(settings.upload_limit.value), settings.upload_limit.source});
  table.add({"signing_key", signing_key_of(settings), settings.signing_key.source});
  const std::string record = settings.record.value.string();
  table.add({"record", record.empty() ? "none" : record, settings.record.source});
  return table.format(terminal);
}

std::string files_table(const Settings& settings, const Terminal& terminal) {
  Table table({{"CONFIG FILE", Table::Align::left, Table::Overflow::wrap_words}, {"STATE"}});
  for (const auto& file : settings.files) {
    const Ink ink = file.state == ConfigFile::State::ignored ? Ink::warning : Ink::plain;
    table.add({file.path.string(), {state_of(file), ink}});
  }
  return table.format(terminal);
}

void print_settings(const Context& context) {
  // A URL of the command line is wrong for this command too.
  static_cast<void>(context.stores());
  const Settings settings = store::read_settings(context.command_line());
  if (context.json) return print_json(settings_json(settings));
  const auto terminal = context.terminal();
  print(settings_table(settings, terminal));
  if (!settings.files.empty()) print("\n" + files_table(settings, terminal));
  for (const auto& problem : settings.problems) complain("warning: " + problem);
}

}  // namespace

void add_config(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("config", "Show the effective settings and where each comes from");
  command->footer(
      "The command line has precedence over the environment, the environment over the user's kiln.conf, and that\n"
      "over those of the system. Settings that an application makes in its code come before all of them, and are\n"
      "not shown. URLs are shown without user and password. verify says whether entries need a signature by a\n"
      "trusted key. Warnings name what is ignored, with file and line.\n\n"
      "Examples:\n"
      "  kiln config\n"
      "  kiln config --shared redis://cache.example:6379/0\n"
      "  kiln config --json | jq -r '.stores.value[].url'");
  command->callback([&context] { print_settings(context); });
}

}  // namespace kiln::cli
