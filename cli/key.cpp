#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "base/file.hpp"
#include "commands.hpp"
#include "inventory.hpp"
#include "quantity.hpp"
#include "store/settings.hpp"
#include "store/signatures.hpp"

namespace kiln::cli {
namespace {

using store::ConfigFolders;
using store::PublicKey;

/// A public key and all that the configuration says about it.
struct KnownKey {
  PublicKey key = {};
  bool trusted = false;
  bool revoked = false;
  /// Whether its private key signs the entries of this user.
  bool own = false;

  std::string_view state() const { return revoked ? "revoked" : trusted ? "trusted" : "not trusted"; }
};

struct KnownKeys {
  /// Sorted by name. If a file of public keys cannot be used, no key is trusted.
  std::vector<KnownKey> keys = {};
  std::vector<std::string> problems = {};

  KnownKey& operator[](const PublicKey& key) {
    const auto found = std::ranges::lower_bound(keys, key, {}, &KnownKey::key);
    if (found != keys.end() && found->key == key) return *found;
    return *keys.insert(found, {.key = key});
  }
};

std::filesystem::path user_folder(const ConfigFolders& folders) {
  if (folders.user) return *folders.user;
  throw Failure(
      Error(ErrorCode::io, "no folder for keys is known: set XDG_CONFIG_HOME or HOME to the path of a folder"));
}

KnownKeys known_keys(const Context& context, const ConfigFolders& folders) {
  KnownKeys known;
  std::vector<std::filesystem::path> all = folders.system;
  if (folders.user) all.push_back(*folders.user);
  std::vector<PublicKey> revoked;
  bool is_trust_known = true;
  for (const auto& folder : all)
    for (const char* name : {store::trusted_keys_name, store::revoked_keys_name}) {
      const auto keys = store::read_key_file(folder, name);
      if (!keys) {
        known.problems.push_back(keys.error().message() + "; no key is trusted until this is corrected");
        is_trust_known = false;
        continue;
      }
      const bool trusts = name == store::trusted_keys_name;
      for (const PublicKey& key : *keys) {
        known[key].trusted |= trusts;
        if (!trusts) revoked.push_back(key);
      }
    }
  const auto choice = store::read_settings(context.command_line()).signing_key.value.string();
  if (const auto own = store::signing_keys(choice, folders)) {
    for (const auto& key : *own) known[key.public_key()].own = true;
  } else {
    known.problems.push_back(own.error().message());
  }
  // A revoked key is revoked under every name.
  for (KnownKey& key : known.keys) {
    key.revoked = std::ranges::find(revoked, key.key.bytes, &PublicKey::bytes) != revoked.end();
    key.trusted = key.trusted && !key.revoked && is_trust_known;
  }
  return known;
}

std::string base64_part(const PublicKey& key) { return store::to_line(key).substr(key.name.size() + 1); }

Json lines_json(std::span<const PublicKey> keys) {
  auto lines = Json::array();
  for (const PublicKey& key : keys) lines.push_back(store::to_line(key));
  return lines;
}

void new_key(Context& context, const std::string& name) {
  if (!store::is_key_name(name))
    throw UsageError("the name of a key must have 1 to 64 letters, digits, '.', '_', '@' and '-'");
  const auto folder = user_folder(store::config_folders());
  const auto file = folder / store::private_keys_name / (name + store::private_key_suffix);
  // Fails before the key is made if its public half could not be added.
  store::read_key_file(folder, store::trusted_keys_name).value();
  const auto key = store::SigningKey::generate(name).value();
  key.write(file).value();
  store::add_keys(folder, store::trusted_keys_name, std::span(&key.public_key(), 1)).value();
  const std::string line = store::to_line(key.public_key());
  if (context.json)
    return print_json({{"name", name},
                       {"public_key", line},
                       {"private_key_file", file.string()},
                       {"trusted_in", (folder / store::trusted_keys_name).string()}});
  print(line + "\n");
  remark(context,
         fmt::format("Wrote the private key to {}. This user trusts it now; to trust it on another machine, "
                     "run there: kiln key trust {}",
                     file.string(), line));
}

void list_keys(Context& context) {
  const auto known = known_keys(context, store::config_folders());
  report_problems(context, known.problems);
  if (context.json) {
    auto list = Json::array();
    for (const KnownKey& key : known.keys)
      list.push_back({{"name", key.key.name},
                      {"public_key", store::to_line(key.key)},
                      {"trusted", key.trusted},
                      {"revoked", key.revoked},
                      {"own", key.own}});
    return print_json(list);
  }
  if (known.keys.empty()) return remark(context, "No keys are known yet. To make one, run: kiln key new NAME");
  using enum Table::Align;
  Table table({{"NAME", left, Table::Overflow::cut}, {"PUBLIC KEY"}, {"STATE"}, {"OWN"}});
  for (const KnownKey& key : known.keys)
    table.add({key.key.name,
               base64_part(key.key),
               {std::string(key.state()), key.revoked   ? Ink::bad
                                          : key.trusted ? Ink::good
                                                        : Ink::plain},
               key.own ? "yes" : "-"});
  print(table.format(context.terminal()));
}

/// Adds keys to a file of the user's folder, and prints those that it did not hold.
void add_and_print(const Context& context, const std::filesystem::path& folder, const std::string& name,
                   std::span<const PublicKey> keys) {
  const auto before = store::read_key_file(folder, name).value();
  const auto count = store::add_keys(folder, name, keys).value();
  std::vector<PublicKey> added;
  for (const PublicKey& key : keys)
    if (std::ranges::find(before, key) == before.end() && std::ranges::find(added, key) == added.end())
      added.push_back(key);
  const std::string file = (folder / name).string();
  if (context.json)
    return print_json(
        {{"file", file}, {"keys", lines_json(keys)}, {"added", count}, {"added_keys", lines_json(added)}});
  print(fmt::format("added {} to {}{}\n", human_count(count, "key"), printable(file), added.empty() ? "" : ":"));
  for (const PublicKey& key : added) print("  " + store::to_line(key) + "\n");
}

/// The keys of NAME:BASE64 or of a file.
std::vector<PublicKey> keys_in(const std::string& argument) {
  // First, so that a file of this name cannot take the place of the key.
  if (auto keys = store::parse_keys(argument); keys && !keys->empty()) return std::move(*keys);
  std::error_code ignored;
  if (std::filesystem::exists(argument, ignored)) return store::read_public_keys(argument).value();
  // Not quoted: it may be a private key that was mistyped.
  throw UsageError("the argument is neither NAME:BASE64, with 32 bytes in base64, nor a file");
}

void trust_keys(Context& context, const std::string& argument) {
  const auto folders = store::config_folders();
  const auto folder = user_folder(folders);
  const auto keys = keys_in(argument);
  auto known = known_keys(context, folders);
  for (const PublicKey& key : keys)
    if (known[key].revoked || std::ranges::any_of(known.keys, [&key](const KnownKey& other) {
          return other.revoked && other.key.bytes == key.bytes;
        }))
      throw Failure(Error(ErrorCode::untrusted,
                          fmt::format("the key {} is revoked; to trust it again, first remove its line from {}",
                                      key.name, store::revoked_keys_name)));
  add_and_print(context, folder, store::trusted_keys_name, keys);
}

void revoke_keys(Context& context, const std::string& argument) {
  const auto folders = store::config_folders();
  const auto folder = user_folder(folders);
  const auto known = known_keys(context, folders);
  std::vector<PublicKey> keys;
  if (store::is_key_name(argument)) {
    for (const KnownKey& key : known.keys)
      if (key.key.name == argument) keys.push_back(key.key);
    // A file that cannot be read may have more keys of this name.
    report_problems(context, known.problems);
    if (keys.empty())
      throw Failure(Error(ErrorCode::invalid_request,
                          fmt::format("no key has the name {}; `kiln key ls` lists all keys", argument)));
  } else if (auto parsed = store::parse_keys(argument); parsed && parsed->size() == 1) {
    keys = std::move(*parsed);
  } else {
    throw UsageError("the argument is neither the name of a key nor NAME:BASE64, with 32 bytes in base64");
  }
  add_and_print(context, folder, store::revoked_keys_name, keys);
  const bool own = std::ranges::any_of(known.keys, [&keys](const KnownKey& key) {
    return key.own && std::ranges::find(keys, key.key.bytes, &PublicKey::bytes) != keys.end();
  });
  if (own && !context.json)
    remark(context, fmt::format("The private key still signs: remove its file from {} and make another key.",
                                (folder / store::private_keys_name).string()));
}

}  // namespace

void add_key(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("key", "Make, list, trust and revoke the keys that sign shared programs");
  command->require_subcommand(1);
  auto argument = std::make_shared<std::string>();
  auto* made = command->add_subcommand("new", "Make a key that signs the programs of this user, and trust it");
  made->add_option("NAME", *argument, "The name of the key")->required()->type_name("");
  made->callback([&context, argument] { new_key(context, *argument); });
  auto* ls = command->add_subcommand("ls", "List the trusted, revoked and own keys");
  ls->callback([&context] { list_keys(context); });
  auto* trust = command->add_subcommand("trust", "Trust a public key, or all public keys of a file");
  trust->add_option("KEY", *argument, "NAME:BASE64, or a file with one such line per key")
      ->required()
      ->type_name("");
  trust->callback([&context, argument] { trust_keys(context, *argument); });
  auto* revoke = command->add_subcommand("revoke", "Never trust a key again, whichever file trusts it");
  revoke->add_option("KEY", *argument, "The name of a key, or NAME:BASE64")->required()->type_name("");
  revoke->callback([&context, argument] { revoke_keys(context, *argument); });
  for (auto* part : {made, ls, trust, revoke}) {
    part->group("Commands");
    context.add_common_options(*part);
  }
  command->footer(
      "Programs in shared stores are signed, and a cache uses those that a trusted key signed. Private keys are\n"
      "in ~/.config/kiln/keys, and public keys in the files trusted-keys and revoked-keys of ~/.config/kiln and\n"
      "/etc/xdg/kiln.\n\n"
      "Examples:\n"
      "  kiln key new build-farm\n"
      "  kiln key trust team-keys.txt\n"
      "  kiln key revoke build-farm");
}

}  // namespace kiln::cli
