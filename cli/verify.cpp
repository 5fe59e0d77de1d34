#include <algorithm>
#include <atomic>
#include <mutex>

#include <fmt/format.h>

#include "base/file.hpp"
#include "base/try.hpp"
#include "commands.hpp"
#include "inventory.hpp"
#include "quantity.hpp"
#include "store/bookkeeping.hpp"
#include "store/directory.hpp"
#include "store/json_file.hpp"
#include "store/signatures.hpp"

namespace kiln::cli {
namespace {

/// How long to wait for a process that replaces a damaged entry.
constexpr std::chrono::seconds lock_patience{2};

struct VerifyOptions {
  bool repair = false;
  bool signatures = false;
};

/// A finding. Only damage makes verify fail: a cache does not need the other files.
struct Finding {
  enum class Kind { damage, meta, manifest, leftover };
  Kind kind;
  /// Relative to the cache directory.
  std::string file;
  std::string problem;
  bool repaired = false;
};

/// What --signatures says about an entry that is not damaged.
struct SignatureFinding {
  enum class Kind { trusted, none, untrusted };
  Kind kind;
  /// Relative to the cache directory.
  std::string file;
  /// The signer, if the signature is trusted.
  std::string signer;
  /// Why it is not trusted.
  std::string problem;
  bool removed = false;
};

struct Report {
  std::size_t entries = 0;
  std::uint64_t bytes = 0;
  std::vector<Finding> findings = {};
  /// Empty without --signatures.
  std::vector<SignatureFinding> signatures = {};
  /// Files that could not be read or repaired.
  std::vector<std::string> problems = {};

  std::size_t count(Finding::Kind kind) const {
    return static_cast<std::size_t>(
        std::count_if(findings.begin(), findings.end(), [kind](const Finding& f) { return f.kind == kind; }));
  }
  std::size_t count(SignatureFinding::Kind kind) const {
    return static_cast<std::size_t>(std::ranges::count(signatures, kind, &SignatureFinding::kind));
  }
  std::size_t removed_as_untrusted() const {
    return static_cast<std::size_t>(std::ranges::count(signatures, true, &SignatureFinding::removed));
  }
  bool sound() const {
    return problems.empty() &&
           count(SignatureFinding::Kind::trusted) + removed_as_untrusted() == signatures.size() &&
           std::none_of(findings.begin(), findings.end(),
                        [](const Finding& f) { return f.kind == Finding::Kind::damage && !f.repaired; });
  }
};

/// Checks a cache directory. Other processes may use it meanwhile.
class Verifier {
 public:
  /// Verifies signatures if there is a trust list.
  Verifier(std::filesystem::path root, bool repair, std::optional<store::TrustList> trust, ProgressBar& progress)
      : root_(std::move(root)), repair_(repair), trust_(std::move(trust)), progress_(progress) {}

  Report run() {
    auto listings = list_folders(root_);
    for (const auto& listing : listings) report_.entries += listing.files.size();
    for (const auto& listing : listings) {
      report_.bytes += listing.bytes();
      check_folder(listing);
    }
    if (std::filesystem::exists(root_))
      if (const auto folder = open(root_)) check_leftovers(*folder, "");
    std::stable_sort(report_.findings.begin(), report_.findings.end(), [](const Finding& a, const Finding& b) {
      return std::tie(a.kind, a.file) < std::tie(b.kind, b.file);
    });
    std::ranges::sort(report_.signatures, {}, [](const SignatureFinding& f) { return std::tie(f.kind, f.file); });
    return std::move(report_);
  }

 private:
  std::optional<base::Folder> open(const std::filesystem::path& path) {
    auto folder = base::Folder::open(path, false);
    if (folder) return std::move(*folder);
    report_.problems.push_back(folder.error().message());
    return std::nullopt;
  }

  void check_folder(const FolderListing& listing) {
    const auto folder = open(listing.folder.path);
    if (!folder) return;
    for_each_parallel(listing.files.size(), [&](std::size_t i) {
      check_entry(*folder, listing.files[i]);
      const std::lock_guard lock(mutex_);
      progress_.update(++checked_, report_.entries, listing.files[i].key.name);
    });
    check_metas_without_entry(*folder, listing);
    check_leftovers(*folder, listing.folder.path.filename().string() + "/");
    check_manifest(*folder, listing.folder);
    if (repair_) correct_counts(*folder);
  }

  void correct_counts(const base::Folder& folder) {
    if (const auto usage = store::count_usage(folder); done(usage)) done(store::write_usage(folder, *usage));
  }

  void check_entry(const base::Folder& folder, const store::StoredFile& file) {
    const std::string meta = store::meta_file_name(file.name);
    const auto opened = store::read_entry(folder, file.name);
    if (!opened) {
      // Another process may have removed it after it was listed.
      if (!folder.status(file.name)) return;
      // An entry that cannot be read may be sound: that is a problem, not damage.
      if (opened.error().code() != ErrorCode::damaged) return static_cast<void>(done(opened));
      bool removed = false;
      if (repair_) {
        const auto removal = store::remove_damaged(folder, file, lock_patience);
        removed = done(removal);
        // Another process replaced or removed it meanwhile.
        if (removed && *removal != store::Removal::removed) return;
      }
      return found({Finding::Kind::damage, relative(folder, file.name), opened.error().message(), removed});
    }
    if (trust_ && check_signatures(folder, file)) return;
    // Entries of format 2 have no target and a different .meta file.
    if (opened->label.target == Digest{}) return;
    const auto status = folder.status(file.name);
    const auto bytes = status ? static_cast<std::uint64_t>(status->st_size) : file.bytes;
    const std::string expected = store::meta_of(opened->label, opened->entry, bytes);
    const auto stored = store::read_json(folder, meta);
    if (stored && nlohmann::json(*stored) == nlohmann::json::parse(expected)) return;
    const bool rewritten = repair_ && done(folder.replace(meta, std::as_bytes(std::span(expected))));
    found({Finding::Kind::meta, relative(folder, meta),
           stored ? "it does not match its entry" : "it is missing or is not JSON", rewritten});
  }

  /// Returns whether it removed the entry.
  bool check_signatures(const base::Folder& folder, const store::StoredFile& file) {
    auto finding = signature_of(folder, file);
    if (!done(finding) || !*finding) return false;
    if (repair_ && (*finding)->kind != SignatureFinding::Kind::trusted) {
      auto removed = remove_untrusted(folder, file);
      if (done(removed)) finding = std::move(removed);
      // Another process removed it.
      if (!*finding) return true;
    }
    const std::lock_guard lock(mutex_);
    report_.signatures.push_back(std::move(**finding));
    return report_.signatures.back().removed;
  }

  /// Nothing if there is no entry any longer.
  Result<std::optional<SignatureFinding>> signature_of(const base::Folder& folder,
                                                       const store::StoredFile& file) const {
    const auto contents = KILN_TRY(folder.read(file.name, store::max_entry_bytes));
    if (!contents) return std::optional<SignatureFinding>();
    const auto examined = KILN_TRY(store::examine_entry(contents->bytes));
    const auto signer = trust_->verify(examined);
    SignatureFinding finding{
        .kind = SignatureFinding::Kind::trusted, .file = relative(folder, file.name), .signer = {}, .problem = {}};
    if (signer) {
      finding.signer = *signer;
    } else {
      finding.kind = examined.signatures.empty() ? SignatureFinding::Kind::none : SignatureFinding::Kind::untrusted;
      finding.problem = signer.error().message();
    }
    return std::optional(std::move(finding));
  }

  /// Removes an entry, unless another process has replaced it by one with a trusted signature. Nothing if there is
  /// no entry any longer.
  Result<std::optional<SignatureFinding>> remove_untrusted(const base::Folder& folder,
                                                           const store::StoredFile& file) const {
    const auto lock_file = KILN_TRY(folder.open_lock_file(store::lock_name));
    const auto lock = base::FileLock::acquire(lock_file, file.key.digest.word(0), lock_patience);
    // If the file system has no locks, continue without one.
    if (!lock && base::FileLock::is_held(lock_file, file.key.digest.word(0)).value_or(false))
      return Error(ErrorCode::timed_out,
                   fmt::format("{} is being replaced by another process", (folder.path() / file.name).string()));
    auto finding = KILN_TRY(signature_of(folder, file));
    if (!finding || finding->kind == SignatureFinding::Kind::trusted) return finding;
    finding->removed = KILN_TRY(folder.remove(file.name));
    KILN_TRY(folder.remove(store::meta_file_name(file.name)));
    return finding;
  }

  void check_metas_without_entry(const base::Folder& folder, const FolderListing& listing) {
    const auto names = folder.names();
    if (!names) return;
    for (const auto& name : *names) {
      const auto entry = store::entry_of_meta(name);
      if (!entry || folder.status(*entry)) continue;
      const bool known = std::any_of(listing.files.begin(), listing.files.end(),
                                     [&entry](const auto& file) { return file.name == *entry; });
      // Verify itself or another process removed the entry after it was listed.
      if (known) continue;
      found(
          {Finding::Kind::meta, relative(folder, name), "its entry is gone", repair_ && done(folder.remove(name))});
    }
  }

  void check_leftovers(const base::Folder& folder, const std::string& prefix) {
    const auto names = folder.names();
    if (!names) return;
    for (const auto& name : *names) {
      if (!base::Folder::is_temporary(name)) continue;
      const auto status = folder.status(name);
      if (!status) continue;
      const auto now = std::chrono::system_clock::now();
      const auto changed = std::chrono::system_clock::from_time_t(status->st_mtime);
      const bool left = folder.is_abandoned(name);
      const auto problem = left ? fmt::format("left by a process that was killed {} ago", human_age(changed, now))
                                : std::string("a process is writing this temporary file");
      found({Finding::Kind::leftover, prefix + name, problem,
             repair_ && left && done(folder.remove_abandoned(name))});
    }
  }

  void check_manifest(const base::Folder& folder, const store::DeviceFolder& device) {
    if (device.identity) return;
    bool rewritten = false;
    if (repair_) {
      // The folder name holds only a digest of the identity; the identity itself must come from a device.
      for (const auto& present : list_devices()) {
        if (rewritten || !present.problem.empty()) continue;
        if (present.identity.folder() == folder.path().filename())
          rewritten = done(store::write_manifest(folder, present.identity));
      }
    }
    found({Finding::Kind::manifest, relative(folder, store::manifest_name),
           "it is missing or does not match its folder; Kiln writes it again when it saves the next program of "
           "this device",
           rewritten});
  }

  template <class T>
  bool done(const Result<T>& result) {
    if (result) return true;
    const std::lock_guard lock(mutex_);
    report_.problems.push_back(result.error().message());
    return false;
  }

  void found(Finding finding) {
    const std::lock_guard lock(mutex_);
    report_.findings.push_back(std::move(finding));
  }

  static std::string relative(const base::Folder& folder, const std::string& name) {
    return folder.path().filename().string() + "/" + name;
  }

  const std::filesystem::path root_;
  const bool repair_;
  const std::optional<store::TrustList> trust_;
  ProgressBar& progress_;
  /// Guards the members below, which the threads that read entries change.
  std::mutex mutex_;
  std::size_t checked_ = 0;
  Report report_;
};

std::string_view kind_name(Finding::Kind kind) {
  switch (kind) {
    case Finding::Kind::damage: return "damaged";
    case Finding::Kind::meta: return "meta";
    case Finding::Kind::manifest: return "manifest";
    case Finding::Kind::leftover: return "leftover";
  }
  return "";
}

std::string_view kind_name(SignatureFinding::Kind kind) {
  switch (kind) {
    case SignatureFinding::Kind::trusted: return "signed";
    case SignatureFinding::Kind::none: return "unsigned";
    case SignatureFinding::Kind::untrusted: return "untrusted";
  }
  return "";
}

Json signatures_json(const Report& report) {
  auto list = Json::array();
  for (const auto& finding : report.signatures)
    list.push_back({{"file", finding.file},
                    {"state", kind_name(finding.kind)},
                    {"signed_by", or_null(finding.signer)},
                    {"problem", or_null(finding.problem)},
                    {"removed", finding.removed}});
  return list;
}

Json report_json(const std::filesystem::path& root, const Report& report, const VerifyOptions& options) {
  Json object = {{"directory", root.string()}, {"entries", report.entries}, {"bytes", report.bytes}};
  for (const auto kind :
       {Finding::Kind::damage, Finding::Kind::meta, Finding::Kind::manifest, Finding::Kind::leftover}) {
    auto& list = object[std::string(kind_name(kind))] = Json::array();
    for (const auto& finding : report.findings)
      if (finding.kind == kind)
        list.push_back({{"file", finding.file}, {"problem", finding.problem}, {"repaired", finding.repaired}});
  }
  if (options.signatures) object["signatures"] = signatures_json(report);
  object["ok"] = report.sound();
  return object;
}

std::string verdict(const Report& report, bool colors) {
  const auto removed = std::count_if(report.findings.begin(), report.findings.end(), [](const Finding& finding) {
    return finding.kind == Finding::Kind::damage && finding.repaired;
  });
  const std::size_t damaged = report.count(Finding::Kind::damage);
  if (damaged > 0 && static_cast<std::size_t>(removed) == damaged)
    return paint(fmt::format("{} damaged and removed", damaged), Ink::warning, colors);
  if (damaged > 0) return paint(fmt::format("{} damaged", damaged), Ink::bad, colors);
  if (!report.problems.empty()) return paint("not all files could be read", Ink::bad, colors);
  return paint("all sound", Ink::good, colors);
}

std::string signatures_text(const Report& report, const Terminal& terminal) {
  std::string text;
  for (const auto& finding : report.signatures) {
    const bool is_trusted = finding.kind == SignatureFinding::Kind::trusted;
    const auto kind = fmt::format("{:<9}", kind_name(finding.kind));
    text += fmt::format("{} {}: {}{}\n", paint(kind, is_trusted ? Ink::good : Ink::bad, terminal.colors),
                        printable(finding.file),
                        printable(is_trusted ? "it is signed by " + finding.signer : finding.problem),
                        paint(finding.removed ? " (removed)" : "", Ink::good, terminal.colors));
  }
  return text;
}

std::string report_text(const Report& report, const Terminal& terminal, const VerifyOptions& options) {
  std::string text = signatures_text(report, terminal);
  for (const auto& finding : report.findings) {
    const bool damage = finding.kind == Finding::Kind::damage;
    const auto kind = fmt::format("{:<9}", kind_name(finding.kind));
    const std::string_view after = !finding.repaired ? "" : damage ? " (removed)" : " (repaired)";
    text +=
        fmt::format("{} {}: {}{}\n", paint(kind, damage ? Ink::bad : Ink::warning, terminal.colors),
                    printable(finding.file), printable(finding.problem), paint(after, Ink::good, terminal.colors));
  }
  text += fmt::format("{} checked ({}), {}", human_count(report.entries, "entry"), human_size(report.bytes),
                      verdict(report, terminal.colors));
  const auto also = [&](Finding::Kind kind, std::string_view what) {
    if (const auto count = report.count(kind); count > 0) text += ", " + human_count(count, what);
  };
  also(Finding::Kind::meta, "wrong .meta file");
  also(Finding::Kind::manifest, "wrong manifest");
  also(Finding::Kind::leftover, "temporary file");
  if (options.signatures)
    for (const auto kind :
         {SignatureFinding::Kind::trusted, SignatureFinding::Kind::none, SignatureFinding::Kind::untrusted})
      if (const auto count = report.count(kind); count > 0) text += fmt::format(", {} {}", count, kind_name(kind));
  if (const auto count = report.removed_as_untrusted(); count > 0) text += fmt::format(", {} removed", count);
  return text + "\n";
}

void run(Context& context, const VerifyOptions& options) {
  const auto root = context.directory();
  const auto terminal = context.terminal();
  std::optional<store::TrustList> trust;
  if (options.signatures) trust = store::TrustList::read(store::config_folders()).value();
  const auto report = [&] {
    ProgressBar progress(terminal, "Checking");
    return Verifier(root, options.repair, std::move(trust), progress).run();
  }();
  report_problems(context, report.problems);
  if (!report.sound()) context.status = exit_status::failed;
  if (context.json) return print_json(report_json(root, report, options));
  print(report_text(report, terminal, options));
  if (!options.repair && !report.findings.empty())
    remark(context,
           "`kiln verify --repair` removes damaged entries and abandoned temporary files, and rewrites .meta files "
           "and "
           "manifests.");
}

}  // namespace

void add_verify(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("verify", "Check all stored programs for damage, and repair the cache");
  auto options = std::make_shared<VerifyOptions>();
  command->add_flag(
      "--repair", options->repair,
      "Remove damaged entries and abandoned temporary files; rewrite wrong .meta files and manifests");
  command->add_flag("--signatures", options->signatures,
                    "Also list who signed each entry, and which entries have no signature by a trusted key;\n"
                    "with --repair, remove those entries");
  command->footer(
      "Kiln never loads a damaged entry: it compiles the program again and replaces the entry. Kiln does not\n"
      "read .meta files, so a wrong .meta file is not damage.\n\n"
      "Exits with 1 if an entry is damaged and was not repaired. With --signatures, also exits with 1 if any "
      "entry\n"
      "has no signature by a trusted key and was not removed.\n\n"
      "Examples:\n"
      "  kiln verify\n"
      "  kiln verify --repair\n"
      "  kiln verify --repair --signatures\n"
      "  kiln verify --json | jq -r '.damaged[].file'");
  command->callback([&context, options] { run(context, *options); });
}

}  // namespace kiln::cli
