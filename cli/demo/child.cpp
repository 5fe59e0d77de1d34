#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <mutex>

#include <fmt/format.h>
#include <unistd.h>

#include <kiln/cache.hpp>
#include <kiln/opengl.hpp>

#include "case.hpp"
#include "process.hpp"

namespace kiln::cli::demo {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

void send(int descriptor, const Json& message) {
  const std::string line = message.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  std::string_view left = line;
  while (!left.empty()) {
    const ssize_t written = ::write(descriptor, left.data(), left.size());
    if (written <= 0) throw Failure(Error(ErrorCode::io, "the process that started this one has ended"));
    left.remove_prefix(static_cast<std::size_t>(written));
  }
}

/// The first difference between the result and the expected result, as a sentence; empty if there is none.
template <class T>
std::string difference(const std::vector<T>& result, const std::vector<T>& expected, double tolerance) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto is = static_cast<double>(result[i]);
    const auto should = static_cast<double>(expected[i]);
    const double allowed = std::is_integral_v<T> ? 0.0 : tolerance * std::max(1.0, std::abs(should));
    // Written so that NaN fails.
    if (!(std::abs(is - should) <= allowed))
      return fmt::format("its result is wrong: element {} of {} is {}, the CPU computes {}", i, expected.size(),
                         result[i], expected[i]);
  }
  return {};
}

/// Runs the program and compares its result; throws Failure if it cannot run.
std::string run_and_check(Device& device, const Case& one, Module& module) {
  std::vector<std::unique_ptr<Buffer>> buffers;
  for (const Values& input : one.inputs)
    buffers.push_back(std::visit([&](const auto& values) { return upload(device, values).value(); }, input));
  return std::visit(
      [&]<class T>(const std::vector<T>& expected) {
        buffers.push_back(upload(device, std::vector<T>(expected.size())).value());
        std::vector<const Buffer*> arguments;
        for (const auto& buffer : buffers) arguments.push_back(buffer.get());
        device.launch(module, one.kernel.launch(one.groups, arguments, one.scalars).value()).value();
        return difference(download<T>(device, *buffers.back()).value(), expected, one.tolerance);
      },
      one.expected);
}

/// The problem with a program or its result, as a sentence; empty if there is none.
std::string check(Device& device, const Case& one, const Result<Program>& program) {
  try {
    return run_and_check(device, one, program.value().module());
  } catch (const Failure& failure) {
    return failure.what();
  }
}

/// A program or an error, and the time of the get.
struct Got {
  Result<Program> program;
  Clock::duration time;
};

Got timed_get(Cache& cache, const Result<Request>& request) {
  // The device cannot run this program.
  if (!request) return {request.error(), {}};
  const auto start = Clock::now();
  Result<Program> program = cache.get(*request);
  const auto end = Clock::now();
  return {std::move(program), end - start};
}

/// Gets all programs at once.
std::vector<Got> preloaded(Cache& cache, const std::vector<Result<Request>>& requests) {
  std::vector<Request> possible;
  std::vector<std::size_t> places;
  std::vector<Clock::duration> times(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i)
    if (requests[i]) {
      possible.push_back(*requests[i]);
      places.push_back(i);
    }
  const auto start = Clock::now();
  cache.preload(possible, [&](const Progress& progress) { times[places[progress.index]] = Clock::now() - start; });
  std::vector<Got> programs;
  for (std::size_t i = 0; i < requests.size(); ++i)
    programs.push_back({timed_get(cache, requests[i]).program, times[i]});
  return programs;
}

ProgramReport report_of(const Case& one, const Got& got) {
  ProgramReport report{.name = one.kernel.name, .get_ms = Milliseconds(got.time).count()};
  if (got.program)
    report.origin = to_string(got.program->origin());
  else
    report.problem = got.program.error().describe();
  return report;
}

/// Collects warnings for the parent process. On the terminal they would break its table.
class Warnings {
 public:
  Log log() {
    return Log(LogLevel::warning, [this](const LogRecord& record) {
      const std::lock_guard lock(mutex_);
      texts_.push_back(record.message);
    });
  }
  std::vector<std::string> texts() const {
    const std::lock_guard lock(mutex_);
    return texts_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> texts_;
};

void run_all(const Context& context, int descriptor, bool preloads, const std::vector<std::string>& bundles) {
  // If the user asks for a log, it goes straight to standard error.
  Warnings warnings;
  const bool logging = context.verbose || std::getenv("KILN_LOG") != nullptr;
  const Log log = logging ? context.log() : warnings.log();
  const std::shared_ptr<Device> device = open_device(context.device, log).value();
  const std::vector<Case> all = cases();
  std::vector<Bundle> files;
  for (const std::string& path : bundles) files.push_back({path});
  // The configured bundles and stores could have the programs that the cold process is to compile.
  Cache cache(device, {.directory = context.directory(),
                       .bundles = std::move(files),
                       .compile = CompilePolicy::always,
                       .stores = context.stores().value_or(std::vector<SharedStore>{}),
                       .log = log});

  const Identity& identity = device->identity();
  ProcessReport report{.device = identity.device,
                       .driver = identity.driver,
                       .binaries = !identity.formats.empty(),
                       .preloads = preloads};
  std::vector<Result<Request>> requests;
  for (const Case& one : all) {
    report.names.push_back(one.kernel.name);
    requests.push_back(one.kernel.request(*device));
  }
  send(descriptor, hello_message(report));

  // The first use of a device includes initialisation of the driver, which is not part of a get.
  upload(*device, std::vector<float>(1)).value();
  // As in an OpenGL application, the context stays current.
  std::optional<opengl::Current> current;
  if (identity.api == "opengl") current.emplace(opengl::make_current(*device).value());
  std::vector<Got> programs;
  if (preloads) programs = preloaded(cache, requests);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!preloads) programs.push_back(timed_get(cache, requests[i]));
    send(descriptor, program_message(report_of(all[i], programs[i])));
  }
  // As in an application that starts, all programs are loaded before the first one runs. Some drivers translate a
  // program at its first launch, which would evict processor caches and slow down the next get.
  for (std::size_t i = 0; i < all.size(); ++i)
    send(descriptor, check_message(check(*device, all[i], programs[i].program)));

  cache.flush();
  const Stats stats = cache.stats();
  report.compiles = stats.compiles;
  report.saved_ms = Milliseconds(stats.compile_time_saved).count();
  report.warnings = warnings.texts();
  send(descriptor, goodbye_message(report));
}

}  // namespace

int run_child(const Context& context, int descriptor, bool preloads, const std::vector<std::string>& bundles) {
  try {
    run_all(context, descriptor, preloads, bundles);
    return exit_status::ok;
  } catch (const Failure& failure) {
    send(descriptor, failure_message(failure.what()));
    return exit_status::failed;
  }
}

}  // namespace kiln::cli::demo
