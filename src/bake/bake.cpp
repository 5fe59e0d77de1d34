#include <kiln/bake.hpp>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <exception>
#include <span>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <nlohmann/json.hpp>

#include "backend/processors.hpp"
#include "bake/part_folder.hpp"
#include "bake/recorded_programs.hpp"
#include "bake/remaining_time.hpp"
#include "bake/targets.hpp"
#include "bake/working_folder.hpp"
#include "base/mutex.hpp"
#include "base/process.hpp"
#include "base/try.hpp"
#include "store/bundle.hpp"
#include "store/sealed_entry.hpp"

namespace kiln {
namespace {

using baking::PartFolder;
using baking::RecordedPrograms;
using baking::Target;
using baking::WorkingFolder;
using key::RequestRecord;
using Clock = std::chrono::steady_clock;

/// The time of the entries: equal inputs give equal bytes. See reproducible-builds.org for the variable.
std::chrono::system_clock::time_point creation_time() {
  std::int64_t seconds = 0;
  if (const char* text = base::environment("SOURCE_DATE_EPOCH")) {
    const std::string_view digits = text;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), seconds);
    if (error != std::errc() || end != digits.data() + digits.size() || seconds < 0) seconds = 0;
  }
  return std::chrono::system_clock::time_point(std::chrono::seconds(seconds));
}

/// The path, absolute and without links in its folder, because names of files begin with it.
Result<std::filesystem::path> output_path(const std::filesystem::path& output) {
  if (!output.has_filename())
    return Error(ErrorCode::invalid_request, "a bundle needs a file that it is written to");
  std::error_code error;
  const auto path = std::filesystem::absolute(output, error);
  const auto folder = error ? std::filesystem::path() : std::filesystem::canonical(path.parent_path(), error);
  if (error) return Error(ErrorCode::io, fmt::format("{} cannot be written: {}", output.string(), error.message()));
  if (std::filesystem::is_directory(path, error))
    return Error(ErrorCode::io, fmt::format("{} cannot be written, because it is a folder", output.string()));
  return folder / path.filename();
}

Result<Compiled> compile_with(Backend& backend, const Request& request) {
  const auto failed = [&](ErrorCode code, std::string_view why) {
    return Error(code, fmt::format("{} was not compiled: {}", request.name(), why));
  };
  try {
    return backend.compile(request);
  } catch (const std::bad_alloc&) {
    return failed(ErrorCode::out_of_memory, "the host has no memory left");
  } catch (const std::exception& exception) {
    return failed(ErrorCode::device_failed, exception.what());
  }
}

/// Whether another call may not have this failure, although it gets the same records and compilers.
bool is_retriable(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_request:
    case ErrorCode::include_not_found:
    case ErrorCode::include_cycle:
    case ErrorCode::compile_failed:
    case ErrorCode::load_failed:
    case ErrorCode::damaged:
    case ErrorCode::unsupported: return false;
    default: return true;
  }
}

/// One call of bake().
class Bake {
 public:
  Bake(const BakeOptions& options, const std::function<void(const BakeProgress&)>& progress,
       std::vector<Target> targets, std::unique_ptr<RecordedPrograms> programs, PartFolder part)
      : options_(options),
        progress_(progress),
        targets_(std::move(targets)),
        programs_(std::move(programs)),
        part_(std::move(part)),
        threads_(options.jobs > 0 ? options.jobs : backend::usable_processors()),
        remaining_(targets_.size(), threads_) {}

  Result<BakeReport> run(const std::filesystem::path& output) KILN_EXCLUDES(mutex_);

 private:
  struct Job {
    std::size_t target = 0;
    std::size_t program = 0;
    double cost = 0;
    store::EntryLabel label = {};
    /// Whether the folder has the program.
    bool is_compiled = false;
    std::optional<Digest> without_toolkit = {};
  };

  Result<void> plan() KILN_REQUIRES(mutex_);
  Result<void> compile_all();
  void compile_some() KILN_EXCLUDES(mutex_);
  Result<PartFolder::Kept> compile(const Job& job, const RecordedPrograms::Use& use) const;
  void finish(Job& job, const Result<PartFolder::Kept>& program, std::chrono::nanoseconds time)
      KILN_EXCLUDES(mutex_);
  /// No further programs are begun, and no bundle is written.
  void stop(const Error& error) KILN_EXCLUDES(mutex_);
  void add(Job& job, const PartFolder::Kept& program) KILN_REQUIRES(mutex_);
  Result<void> write(const std::filesystem::path& output) KILN_REQUIRES(mutex_);
  /// The sealed entry for the bundle. Adds its size to `bytes`.
  Result<std::vector<std::byte>> read(const Job& job, std::uint64_t& bytes) const;
  Result<void> write_record() KILN_REQUIRES(mutex_);
  bool is_interrupted() const;

  const BakeOptions& options_;
  const std::function<void(const BakeProgress&)>& progress_;
  const std::vector<Target> targets_;
  const std::unique_ptr<RecordedPrograms> programs_;
  PartFolder part_;
  const unsigned threads_;
  const std::chrono::system_clock::time_point created_ = creation_time();
  /// The slowest first. Changed by plan(), and then only by the thread that compiles the job.
  std::vector<Job> jobs_;
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> has_stopped_{false};

  base::Mutex mutex_;
  BakeReport report_ KILN_GUARDED_BY(mutex_);
  std::size_t done_ KILN_GUARDED_BY(mutex_) = 0;
  baking::RemainingTime remaining_ KILN_GUARDED_BY(mutex_);
  std::exception_ptr thrown_ KILN_GUARDED_BY(mutex_);
  std::optional<Error> error_ KILN_GUARDED_BY(mutex_);
};

Result<BakeReport> Bake::run(const std::filesystem::path& output) {
  {
    const base::MutexLock lock(mutex_);
    KILN_TRY(plan());
  }
  KILN_TRY(compile_all());
  const base::MutexLock lock(mutex_);
  if (thrown_) std::rethrow_exception(thrown_);
  if (error_) return *std::move(error_);
  report_.was_interrupted = has_stopped_;
  if (!has_stopped_) KILN_TRY(write(output));
  return std::move(report_);
}

Result<void> Bake::plan() {
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    const Target& target = targets_[i];
    const Identity& identity = target.backend->identity();
    const store::EntryLabel label = {.identity = identity.digest(), .target = identity.target_digest()};
    bool has_requests = false;
    for (std::size_t program = 0; program < programs_->size(); ++program) {
      const RequestRecord::Entry& entry = (*programs_)[program];
      if (entry.api != identity.api) continue;
      has_requests = true;
      // One that is damaged is reported when it is compiled.
      if (const auto request = programs_->request(program); request && !target.takes(*request)) {
        ++report_.skipped;
        continue;
      }
      Job& job = jobs_.emplace_back(Job{i, program, programs_->cost(program), label});
      job.label.key = entry.key.digest;
    }
    if (!has_requests)
      return Error(ErrorCode::invalid_request,
                   fmt::format("no request is for the target {}, which needs requests for {}; the records have "
                               "requests for {}. Record a run on such a device, or add source files with `kiln "
                               "record add`",
                               target.name, identity.api, programs_->apis()));
    report_.targets.push_back({.name = target.name});
  }
  // Targets of one program follow each other, so that its files are unpacked once.
  std::ranges::stable_sort(
      jobs_, [](const Job& a, const Job& b) { return a.cost != b.cost ? a.cost > b.cost : a.program < b.program; });
  for (Job& job : jobs_) {
    if (const auto kept = part_.find(job.label, (*programs_)[job.program].compile_time, created_)) {
      ++report_.resumed;
      add(job, *kept);
    } else {
      programs_->add_user(job.program);
      remaining_.expect(job.target, job.cost);
    }
  }
  done_ = report_.resumed;
  return {};
}

Result<void> Bake::compile_all() {
  const auto pending = static_cast<std::size_t>(std::ranges::count(jobs_, false, &Job::is_compiled));
  // Never on this thread, whose working folder would be changed for good.
  std::vector<std::jthread> threads;
  try {
    while (threads.size() < std::min<std::size_t>(threads_, pending))
      threads.emplace_back([this] { compile_some(); });
  } catch (const std::system_error& error) {
    if (threads.empty())
      return Error(ErrorCode::out_of_memory, fmt::format("no thread can be started: {}", error.what()));
  }
  return {};
}

void Bake::compile_some() {
  const WorkingFolder working_folder;
  for (;;) {
    const std::size_t next = next_++;
    if (next >= jobs_.size()) return;
    Job& job = jobs_[next];
    if (job.is_compiled) continue;
    try {
      const auto place = targets_[job.target].backend->wait_for_place(Urgency::background);
      if (has_stopped_ || is_interrupted()) {
        has_stopped_ = true;
        return;
      }
      const auto start = Clock::now();
      const RecordedPrograms::Use use(*programs_, job.program, part_, working_folder);
      const auto program = compile(job, use);
      // Ctrl-C also ends the compilers that are processes of their own.
      if (!program && is_interrupted()) {
        has_stopped_ = true;
        return;
      }
      if (program)
        if (const auto kept = part_.keep(job.label, *program); !kept) return stop(kept.error());
      finish(job, program, Clock::now() - start);
    } catch (...) {
      const base::MutexLock lock(mutex_);
      thrown_ = std::current_exception();
      has_stopped_ = true;
    }
  }
}

Result<PartFolder::Kept> Bake::compile(const Job& job, const RecordedPrograms::Use& use) const {
  const auto of_job = [&](const Error& error) { return use.with_relative_paths(error); };
  if (!use.request()) return of_job(use.request().error());
  const Request& request = *use.request();
  const auto before = request.check_files();
  if (!before) return of_job(before.error());
  auto compiled = compile_with(*targets_[job.target].backend, request);
  if (!compiled) return of_job(compiled.error());
  if (!compiled->binary)
    return Error(ErrorCode::unsupported, fmt::format("the driver provides no binary of {}", request.name()));
  // The headers of a toolkit are outside of the folder.
  const auto after = request.check_files();
  if (!after) return of_job(after.error());
  if (*before != *after)
    return Error(ErrorCode::outdated, fmt::format("a header of {} changed while it was compiled", request.name()));
  store::Entry entry{
      .compile_time = (*programs_)[job.program].compile_time, .created = created_, .facts = request.describe()};
  entry.parts.emplace(store::binary_part, *std::move(compiled->binary));
  if (request.files().size() > 1) {
    const std::string files = use.describe_files();
    const auto bytes = std::as_bytes(std::span(files));
    entry.parts.emplace(store::files_part, Binary{.bytes = {bytes.begin(), bytes.end()}});
  }
  return PartFolder::Kept{.sealed = store::seal_entry(job.label, entry),
                          .without_toolkit = request.digest_without_toolkit()};
}

void Bake::stop(const Error& error) {
  const base::MutexLock lock(mutex_);
  if (!error_)
    error_ = Error(error.code(), fmt::format("{}; the same command goes on with the programs that are compiled",
                                             error.message()));
  has_stopped_ = true;
}

void Bake::finish(Job& job, const Result<PartFolder::Kept>& program, std::chrono::nanoseconds time) {
  const std::string& name = (*programs_)[job.program].key.name;
  const std::string& target = targets_[job.target].name;
  const base::MutexLock lock(mutex_);
  if (program) {
    ++report_.compiled;
    add(job, *program);
  } else {
    report_.failures.push_back({name, target, program.error()});
    if (is_retriable(program.error().code())) ++report_.retriable;
  }
  remaining_.finish(job.target, job.cost, time);
  ++done_;
  if (!progress_) return;
  progress_({done_, jobs_.size(), name, target, program ? nullptr : &program.error(), remaining_.estimate()});
}

void Bake::add(Job& job, const PartFolder::Kept& program) {
  job.is_compiled = true;
  job.without_toolkit = program.without_toolkit;
  ++report_.programs;
  ++report_.targets[job.target].programs;
  report_.targets[job.target].bytes += program.sealed.size();
}

Result<void> Bake::write(const std::filesystem::path& output) {
  for (const RequestRecord& record : programs_->records())
    if (record.damaged() > 0)
      report_.failures.push_back(
          {.name = record.path().string(),
           .error = Error(ErrorCode::damaged, fmt::format("{} damaged items were skipped", record.damaged()))});
  std::vector<std::uint64_t> bytes(targets_.size());
  store::BundleContents contents;
  for (const Target& target : targets_) contents.identities.push_back(target.backend->identity());
  contents.facts = nlohmann::json{{"baked_by", "Kiln " KILN_VERSION}}.dump();
  for (const Job& job : jobs_)
    if (job.is_compiled)
      contents.entries.push_back({.identity = job.target,
                                  .key = job.label.key,
                                  .without_toolkit = job.without_toolkit,
                                  .read = [this, &job, &bytes] { return read(job, bytes[job.target]); }});
  if (options_.adds_requests) {
    KILN_TRY(write_record());
    contents.record = part_.record();
  }
  report_.bytes = KILN_TRY(store::write_bundle(output, contents));
  for (std::size_t i = 0; i < bytes.size(); ++i) report_.targets[i].bytes = bytes[i];
  if (report_.retriable == 0) part_.remove();
  return {};
}

Result<std::vector<std::byte>> Bake::read(const Job& job, std::uint64_t& bytes) const {
  std::vector<std::byte> sealed = KILN_TRY(part_.read(job.label)).sealed;
  if (!options_.compresses) {
    const auto opened = KILN_TRY(store::open_entry(sealed));
    sealed = store::seal_entry(opened.label, opened.entry, store::Packing::plain);
  }
  bytes += sealed.size();
  return sealed;
}

Result<void> Bake::write_record() {
  key::RecordWriter writer(part_.record());
  for (std::size_t program = 0; program < programs_->size(); ++program) {
    const auto copied = programs_->copy(program, writer);
    if (copied) continue;
    if (copied.error().code() != ErrorCode::damaged) return copied.error();
    report_.failures.push_back({.name = (*programs_)[program].key.name, .error = copied.error()});
  }
  return {};
}

bool Bake::is_interrupted() const {
  pollfd wait = {options_.interrupted, POLLIN, 0};
  return options_.interrupted >= 0 && ::poll(&wait, 1, 0) > 0;
}

}  // namespace

Result<BakeReport> bake(const BakeOptions& options, const std::function<void(const BakeProgress&)>& progress) {
  const auto output = KILN_TRY(output_path(options.output));
  auto programs = KILN_TRY(RecordedPrograms::read(options.records));
  if (programs->size() == 0) return Error(ErrorCode::invalid_request, "the records have no request");
  auto targets = KILN_TRY(baking::open_targets(options.targets, options.adds_ptx, options.log));
  auto part = KILN_TRY(PartFolder::open(output));
  return Bake(options, progress, std::move(targets), std::move(programs), std::move(part)).run(output);
}

}  // namespace kiln
