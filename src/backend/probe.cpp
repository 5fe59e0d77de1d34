#include "backend/probe.hpp"

#include <csignal>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "backend/traits.hpp"
#include "base/try.hpp"

namespace kiln::backend {
namespace {

bool is_crash(int signal) {
  switch (signal) {
    case SIGSEGV:
    case SIGBUS:
    case SIGILL:
    case SIGFPE:
    case SIGABRT:
    case SIGTRAP:
    case SIGSYS: return true;
    default: return false;
  }
}

/// What became of a driver whose helper gave no list of devices.
std::string problem_of(const HelperAnswer& answer, std::chrono::milliseconds patience) {
  if (answer.timed_out)
    return fmt::format(
        "its driver did not list its devices within {} s: it hangs, or the machine is overloaded; try again, or "
        "remove or repair it",
        std::chrono::duration<double>(patience).count());
  if (!answer.end)
    return "its driver crashed, or ended the process that asked for its devices; remove or repair it";
  if (is_crash(answer.end->signal))
    return fmt::format("its driver crashed when it was loaded ({}); remove or repair it",
                       sigdescr_np(answer.end->signal));
  if (answer.end->signal != 0)
    return fmt::format("the process that asked for its devices was ended by signal {}; try again",
                       answer.end->signal);
  return "its driver ended the process that asked for its devices; remove or repair it";
}

}  // namespace

Probe::Probe(std::string_view api, const std::string& helper, std::chrono::milliseconds patience)
    : api_(api),
      patience_(patience),
      deadline_(std::chrono::steady_clock::now() + patience),
      process_(HelperProcess::start(helper, {"devices", std::string(api)})) {}

Result<std::vector<DeviceInfo>> Probe::answer() {
  if (!process_) return process_.error();
  const auto answer = KILN_TRY(process_->answer(deadline_));
  if (answer.line) {
    if (auto devices = from_json_line(*answer.line)) return *std::move(devices);
    return Error(ErrorCode::io, "kiln-helper sent a list of devices that this build of Kiln cannot read");
  }
  return std::vector<DeviceInfo>{{.name = std::string(api_),
                                  .identity = {.api = std::string(api_)},
                                  .problem = problem_of(answer, patience_)}};
}

}  // namespace kiln::backend
