#include "child.hpp"

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
#include "report.hpp"

namespace kiln::cli::demo {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

void send(int descriptor, const Json& message) {
  const std::string line = message.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  std::string_view left = line;
  while (!left.empty()) {
    const ssize_t written = ::write(descriptor, left.data(), left.size());
    // Nobody listens any more.
    if (written <= 0) throw Failure(Error(ErrorCode::io, "the process that started this one is gone"));
    left.remove_prefix(static_cast<std::size_t>(written));
  }
}

/// Where the result differs from what was expected, as a sentence; empty where it does not.
template <class T>
std::string difference(const std::vector<T>& result, const std::vector<T>& expected, double tolerance) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto is = static_cast<double>(result[i]);
    const auto should = static_cast<double>(expected[i]);
    const double allowed = std::is_integral_v<T> ? 0.0 : tolerance * std::max(1.0, std::abs(should));
    // Not a number is not within any distance.
    if (!(std::abs(is - should) <= allowed))
      return fmt::format("its result is wrong: element {} of {} is {}, the CPU computes {}", i, expected.size(),
                         result[i], expected[i]);
  }
  return {};
}

/// Runs the program and compares what it computed; throws Failure where it cannot run.
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

/// What is wrong with a program or its result, as a sentence; empty where all is right.
std::string check(Device& device, const Case& one, const Result<Program>& program) {
  try {
    return run_and_check(device, one, program.value().module());
  } catch (const Failure& failure) {
    return failure.what();
  }
}

/// A program, or what was wrong with it, and what getting it took.
struct Got {
  Result<Program> program;
  Clock::duration time;
};

Got timed_get(Cache& cache, const Result<Request>& request) {
  // The device cannot run such a program.
  if (!request) return {request.error(), {}};
  const auto start = Clock::now();
  Result<Program> program = cache.get(*request);
  const auto end = Clock::now();
  return {std::move(program), end - start};
}

ProgramReport report_of(const Case& one, const Got& got) {
  ProgramReport report{.name = one.kernel.name, .get_ms = Milliseconds(got.time).count()};
  if (got.program)
    report.origin = to_string(got.program->origin());
  else
    report.problem = got.program.error().describe();
  return report;
}

/// Warnings for the process that draws: written to the terminal they would run across its table.
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

void run_all(const Context& context, int descriptor) {
  // Who asks for a log gets it as it is written.
  Warnings warnings;
  const bool logging = context.verbose || std::getenv("KILN_LOG") != nullptr;
  const Log log = logging ? context.log() : warnings.log();
  const std::shared_ptr<Device> device = open_device(context.device, log).value();
  const std::vector<Case> all = cases();
  Cache cache(device, {.directory = context.directory(), .log = log});

  const Identity& identity = device->identity();
  ProcessReport report{.device = identity.device, .driver = identity.driver, .binaries = !identity.formats.empty()};
  std::vector<Result<Request>> requests;
  for (const Case& one : all) {
    report.names.push_back(one.kernel.name);
    requests.push_back(one.kernel.request(*device));
  }
  send(descriptor, hello_message(report));

  // A program that computes has used its device before: what a driver does at the first use is not part of a get.
  upload(*device, std::vector<float>(1)).value();
  // An OpenGL application has its context current all along.
  std::optional<opengl::Current> current;
  if (identity.api == "opengl") current.emplace(opengl::make_current(*device).value());
  std::vector<Got> programs;
  for (std::size_t i = 0; i < all.size(); ++i) {
    programs.push_back(timed_get(cache, requests[i]));
    send(descriptor, program_message(report_of(all[i], programs.back())));
  }
  // All are got before the first one runs, as by an application that starts: a driver that translates a program at
  // its first launch would else leave no processor cache as it was, and so slow down the next get.
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

int run_child(const Context& context, int descriptor) {
  try {
    run_all(context, descriptor);
    return exit_status::ok;
  } catch (const Failure& failure) {
    send(descriptor, failure_message(failure.what()));
    return exit_status::failed;
  }
}

}  // namespace kiln::cli::demo
