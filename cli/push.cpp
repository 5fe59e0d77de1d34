#include <algorithm>
#include <mutex>
#include <set>

#include <fmt/format.h>

#include "base/file.hpp"
#include "base/try.hpp"
#include "commands.hpp"
#include "inventory.hpp"
#include "store/settings.hpp"
#include "transfer.hpp"

namespace kiln::cli {
namespace {

/// Programs that were not loaded for so long count as rare.
constexpr auto rare_after = std::chrono::days(7);

/// An identity whose programs are pushed.
struct PushedIdentity {
  Identity identity;
  Digest digest;
  Result<base::Folder> folder;
  /// The catalogue as it is in the store; empty if there is none.
  std::string catalogue_before = {};
  store::Catalogue catalogue = {};
};

struct PushedProgram {
  /// An index into Push::identities_.
  std::size_t identity = 0;
  store::StoredFile file;
  std::chrono::nanoseconds compile_time = {};
  /// The store has it.
  bool is_there = false;
};

/// Uploads what the store lacks.
class Push {
 public:
  Push(Context& context, const TransferFlags& flags, bool only_rare)
      : flags_(flags),
        least_compile_time_(flags.least_compile_time()),
        only_rare_(only_rare),
        store_(flags, StoreMode::read_only, !flags.dry_run, stop_request_),
        display_(context, store_.name(), "push", "pushed") {
    const auto settings = store::read_settings(context.command_line());
    strips_facts_ = !settings.share_facts.value;
    keys_ = store::signing_keys(settings.signing_key.value.native(), store::config_folders()).value();
    root_ = context.directory();
  }

  void run() {
    try {
      push();
    } catch (const Failure&) {
      // A call whose repetitions were interrupted.
      if (!stop_request_.happened()) throw;
      display_.report_end({.was_interrupted = true});
    }
  }

 private:
  void push() {
    display_.show("Reading " + root_.string());
    collect();
    display_.show("Listing " + store_.name());
    find_present();
    if (stop_request_.happened()) return display_.report_end({.was_interrupted = true});
    const auto is_there = [](const PushedProgram& program) { return program.is_there; };
    const auto present = std::ranges::count_if(programs_, is_there);
    for (const auto& program : programs_)
      if (!program.is_there) missing_.push_back(&program);
    display_.begin(programs_.size() + refused_, static_cast<std::size_t>(present));
    if (flags_.dry_run) return display_.report_plan(plan());
    const auto report = upload();
    if (!report.stopped) write_catalogues();
    display_.add_signed(signed_);
    for (const auto& problem : report.problems)
      if (!report.stopped || problem.why.code() != report.stopped->code())
        display_.add_problem(problem.why.message(), problem.items, missing_[problem.first]->file.key.name);
    display_.report_end(report);
  }

  /// Reads the programs of the cache directory that the options select; the most expensive come first.
  void collect() {
    for (auto& listing : list_folders(root_)) {
      if (!listing.problem.empty()) display_.add_problem(listing.problem);
      if (listing.files.empty()) continue;
      if (!listing.folder.identity) {
        display_.add_problem(fmt::format("the manifest of {} is missing or wrong; run `kiln verify --repair`",
                                         listing.folder.path.string()));
        continue;
      }
      const Identity& identity = *listing.folder.identity;
      identities_.push_back({identity, identity.digest(), base::Folder::open(listing.folder.path, false)});
      collect(identities_.size() - 1, std::move(listing.files));
    }
    std::ranges::stable_sort(programs_, std::ranges::greater(), &PushedProgram::compile_time);
  }

  void collect(std::size_t identity, std::vector<store::StoredFile> files) {
    const auto now = std::chrono::system_clock::now();
    if (only_rare_) std::erase_if(files, [now](const auto& file) { return now - file.last_use < rare_after; });
    std::vector<std::optional<Result<std::chrono::nanoseconds>>> times(files.size());
    for_each_parallel(files.size(), [&](std::size_t i) {
      if (stop_request_.happened()) return;
      const auto bytes = read(identity, files[i]);
      if (!bytes) {
        times[i] = bytes.error();
      } else if (*bytes) {
        const auto examined = examine(identity, files[i], **bytes);
        times[i] = examined ? Result(examined->compile_time) : examined.error();
      }
    });
    for (std::size_t i = 0; i < files.size(); ++i) {
      if (!times[i]) continue;
      if (!*times[i]) {
        ++refused_;
        display_.add_problem(times[i]->error().message(), 1, files[i].key.name);
      } else if (**times[i] >= least_compile_time_) {
        programs_.push_back({identity, std::move(files[i]), **times[i]});
      }
    }
  }

  /// Nothing if another process has removed the file.
  Result<std::optional<std::vector<std::byte>>> read(std::size_t identity, const store::StoredFile& file) const {
    using Bytes = std::optional<std::vector<std::byte>>;
    const auto& folder = identities_[identity].folder;
    if (!folder) return folder.error();
    auto contents = KILN_TRY(folder->read(file.name, store::max_object_bytes));
    return contents ? Bytes(std::move(contents->bytes)) : Bytes();
  }

  Result<store::ExaminedEntry> examine(std::size_t identity, const store::StoredFile& file,
                                       std::span<const std::byte> sealed) const {
    auto examined = KILN_TRY(store::examine_entry(sealed));
    if (examined.label.key != file.key.digest || examined.label.identity != identities_[identity].digest)
      return Error(ErrorCode::damaged, "it holds a different program than its file name says");
    return examined;
  }

  /// Reads the catalogues, and marks the programs that the store has.
  void find_present() {
    std::vector<std::optional<std::set<Digest>>> listed(identities_.size());
    for (std::size_t i = 0; i < identities_.size(); ++i) {
      PushedIdentity& identity = identities_[i];
      identity.catalogue_before = store_.text_of(store::catalogue_path(identity.digest.hex())).value_or("");
      identity.catalogue = store::parse_catalogue(identity.catalogue_before).value_or(store::Catalogue());
      listed[i] = store_.list_keys(identity.digest.hex());
      if (listed[i])
        std::erase_if(identity.catalogue, [&](const auto& each) { return !listed[i]->contains(each.first); });
    }
    std::vector<PushedProgram*> unknown;
    for (PushedProgram& program : programs_) {
      if (const auto& keys = listed[program.identity])
        program.is_there = keys->contains(program.file.key.digest);
      else
        unknown.push_back(&program);
    }
    const auto report = store::transfer(unknown.size(), store_.transfer_options(), [&](std::size_t item) {
      const auto has = store_.objects().has(path_of(*unknown[item]), store_.reading_limit());
      if (!has) return store::TransferResult::after(has.error());
      unknown[item]->is_there = *has;
      return store::TransferResult();
    });
    if (report.stopped) throw Failure(*report.stopped);
    if (!report.problems.empty()) throw Failure(report.problems[0].why);
  }

  std::string path_of(const PushedProgram& program) const {
    return store::entry_path(identities_[program.identity].digest.hex(), program.file.key.digest);
  }

  std::vector<PlannedProgram> plan() const {
    std::vector<PlannedProgram> plan;
    for (const PushedProgram* program : missing_)
      plan.push_back({program->file.key.name, identities_[program->identity].identity.device, program->compile_time,
                      program->file.bytes});
    return plan;
  }

  store::TransferReport upload() {
    for (const PushedIdentity& identity : identities_) {
      if (stop_request_.happened()) break;
      const std::string digest = identity.digest.hex();
      // `kiln pull` needs the right one.
      if (const auto there = store_.text_of(store::identity_path(digest));
          there && store::parse_identity(*there, digest))
        continue;
      const std::string text = store::identity_text(identity.identity);
      const auto put = store::with_retries(stop_request_.descriptor(), [&] {
        return store_.objects().put(store::identity_path(digest), std::as_bytes(std::span(text)), store_.limit());
      });
      if (!put && put.error().code() != ErrorCode::denied) throw Failure(put.error());
    }
    return store::transfer(
        missing_.size(), store_.transfer_options(), [this](std::size_t item) { return upload(*missing_[item]); },
        [this](const store::TransferReport& report, std::size_t item) {
          display_.update(report, missing_[item]->file.key.name);
        });
  }

  store::TransferResult upload(const PushedProgram& program) {
    using store::TransferResult;
    const auto bytes = read(program.identity, program.file);
    if (!bytes) return TransferResult::refused(bytes.error());
    if (!*bytes) return {.end = TransferResult::End::skipped};
    const auto shared = shared_form(program, **bytes);
    if (!shared) return TransferResult::refused(shared.error());
    const auto size = shared->bytes.size();
    const auto put = store_.objects().put(path_of(program), shared->bytes, store_.limit(size));
    if (!put) return TransferResult::after(put.error());
    const std::lock_guard lock(uploaded_mutex_);
    uploaded_.push_back({&program, size});
    if (shared->is_newly_signed) ++signed_;
    return {.bytes = size};
  }

  struct SharedForm {
    std::vector<std::byte> bytes;
    /// It had no signature before.
    bool is_newly_signed = false;
  };

  /// The entry as a cache would upload it.
  Result<SharedForm> shared_form(const PushedProgram& program, const std::vector<std::byte>& sealed) const {
    const auto examined = KILN_TRY(examine(program.identity, program.file, sealed));
    const bool has_signatures = !examined.signatures.empty();
    const bool is_newly_signed = store_.needs_signatures() && !has_signatures;
    // What others signed came from a store, and is passed on as it is.
    if (strips_facts_ && !KILN_TRY(is_signed_by_others(examined))) {
      const auto opened = KILN_TRY(store::unpack_entry(examined));
      const PushedIdentity& identity = identities_[program.identity];
      auto bare = store::seal_entry({examined.label.key, identity.digest, identity.identity.target_digest()},
                                    store::without_facts(opened.entry));
      if (!has_signatures && !is_newly_signed) return SharedForm{std::move(bare)};
      return SharedForm{KILN_TRY(with_signatures(std::move(bare))), is_newly_signed};
    }
    if (!is_newly_signed) return SharedForm{sealed};
    return SharedForm{KILN_TRY(with_signatures(sealed)), true};
  }

  Result<bool> is_signed_by_others(const store::ExaminedEntry& examined) const {
    std::size_t own = 0;
    for (const auto& key : keys_) own += KILN_TRY(store::is_signed_by(examined, key.public_key())) ? 1 : 0;
    return examined.signatures.size() > own;
  }

  Result<std::vector<std::byte>> with_signatures(std::vector<std::byte> sealed) const {
    if (!keys_.empty()) return store::sign_entry(sealed, keys_);
    if (!store_.needs_signatures()) return sealed;
    return Error(ErrorCode::untrusted,
                 "the store needs signatures, it has none, and this user has no key; make one with `kiln key new`, "
                 "or add verify=off to the URL");
  }

  /// Adds the programs that are in the store now to the catalogues.
  void write_catalogues() {
    const auto add = [this](const PushedProgram& program, std::uint64_t bytes) {
      identities_[program.identity].catalogue.insert_or_assign(
          program.file.key.digest, store::CataloguedProgram{bytes, program.compile_time});
    };
    for (const PushedProgram& program : programs_)
      if (program.is_there) add(program, program.file.bytes);
    for (const auto& [program, bytes] : uploaded_) add(*program, bytes);
    for (PushedIdentity& identity : identities_) {
      if (identity.catalogue.empty() || store::catalogue_text(identity.catalogue) == identity.catalogue_before)
        continue;
      add_programs_of_others(identity);
      const std::string text = store::catalogue_text(identity.catalogue);
      const auto put = store_.objects().put(store::catalogue_path(identity.digest.hex()),
                                            std::as_bytes(std::span(text)), store_.limit(text.size()));
      if (!put) display_.add_problem(fmt::format("the catalogue was not written: {}", put.error().message()));
    }
  }

  /// Adds what another push wrote to the catalogue since this one read it.
  void add_programs_of_others(PushedIdentity& identity) {
    const auto now = store_.objects().get(store::catalogue_path(identity.digest.hex()), store_.limit());
    if (!now || !*now) return;
    const std::string_view text(reinterpret_cast<const char*>((*now)->data()), (*now)->size());
    if (text == identity.catalogue_before) return;
    auto others = store::parse_catalogue(text).value_or(store::Catalogue());
    const auto before = store::parse_catalogue(identity.catalogue_before).value_or(store::Catalogue());
    std::erase_if(others, [&before](const auto& each) { return before.contains(each.first); });
    identity.catalogue.merge(others);
  }

  struct Uploaded {
    const PushedProgram* program;
    std::uint64_t bytes;
  };

  const TransferFlags flags_;
  const std::chrono::nanoseconds least_compile_time_;
  const bool only_rare_;
  const StopRequest stop_request_;
  TransferStore store_;
  TransferDisplay display_;
  bool strips_facts_ = false;
  std::vector<store::SigningKey> keys_;
  std::filesystem::path root_;
  std::vector<PushedIdentity> identities_;
  std::vector<PushedProgram> programs_;
  /// Programs that cannot be read.
  std::size_t refused_ = 0;
  std::vector<const PushedProgram*> missing_;
  std::mutex uploaded_mutex_;
  std::vector<Uploaded> uploaded_;
  /// How many of them had no signature before. Guarded by uploaded_mutex_, too.
  std::size_t signed_ = 0;
};

}  // namespace

void add_push(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("push", "Upload stored programs to a shared store, as a backup or for others");
  auto flags = std::make_shared<TransferFlags>();
  auto rare = std::make_shared<bool>(false);
  flags->add_to(*command);
  command->add_flag(
      "--rare", *rare,
      "Only programs that no process has loaded for 7 days: those that a full cache would remove first");
  command->footer(
      "Uploads the programs of all devices that the store lacks, those that took longest to compile first. If the\n"
      "store needs signatures, programs without one are signed with the keys of this user: push only what you\n"
      "compiled.\n\n"
      "Ctrl-C finishes the uploads in flight and ends; the same command goes on later. Exits with 130 then, and\n"
      "with 1 if a program could not be uploaded.\n\n"
      "Examples:\n"
      "  kiln push file:///mnt/backup\n"
      "  kiln push redis://cache.example/0 --min-compile-time 1s\n"
      "  kiln push file:///mnt/backup --rare && kiln prune --max-age 7d");
  command->callback([&context, flags, rare] { Push(context, *flags, *rare).run(); });
}

}  // namespace kiln::cli
