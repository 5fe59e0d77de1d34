#include "bake/targets.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include <kiln/device.hpp>

#include "backend/offline.hpp"
#include "base/try.hpp"

namespace kiln::baking {
namespace {

constexpr std::array<std::string_view, 5> apis = {"cuda", "hip", "opencl", "opengl", "vulkan"};

/// The number of an architecture, as in "sm_90" with the prefix "sm_".
std::optional<int> number_of(std::string_view architecture, std::string_view prefix) {
  if (!architecture.starts_with(prefix)) return std::nullopt;
  architecture.remove_prefix(prefix.size());
  int number = 0;
  const char* const end = architecture.data() + architecture.size();
  const auto [last, error] = std::from_chars(architecture.data(), end, number);
  return error == std::errc() && last == end ? std::optional(number) : std::nullopt;
}

Error not_a_target(const std::string& name) {
  return Error(
      ErrorCode::invalid_request,
      fmt::format("\"{}\" is not a target; write cuda:sm_90, cuda:compute_90, cuda:all, hip:gfx90a, vulkan, "
                  "or opengl:here, opencl:here or vulkan:here for a device of this machine",
                  name));
}

/// Replaces cuda:all by all architectures of NVRTC.
Result<std::vector<std::string>> expanded(const std::vector<std::string>& names) {
  std::vector<std::string> all;
  for (const std::string& name : names) {
    if (name != "cuda:all") {
      all.push_back(name);
      continue;
    }
    for (const std::string& architecture : KILN_TRY(backend::cuda_architectures()))
      all.push_back("cuda:" + architecture);
  }
  return all;
}

/// The target with PTX of the newest architecture of these; nothing if there is none.
std::optional<std::string> newest_ptx(const std::vector<std::string>& names) {
  std::optional<int> newest;
  for (const std::string& name : names)
    for (const std::string_view prefix : {"cuda:sm_", "cuda:compute_"})
      if (const auto number = number_of(name, prefix)) newest = std::max(newest.value_or(0), *number);
  return newest ? std::optional(fmt::format("cuda:compute_{}", *newest)) : std::nullopt;
}

Result<Target> open_target(const std::string& name, const Log& log) {
  const std::size_t colon = std::min(name.find(':'), name.size());
  const std::string api = name.substr(0, colon);
  const std::string rest = name.substr(std::min(colon + 1, name.size()));
  if (std::ranges::find(apis, api) == apis.end()) return not_a_target(name);
  if (rest == "here") {
    auto device = open_device(api, log);
    if (!device)
      return Error(device.error().code(),
                   fmt::format("the target {} cannot be used: {}", name, device.error().message()));
    if ((*device)->identity().formats.empty())
      return Error(ErrorCode::unsupported,
                   fmt::format("the target {} cannot be used: the driver of {} provides no binaries", name,
                               (*device)->identity().device));
    return Target{name, *std::move(device)};
  }
  const bool is_cuda = api == "cuda" && (rest.starts_with("sm_") || rest.starts_with("compute_"));
  const bool is_hip = api == "hip" && rest.starts_with("gfx");
  if (!is_cuda && !is_hip && name != "vulkan") return not_a_target(name);
  const std::string& offline = name == "vulkan" ? name : rest;
  auto backend = backend::open_offline(offline, log);
  if (!backend)
    return Error(backend.error().code(),
                 fmt::format("the target {} cannot be used: {}", name, backend.error().message()));
  return Target{name, *std::move(backend), offline};
}

}  // namespace

Result<std::vector<Target>> open_targets(const std::vector<std::string>& names, bool adds_ptx, const Log& log) {
  auto all = KILN_TRY(expanded(names));
  if (all.empty())
    return Error(ErrorCode::invalid_request, "a bundle needs a target, such as cuda:sm_90 or vulkan");
  if (adds_ptx)
    if (auto ptx = newest_ptx(all)) all.push_back(*std::move(ptx));
  std::vector<Target> targets;
  std::vector<Digest> digests;
  for (const std::string& name : all) {
    if (std::ranges::find(targets, name, &Target::name) != targets.end()) continue;
    Target target = KILN_TRY(open_target(name, log));
    // cuda:here may be an architecture of the list.
    const Digest digest = target.backend->identity().target_digest();
    if (std::ranges::find(digests, digest) != digests.end()) continue;
    digests.push_back(digest);
    targets.push_back(std::move(target));
  }
  return targets;
}

bool Target::takes(const key::RecordedRequest& request) const {
  if (offline.empty()) return true;
  // Its language and options decide.
  return backend::suits(
      Request({.name = request.key.name, .source = ";", .language = request.language, .options = request.options}),
      offline);
}

}  // namespace kiln::baking
