#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "context.hpp"
#include "stop_request.hpp"
#include "store/catalogue.hpp"
#include "store/shared_store.hpp"
#include "store/transfer.hpp"
#include "terminal.hpp"

/// What `kiln push` and `kiln pull` have in common.
namespace kiln::cli {

/// The options of both commands.
struct TransferFlags {
  std::string url = {};
  std::string min_compile_time = {};
  bool dry_run = false;
  std::size_t jobs = 0;

  void add_to(CLI::App& command);
  /// Zero if it is not given. Throws UsageError.
  std::chrono::milliseconds least_compile_time() const;
};

/// The store of the command line. Calls are repeated if the store fails. Functions that return no Result throw
/// Failure.
class TransferStore {
 public:
  /// `forbidden` is the mode of a URL that does not permit the command. `creates`: whether a missing folder is
  /// created.
  TransferStore(const TransferFlags& flags, StoreMode forbidden, bool creates, const StopRequest& stop_request);

  /// Without user, password and options.
  std::string name() const { return url_.display(); }
  bool needs_signatures() const noexcept { return opened_.verify == Verification::required; }
  store::ObjectStore& objects() const noexcept { return *opened_.objects; }
  store::TransferOptions transfer_options() const;
  /// For a call that moves so many bytes.
  store::CallLimit limit(std::uint64_t bytes = 0) const;
  /// For a call that changes nothing and ends early if the user interrupts the command.
  store::CallLimit reading_limit() const;

  /// Nothing if there is no such object.
  std::optional<std::string> text_of(const std::string& path) const;
  /// The identities; nothing if the store cannot be listed.
  std::optional<std::vector<std::string>> list_identities() const;
  /// The keys of an identity's programs; nothing if the store cannot be listed.
  std::optional<std::set<Digest>> list_keys(const std::string& identity) const;

 private:
  /// Ends early if the user interrupts the command.
  store::CallLimit listing_limit() const;

  store::StoreUrl url_;
  store::OpenedStore opened_;
  std::size_t jobs_;
  int interrupted_;
};

/// A program that a dry run would transfer.
struct PlannedProgram {
  std::string name;
  std::string device;
  std::optional<std::chrono::nanoseconds> compile_time = {};
  std::optional<std::uint64_t> bytes = {};
};

/// Shows the progress of a transfer, and reports its end.
class TransferDisplay {
 public:
  /// "push" and "pushed", or "pull" and "pulled".
  TransferDisplay(Context& context, std::string store, std::string verb, std::string participle);

  /// What goes on before begin(), as in "Listing redis://host".
  void show(const std::string& what);
  /// The number of programs that the options select, and how many of them need no transfer.
  void begin(std::size_t programs, std::size_t present);
  void update(const store::TransferReport& report, const std::string& name);
  /// Adds a problem of `items` programs, the first of which is named. Each problem is reported once.
  void add_problem(const std::string& why, std::size_t items = 1, const std::string& first = {});

  /// How many of the programs got their first signature.
  void add_signed(std::size_t programs) { signed_ += programs; }

  /// Prints what a dry run would transfer.
  void report_plan(const std::vector<PlannedProgram>& programs);
  /// Prints the result and sets the exit status.
  void report_end(const store::TransferReport& report);

 private:
  using Clock = std::chrono::steady_clock;
  struct Problem {
    std::string why;
    std::size_t items;
    std::string first;
  };

  Json json(bool dry_run) const;
  void report_problems() const;

  Context& context_;
  const std::string store_;
  const std::string verb_;
  const std::string participle_;
  const Clock::time_point start_ = Clock::now();
  /// When the first transfer began.
  std::optional<Clock::time_point> begun_ = {};
  std::size_t programs_ = 0;
  std::size_t present_ = 0;
  std::size_t signed_ = 0;
  std::vector<Problem> problems_;
  std::optional<ProgressBar> bar_;
  /// When the progress is shown again.
  Clock::time_point next_update_ = {};
};

}  // namespace kiln::cli
