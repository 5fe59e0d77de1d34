#include "transfer.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "base/sha256.hpp"
#include "quantity.hpp"

namespace kiln::cli {
namespace {

/// The calls at once on a store that has no opinion.
constexpr std::size_t least_jobs = 4;
constexpr std::size_t most_jobs = 256;
/// Beyond the timeout of the store, a call gets the time that this slow a connection needs.
constexpr std::uint64_t least_bytes_per_second = 1 << 20;
/// A listing may need many calls.
constexpr int listing_timeouts = 10;
/// Between updates of the progress on a terminal, which may be slow.
constexpr auto bar_interval = std::chrono::milliseconds(50);
/// Transfers go on for so long before the time that is left is estimated.
constexpr auto least_known_time = std::chrono::seconds(1);
/// Between the lines that show the progress if standard error is no terminal.
constexpr auto line_interval = std::chrono::seconds(10);
constexpr std::size_t most_planned = 10;

bool is_listing_unavailable(ErrorCode code) {
  return code == ErrorCode::unsupported || code == ErrorCode::denied || code == ErrorCode::cancelled;
}

store::StoreUrl url_of(const TransferFlags& flags, StoreMode forbidden) {
  auto url = store::parse_store_url(flags.url);
  if (!url) throw UsageError(url.error().message());
  if (url->mode == forbidden)
    throw UsageError(fmt::format("the mode of the store URL permits no {}",
                                 forbidden == StoreMode::read_only ? "uploads" : "downloads"));
  return *std::move(url);
}

store::OpenedStore open(store::StoreUrl url, bool creates) {
  if (!creates) url.mode = StoreMode::read_only;
  auto opened = store::open_shared_store(url).value();
  std::error_code error;
  if (!url.is_network() && !creates && !std::filesystem::exists(url.path, error))
    throw Failure(Error(ErrorCode::io, fmt::format("there is no folder {}", url.path)));
  return opened;
}

}  // namespace

void TransferFlags::add_to(CLI::App& command) {
  command.add_option("URL", url, "The store: a folder or a server, as in file:///mnt/kiln or redis://host/0")
      ->required()
      ->type_name("");
  command
      .add_option("--min-compile-time", min_compile_time,
                  "Only programs that took at least this long to compile, as in 500ms, 1s or 2m")
      ->type_name("TIME");
  command.add_flag("--dry-run", dry_run, "Only show what would be transferred");
  command.add_option("--jobs", jobs, "How many programs to transfer at once [what suits the store]")
      ->check(CLI::Range(std::size_t{1}, most_jobs).description(""))
      ->type_name("N");
}

std::chrono::milliseconds TransferFlags::least_compile_time() const {
  if (min_compile_time.empty()) return {};
  const auto time = parse_duration(min_compile_time);
  if (!time)
    throw UsageError(fmt::format(
        "--min-compile-time must be a number with a unit, as in 500ms or 1s, but is \"{}\"", min_compile_time));
  return *time;
}

TransferStore::TransferStore(const TransferFlags& flags, StoreMode forbidden, bool creates,
                             const StopRequest& stop_request)
    : url_(url_of(flags, forbidden)),
      opened_(open(url_, creates)),
      jobs_(flags.jobs > 0 ? flags.jobs : std::max(least_jobs, opened_.objects->useful_streams())),
      interrupted_(stop_request.descriptor()) {}

store::TransferOptions TransferStore::transfer_options() const {
  return {.threads = jobs_, .interrupted = interrupted_};
}

store::CallLimit TransferStore::limit(std::uint64_t bytes) const {
  const std::chrono::seconds transfer(bytes / least_bytes_per_second);
  return {.deadline = std::chrono::steady_clock::now() + url_.timeout + transfer};
}

store::CallLimit TransferStore::reading_limit() const {
  auto limit = this->limit();
  limit.cancelled = interrupted_;
  return limit;
}

store::CallLimit TransferStore::listing_limit() const {
  return {.deadline = std::chrono::steady_clock::now() + listing_timeouts * url_.timeout,
          .cancelled = interrupted_};
}

std::optional<std::string> TransferStore::text_of(const std::string& path) const {
  const auto object = store::with_retries(interrupted_, [&] { return objects().get(path, reading_limit()); });
  if (!object && object.error().code() != ErrorCode::denied) throw Failure(object.error());
  if (!object || !*object) return std::nullopt;
  return std::string(reinterpret_cast<const char*>((*object)->data()), (*object)->size());
}

std::optional<std::vector<std::string>> TransferStore::list_identities() const {
  auto names =
      store::with_retries(interrupted_, [&] { return objects().list(store::entries_folder, listing_limit()); });
  if (!names && !is_listing_unavailable(names.error().code())) throw Failure(names.error());
  if (!names) return std::nullopt;
  std::erase_if(*names, [](const std::string& name) { return !base::digest_from_hex(name); });
  return *std::move(names);
}

std::optional<std::set<Digest>> TransferStore::list_keys(const std::string& identity) const {
  const std::string folder = std::string(store::entries_folder) + "/" + identity;
  const auto paths = store::with_retries(interrupted_, [&] { return objects().list_all(folder, listing_limit()); });
  if (!paths && !is_listing_unavailable(paths.error().code())) throw Failure(paths.error());
  if (!paths) return std::nullopt;
  std::set<Digest> keys;
  for (const std::string& path : *paths) {
    const auto key = base::digest_from_hex(std::string_view(path).substr(path.rfind('/') + 1));
    if (key && path == store::entry_path(identity, *key)) keys.insert(*key);
  }
  return keys;
}

TransferDisplay::TransferDisplay(Context& context, std::string store, std::string verb, std::string participle)
    : context_(context), store_(std::move(store)), verb_(std::move(verb)), participle_(std::move(participle)) {}

void TransferDisplay::show(const std::string& what) {
  if (context_.json) return;
  if (!bar_) {
    std::string label = verb_ + "ing";
    label[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(label[0])));
    bar_.emplace(context_.terminal(), label);
  }
  bar_->show(what);
}

void TransferDisplay::begin(std::size_t programs, std::size_t present) {
  programs_ = programs;
  present_ = present;
  begun_ = Clock::now();
  next_update_ = *begun_ + (bar_ && bar_->shown() ? Clock::duration(bar_interval) : Clock::duration(line_interval));
}

void TransferDisplay::update(const store::TransferReport& report, const std::string& name) {
  const auto now = Clock::now();
  if (!bar_ || now < next_update_) return;
  const std::size_t done = present_ + report.done + report.skipped;
  if (bar_->shown()) {
    next_update_ = now + bar_interval;
    const auto time = now - *begun_;
    const auto left = programs_ - std::min(programs_, done);
    std::optional<std::chrono::nanoseconds> remaining;
    if (time >= least_known_time && report.done > 0) remaining = time / report.done * left;
    bar_->update(done, programs_, name, remaining);
  } else {
    next_update_ = now + line_interval;
    remark(context_, fmt::format("{} of {} done", done, human_count(programs_, "program")));
  }
}

void TransferDisplay::add_problem(const std::string& why, std::size_t items, const std::string& first) {
  const auto known = std::ranges::find(problems_, why, &Problem::why);
  if (known == problems_.end())
    problems_.push_back({why, items, first});
  else
    known->items += items;
}

Json TransferDisplay::json(bool dry_run) const {
  Json object = {{"store", store_}, {"dry_run", dry_run}, {"programs", programs_}};
  auto& problems = object["problems"] = Json::array();
  for (const auto& [why, items, first] : problems_)
    problems.push_back({{"problem", why}, {"programs", items}, {"first", or_null(first)}});
  return object;
}

void TransferDisplay::report_problems() const {
  for (const auto& [why, items, first] : problems_)
    complain(first.empty()
                 ? why
                 : fmt::format("{} not {}: {}{}", human_count(items, "program"), participle_, why,
                               items > 1 ? fmt::format(" (the first is {})", first) : fmt::format(" ({})", first)));
  if (!problems_.empty()) context_.status = exit_status::failed;
}

void TransferDisplay::report_plan(const std::vector<PlannedProgram>& programs) {
  bar_.reset();
  report_problems();
  std::uint64_t bytes = 0;
  for (const auto& program : programs) bytes += program.bytes.value_or(0);
  if (context_.json) {
    Json object = json(true);
    object["missing"] = programs.size();
    object["bytes"] = bytes;
    object["present"] = present_;
    auto& list = object["first"] = Json::array();
    for (std::size_t i = 0; i < std::min(programs.size(), most_planned); ++i) {
      const auto& [name, device, compile_time, size] = programs[i];
      using Milliseconds = std::chrono::duration<double, std::milli>;
      list.push_back({{"name", name},
                      {"device", device},
                      {"compile_ms", compile_time ? Json(Milliseconds(*compile_time).count()) : Json(nullptr)},
                      {"bytes", size ? Json(*size) : Json(nullptr)}});
    }
    return print_json(object);
  }
  print(fmt::format("would {} {} of {} ({}), {} are there\n", verb_, programs.size(),
                    human_count(programs_, "program"), human_size(bytes), present_));
  using enum Table::Align;
  Table table({{"PROGRAM", left, Table::Overflow::cut},
               {"DEVICE", left, Table::Overflow::cut},
               {"COMPILE TIME", right},
               {"SIZE", right}});
  for (std::size_t i = 0; i < std::min(programs.size(), most_planned); ++i) {
    const auto& [name, device, compile_time, size] = programs[i];
    table.add({name, device, compile_time ? human_duration(*compile_time) : "-", size ? human_size(*size) : "-"});
  }
  if (!programs.empty()) print("\n" + table.format(context_.terminal()));
}

void TransferDisplay::report_end(const store::TransferReport& report) {
  bar_.reset();
  report_problems();
  if (report.stopped) complain("stopped: " + report.stopped->message());
  const std::size_t done = present_ + report.done + report.skipped;
  if (report.stopped) context_.status = exit_status::failed;
  if (report.was_interrupted) context_.status = exit_status::interrupted;
  const auto time = Clock::now() - start_;
  if (context_.json) {
    Json object = json(false);
    object[participle_] = report.done;
    object["bytes"] = report.bytes;
    object["present"] = present_;
    object["skipped"] = report.skipped;
    if (verb_ == "push") object["signed"] = signed_;
    object["interrupted"] = report.was_interrupted;
    object["stopped"] = report.stopped ? Json(report.stopped->message()) : Json(nullptr);
    object["seconds"] = std::chrono::duration<double>(time).count();
    return print_json(object);
  }
  if (report.was_interrupted && !begun_)
    return complain("interrupted before the first transfer; run the same command to go on");
  if (report.was_interrupted)
    return complain(fmt::format("interrupted: {} of {} done; run the same command to go on", done, programs_));
  print(fmt::format("{} {} of {} ({}), {} were there{}{}, in {}\n", participle_, report.done,
                    human_count(programs_, "program"), human_size(report.bytes), present_,
                    report.skipped > 0 ? fmt::format(", {} skipped", report.skipped) : "",
                    signed_ > 0 ? fmt::format(", {} signed with your keys", signed_) : "", human_duration(time)));
}

}  // namespace kiln::cli
