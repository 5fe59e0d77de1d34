#include "backend/probe.hpp"

#include <cstring>
#include <utility>
#include <vector>

#include <unistd.h>

#include <fmt/format.h>

#include "backend/device_info.hpp"
#include "base/installed.hpp"
#include "base/process.hpp"
#include "base/try.hpp"

namespace kiln::backend {
namespace {

constexpr const char* helper_name = "kiln-helper";

constexpr base::InstalledPlace helper_place = {KILN_LIBEXEC_FROM_LIB, KILN_LIBEXEC_FROM_BIN, ".", KILN_LIBEXEC};

}  // namespace

std::string_view helper_greeting() noexcept { return "kiln-helper " KILN_VERSION ", protocol 4\n"; }

std::optional<std::string> find_helper() {
  if (const char* wanted = base::environment("KILN_HELPER"); wanted != nullptr && *wanted != '\0') return wanted;
  for (const auto& folder : base::folders_of(helper_place)) {
    const auto path = (folder / helper_name).lexically_normal();
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return std::nullopt;
}

namespace {

/// The problem of a driver whose helper sent no list of devices.
std::string problem_of(const HelperAnswer& answer, std::chrono::milliseconds patience) {
  if (answer.timed_out)
    return fmt::format(
        "its driver did not list its devices within {} s: it hangs, or the machine is overloaded; try again, or "
        "remove or repair it",
        std::chrono::duration<double>(patience).count());
  if (!answer.end) return "its driver crashed or ended the process that listed its devices; remove or repair it";
  if (answer.end->is_crash())
    return fmt::format("its driver crashed when it was loaded ({}); remove or repair it",
                       sigdescr_np(answer.end->signal));
  if (answer.end->signal != 0)
    return fmt::format("the process that listed its devices was killed by signal {}; try again",
                       answer.end->signal);
  return "its driver ended the process that listed its devices; remove or repair it";
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
