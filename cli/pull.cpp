#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include <fmt/format.h>

#include "base/try.hpp"
#include "commands.hpp"
#include "inventory.hpp"
#include "store/disk_store.hpp"
#include "store/json_file.hpp"
#include "transfer.hpp"

namespace kiln::cli {
namespace {

/// An identity whose programs are pulled.
struct PulledIdentity {
  Identity identity;
  Digest digest;
  std::unique_ptr<store::DiskStore> disk = nullptr;
};

struct PulledProgram {
  /// An index into Pull::identities_.
  std::size_t identity = 0;
  Digest key;
  /// From the catalogue.
  std::optional<store::CataloguedProgram> catalogued = {};
};

/// Downloads what the cache directory lacks.
class Pull {
 public:
  Pull(Context& context, const TransferFlags& flags)
      : context_(context),
        flags_(flags),
        least_compile_time_(flags.least_compile_time()),
        store_(flags, StoreMode::write_only, false, stop_request_),
        display_(context, store_.name(), "pull", "pulled"),
        root_(context.directory()) {
    if (!store_.needs_signatures()) return;
    trust_ = store::TrustList::read(store::config_folders()).value();
    if (trust_->keys().empty())
      throw Failure(
          Error(ErrorCode::untrusted,
                fmt::format("{} needs signatures, and no key is trusted; trust one with `kiln key trust`, "
                            "or add verify=off to the URL",
                            store_.name())));
  }

  void run() {
    try {
      pull();
    } catch (const Failure&) {
      // A call whose repetitions were interrupted.
      if (!stop_request_.happened()) throw;
      display_.report_end({.was_interrupted = true});
    }
  }

 private:
  void pull() {
    display_.show("Listing " + store_.name());
    const auto identities = this->identities();
    for (const auto& [digest, identity] : identities)
      if (!stop_request_.happened()) collect(digest, identity);
    // Programs of unknown cost come last.
    std::ranges::stable_sort(missing_, std::ranges::greater(), [](const PulledProgram& program) {
      return program.catalogued ? program.catalogued->compile_time : std::chrono::nanoseconds(-1);
    });
    if (stop_request_.happened()) return display_.report_end({.was_interrupted = true});
    display_.begin(present_ + missing_.size(), present_);
    if (!knows_keys_ && !(can_list_ && identities.empty()))
      display_.add_problem(
          fmt::format("{} cannot be listed, and has no catalogue for a device of this machine; "
                      "`kiln push` writes one",
                      store_.name()));
    if (flags_.dry_run) return display_.report_plan(plan());
    const auto report = store::transfer(
        missing_.size(), store_.transfer_options(), [this](std::size_t item) { return download(missing_[item]); },
        [this](const store::TransferReport& now, std::size_t item) {
          display_.update(now, name_of(missing_[item]));
        });
    for (const PulledIdentity& identity : identities_)
      if (identity.disk)
        if (const auto saved = identity.disk->save_notes(); !saved) display_.add_problem(saved.error().message());
    for (const auto& problem : report.problems)
      if (!report.stopped || problem.why.code() != report.stopped->code())
        display_.add_problem(problem.why.message(), problem.items, name_of(missing_[problem.first]));
    display_.report_end(report);
  }

  /// The identities of the store, as far as they are known. If it cannot be listed, those of this machine.
  std::map<std::string, std::optional<Identity>> identities() {
    std::map<std::string, std::optional<Identity>> identities;
    if (const auto listed = store_.list_identities()) {
      can_list_ = true;
      for (const std::string& digest : *listed) identities.try_emplace(digest);
      return identities;
    }
    if (stop_request_.happened()) return identities;
    for (const auto& folder : store::device_folders(root_).value())
      if (folder.identity) identities.try_emplace(folder.identity->digest().hex(), folder.identity);
    for (const DeviceInfo& device : list_devices())
      if (device.problem.empty()) identities.try_emplace(device.identity.digest().hex(), device.identity);
    return identities;
  }

  /// Finds the programs of an identity. `known` is the identity if it is one of this machine.
  void collect(const std::string& digest, const std::optional<Identity>& known) {
    const std::string text = store_.text_of(store::catalogue_path(digest)).value_or("");
    const auto catalogue = store::parse_catalogue(text);
    if (!text.empty() && !catalogue)
      display_.add_problem(fmt::format("the catalogue of {} is damaged; `kiln push` writes it again", digest));
    auto keys = store_.list_keys(digest);
    if (!keys && stop_request_.happened()) return;
    if (!keys && !catalogue) return;
    knows_keys_ = true;
    if (!keys) {
      keys.emplace();
      for (const auto& [key, program] : *catalogue) keys->insert(key);
    }
    if (keys->empty()) return;
    auto identity = known ? known : read_identity(digest);
    if (!identity) return;
    identities_.push_back({*identity, identity->digest()});
    std::set<Digest> here;
    if (const auto path = root_ / identity->folder(); std::filesystem::exists(path))
      for (const auto& file : store::stored_files(path).value()) here.insert(file.key.digest);
    for (const Digest& key : *keys) {
      PulledProgram program{identities_.size() - 1, key};
      if (const auto found = catalogue ? catalogue->find(key) : store::Catalogue::const_iterator();
          catalogue && found != catalogue->end())
        program.catalogued = found->second;
      if (program.catalogued && program.catalogued->compile_time < least_compile_time_) continue;
      if (here.contains(key))
        ++present_;
      else
        missing_.push_back(program);
    }
  }

  std::optional<Identity> read_identity(const std::string& digest) {
    const auto text = store_.text_of(store::identity_path(digest));
    if (stop_request_.happened()) return std::nullopt;
    auto identity = text ? store::parse_identity(*text, digest) : std::nullopt;
    if (identity) return identity;
    display_.add_problem(fmt::format(
        "the programs of {} are left out: its identity.json is missing or wrong; `kiln push` writes it again",
        digest));
    return std::nullopt;
  }

  store::TransferResult download(const PulledProgram& program) {
    using store::TransferResult;
    PulledIdentity& identity = identities_[program.identity];
    const std::string path = store::entry_path(identity.digest.hex(), program.key);
    const auto sealed =
        store_.objects().get(path, store_.limit(program.catalogued ? program.catalogued->bytes : 0));
    if (!sealed) return TransferResult::after(sealed.error());
    if (!*sealed) return {.end = TransferResult::End::skipped};
    const auto opened =
        store::check_shared_entry(**sealed, program.key, identity.digest, trust_ ? &*trust_ : nullptr);
    if (!opened) return TransferResult::refused(opened.error());
    if (opened->entry.compile_time < least_compile_time_) return {.end = TransferResult::End::skipped};
    // A full or read-only disk fails for every program.
    if (const auto saved = save(identity, *opened, **sealed); !saved) return TransferResult::stopped(saved.error());
    return {.bytes = (*sealed)->size()};
  }

  Result<void> save(PulledIdentity& identity, const store::OpenedEntry& opened, std::span<const std::byte> sealed) {
    const auto& [label, entry] = opened;
    const auto facts = store::parse_json(entry.facts);
    KILN_TRY(open(identity));
    return identity.disk->put({identity.digest, {label.key, facts ? text_of(*facts, "name") : ""}}, sealed,
                              store::meta_of(label, entry, sealed.size()));
  }

  Result<void> open(PulledIdentity& identity) {
    const std::lock_guard lock(open_mutex_);
    if (!identity.disk) identity.disk = KILN_TRY(store::DiskStore::open(root_, identity.identity, context_.log()));
    return {};
  }

  std::string name_of(const PulledProgram& program) const { return program.key.hex(16); }

  std::vector<PlannedProgram> plan() const {
    std::vector<PlannedProgram> plan;
    for (const PulledProgram& program : missing_) {
      PlannedProgram planned{.name = name_of(program), .device = identities_[program.identity].identity.device};
      if (program.catalogued) {
        planned.compile_time = program.catalogued->compile_time;
        planned.bytes = program.catalogued->bytes;
      }
      plan.push_back(std::move(planned));
    }
    return plan;
  }

  Context& context_;
  const TransferFlags flags_;
  const std::chrono::nanoseconds least_compile_time_;
  const StopRequest stop_request_;
  TransferStore store_;
  TransferDisplay display_;
  const std::filesystem::path root_;
  std::optional<store::TrustList> trust_;
  std::vector<PulledIdentity> identities_;
  bool can_list_ = false;
  /// The keys of at least one identity are known.
  bool knows_keys_ = false;
  std::size_t present_ = 0;
  std::vector<PulledProgram> missing_;
  /// Guards the opening of PulledIdentity::disk.
  std::mutex open_mutex_;
};

}  // namespace

void add_pull(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("pull", "Download the programs of a shared store into the cache directory");
  auto flags = std::make_shared<TransferFlags>();
  flags->add_to(*command);
  command->footer(
      "Downloads the programs of all devices that the cache directory lacks, those that took longest to compile\n"
      "first, and checks each one as a cache does. If the store needs signatures, programs without one by a\n"
      "trusted key are refused. If the server cannot list its objects, the command needs the catalogue that\n"
      "`kiln push` writes, and downloads the programs for the devices of this machine.\n\n"
      "Ctrl-C finishes the downloads in flight and ends; the same command goes on later. Exits with 130 then, and\n"
      "with 1 if a program could not be downloaded.\n\n"
      "Examples:\n"
      "  kiln pull file:///mnt/backup\n"
      "  kiln pull redis://cache.example/0 --min-compile-time 1s\n"
      "  kiln pull file:///mnt/backup --dry-run");
  command->callback([&context, flags] { Pull(context, *flags).run(); });
}

}  // namespace kiln::cli
