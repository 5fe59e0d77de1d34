#include <array>
#include <cstring>
#include <fstream>
#include <map>

#include <fcntl.h>
#include <sys/stat.h>

#include <fmt/format.h>

#include "base/file.hpp"
#include "base/try.hpp"
#include "commands.hpp"
#include "inventory.hpp"
#include "quantity.hpp"
#include "sign.hpp"
#include "store/bookkeeping.hpp"
#include "store/directory.hpp"
#include "store/settings.hpp"

namespace kiln::cli {
namespace {

struct SignOptions {
  std::string key_file = {};
  std::vector<std::string> paths = {};
};

/// The names of the entry files in each folder.
using FilesToSign = std::map<std::filesystem::path, std::vector<std::string>>;

enum class SignResult { done, signed_before, too_old, gone };

struct SignReport {
  std::vector<std::string> keys = {};
  std::size_t done = 0;
  std::size_t signed_before = 0;
  /// Entries of format 2.
  std::size_t too_old = 0;
  std::vector<std::string> problems = {};

  void count(SignResult result) {
    if (result == SignResult::done) ++done;
    if (result == SignResult::signed_before) ++signed_before;
    if (result == SignResult::too_old) ++too_old;
  }
};

/// Whether a file begins as entries do.
bool begins_as_entry(const std::filesystem::path& path) {
  constexpr std::string_view magic = "KILNBIN\n";
  std::array<char, magic.size()> begin{};
  std::ifstream file(path, std::ios::binary);
  return file.read(begin.data(), begin.size()) && std::string_view(begin.data(), begin.size()) == magic;
}

void add_files_below(const std::filesystem::path& root, FilesToSign& files) {
  for (const auto& item : std::filesystem::recursive_directory_iterator(root)) {
    const auto& path = item.path();
    if (item.symlink_status().type() == std::filesystem::file_type::regular && begins_as_entry(path))
      files[path.parent_path()].push_back(path.filename());
  }
}

FilesToSign files_to_sign(const Context& context, const std::vector<std::string>& paths) {
  FilesToSign files;
  if (paths.empty())
    for (const auto& listing : list_folders(context.directory())) {
      if (!listing.problem.empty()) throw Failure(Error(ErrorCode::io, listing.problem));
      for (const auto& file : listing.files) files[listing.folder.path].push_back(file.name);
    }
  for (const std::filesystem::path path : paths) {
    std::error_code error;
    const auto type = std::filesystem::status(path, error).type();
    if (type == std::filesystem::file_type::directory) {
      add_files_below(path, files);
    } else if (type == std::filesystem::file_type::regular) {
      const auto parent = path.parent_path();
      files[parent.empty() ? "." : parent].push_back(path.filename());
    } else {
      throw Failure(Error(ErrorCode::io, fmt::format("{} is neither a file nor a folder", path.string())));
    }
  }
  return files;
}

/// Gives a file that was replaced its permissions and its time of last use back. Failures only change when the
/// entry is pruned and who can read it.
void restore_status(const base::Folder& folder, const std::string& name, const struct stat& before) {
  const timespec times[2] = {before.st_atim, before.st_mtim};
  static_cast<void>(::fchmodat(folder.descriptor(), name.c_str(), before.st_mode & 07777U, 0));
  static_cast<void>(::utimensat(folder.descriptor(), name.c_str(), times, 0));
}

/// The .meta file of an entry of a cache directory holds the entry's size.
Result<void> rewrite_meta(const base::Folder& folder, const std::string& name, std::span<const std::byte> sealed) {
  const std::string meta = store::meta_file_name(name);
  if (!folder.status(meta)) return {};
  const auto opened = KILN_TRY(store::open_entry(sealed));
  const std::string text = store::meta_of(opened.label, opened.entry, sealed.size());
  return folder.replace(meta, std::as_bytes(std::span(text)));
}

Result<SignResult> sign_file(const base::Folder& folder, const std::string& name,
                             std::span<const store::SigningKey> keys) {
  constexpr std::chrono::seconds lock_patience{2};
  const auto path = folder.path() / name;
  const auto key = store::key_of_file(name);
  base::FileHandle lock_file;
  std::optional<base::FileLock> lock;
  if (key) {
    // Other processes replace and remove entries of a cache directory under this lock.
    lock_file = KILN_TRY(folder.open_lock_file(store::lock_name));
    lock = base::FileLock::acquire(lock_file, key->digest.word(0), lock_patience);
    if (!lock && base::FileLock::is_held(lock_file, key->digest.word(0)).value_or(false))
      return Error(ErrorCode::timed_out, fmt::format("{} is being replaced by another process", path.string()));
  }
  const auto before = folder.status(name);
  const auto file = KILN_TRY(folder.read(name, store::max_entry_bytes));
  if (!before || !file) return SignResult::gone;
  if ((before->st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return Error(ErrorCode::io,
                 fmt::format("other users can write to {}, so it is not signed; compile it again", path.string()));
  const auto examined = store::examine_entry(file->bytes);
  if (!examined)
    return Error(examined.error().code(), fmt::format("{}: {}", path.string(), examined.error().message()));
  if (examined->version == 2) return SignResult::too_old;
  bool is_complete = true;
  for (const auto& each : keys)
    is_complete = is_complete && KILN_TRY(store::is_signed_by(*examined, each.public_key()));
  if (is_complete) return SignResult::signed_before;
  const auto sealed = KILN_TRY(store::sign_entry(file->bytes, keys));
  KILN_TRY(folder.replace(name, sealed));
  restore_status(folder, name, *before);
  if (key) KILN_TRY(rewrite_meta(folder, name, sealed));
  return SignResult::done;
}

/// Corrects the size of a device folder's programs in usage.json.
Result<void> recount(const base::Folder& folder) {
  const auto usage = KILN_TRY(store::count_usage(folder));
  return store::write_usage(folder, usage);
}

SignReport sign_all(const FilesToSign& files, std::span<const store::SigningKey> keys, ProgressBar& progress) {
  SignReport report;
  for (const auto& key : keys) report.keys.push_back(key.name());
  std::size_t total = 0;
  for (const auto& [path, names] : files) total += names.size();
  std::size_t examined = 0;
  for (const auto& [path, names] : files) {
    const auto folder = base::Folder::open(path, false);
    if (!folder) {
      report.problems.push_back(folder.error().message());
      continue;
    }
    bool is_recounted = true;
    for (const std::string& name : names) {
      progress.update(++examined, total, name);
      const auto result = sign_file(*folder, name, keys);
      if (!result) {
        report.problems.push_back(result.error().message());
        continue;
      }
      report.count(*result);
      if (*result == SignResult::done && store::key_of_file(name)) is_recounted = false;
    }
    if (is_recounted) continue;
    if (const auto counted = recount(*folder); !counted) report.problems.push_back(counted.error().message());
  }
  return report;
}

void sign(Context& context, const SignOptions& options) {
  const auto keys = chosen_keys(context, options.key_file);
  const auto files = files_to_sign(context, options.paths);
  const auto report = [&] {
    ProgressBar progress(context.terminal(), "Signing");
    return sign_all(files, keys, progress);
  }();
  report_problems(context, report.problems);
  if (context.json)
    return print_json({{"keys", report.keys},
                       {"signed", report.done},
                       {"signed_before", report.signed_before},
                       {"too_old", report.too_old},
                       {"failed", report.problems.size()}});
  print(fmt::format("signed {} with {}, {} signed before\n", human_count(report.done, "entry"),
                    human_count(keys.size(), "key"), report.signed_before));
  if (report.too_old > 0)
    remark(context, fmt::format("{} of Kiln 0.1 cannot be signed.", human_count(report.too_old, "entry")));
}

}  // namespace

std::vector<store::SigningKey> chosen_keys(const Context& context, const std::string& key_file) {
  const auto settings = store::read_settings(context.command_line());
  const std::string& choice = key_file.empty() ? settings.signing_key.value.native() : key_file;
  auto keys = store::signing_keys(choice, store::config_folders()).value();
  if (keys.empty())
    throw Failure(Error(ErrorCode::io, "there is no private key; make one with `kiln key new`, or give --key"));
  return keys;
}

void add_sign(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("sign", "Sign stored programs, so that caches that trust the key use them");
  auto options = std::make_shared<SignOptions>();
  command->add_option("--key", options->key_file, "Sign with the private key in this file [all own keys]")
      ->type_name("FILE");
  command
      ->add_option("PATH", options->paths,
                   "Entry files, or folders of them that only this user can write to [the cache directory]")
      ->type_name("");
  command->footer(
      "A signature says that you trust the program: sign only entries that you compiled. Entries that the key\n"
      "has signed before are left as they are, and signatures of other keys are kept. Files and folders that\n"
      "other users can write to are not signed.\n\n"
      "Exits with 1 if an entry cannot be signed.\n\n"
      "Examples:\n"
      "  kiln sign\n"
      "  kiln sign --key ci.key ./shader_cache\n"
      "  kiln verify --signatures");
  command->callback([&context, options] { sign(context, *options); });
}

}  // namespace kiln::cli
