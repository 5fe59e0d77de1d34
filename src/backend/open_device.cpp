#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

#include <fmt/format.h>

#include <kiln/device.hpp>

#include "backend/cuda/cuda.hpp"
#include "backend/hip/hip.hpp"
#include "backend/opengl/device.hpp"

namespace kiln {
namespace {

/// One way to a GPU.
struct Api {
  std::string_view name;
  /// Its devices, those that cannot be used with the reason; one that stands for all where there is no driver.
  std::vector<DeviceInfo> (*list)(const Log& log);
  Result<std::shared_ptr<Device>> (*open)(std::size_t number, const Log& log);
};

/// In the order in which GPUs are taken where none is named; see also best_on_cpu.
constexpr std::array apis = {
    Api{"cuda", cuda::list_cuda_devices, cuda::open_cuda_device},
    Api{"hip", hip::list_hip_devices, hip::open_hip_device},
    Api{"opengl", opengl::list_gl_devices, opengl::open_gl_device},
};

std::string known_apis() {
  std::string names;
  for (const Api& api : apis) names += (names.empty() ? "" : ", ") + std::string(api.name);
  return names;
}

const Api* find_api(std::string_view name) {
  const auto* found = std::find_if(apis.begin(), apis.end(), [&](const Api& api) { return api.name == name; });
  return found != apis.end() ? found : nullptr;
}

/// The first device of an API that works.
Result<std::shared_ptr<Device>> open_first(const Api& api, const Log& log) {
  auto device = api.open(0, log);
  if (device) return device;
  for (std::size_t number = 1; const DeviceInfo& info : api.list(log)) {
    if (info.name == fmt::format("{}:{}", api.name, number) && info.problem.empty()) return api.open(number, log);
    number += info.name == fmt::format("{}:{}", api.name, number) ? 1 : 0;
  }
  return device;
}

}  // namespace

Result<std::shared_ptr<Device>> open_device(std::string_view name, const Log& log) {
  if (name.empty())
    if (const char* wanted = std::getenv("KILN_DEVICE"); wanted != nullptr) name = wanted;
  const std::string_view api_name = name.substr(0, name.find(':'));
  if (name.empty()) return open_first(*find_api("opengl"), log);
  const Api* api = find_api(api_name);
  if (api == nullptr)
    return Error(ErrorCode::no_device,
                 fmt::format("\"{}\" names no device; the APIs known are: {}", name, known_apis()));
  if (api_name.size() == name.size()) return open_first(*api, log);
  std::size_t number = 0;
  const std::string_view digits = name.substr(api_name.size() + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size())
    return Error(ErrorCode::no_device,
                 fmt::format("\"{}\" names no device; write it as {} or {}:0", name, api_name, api_name));
  return api->open(number, log);
}

std::vector<DeviceInfo> list_devices(const Log& log) {
  std::vector<DeviceInfo> devices;
  for (const Api& api : apis) {
    auto some = api.list(log);
    devices.insert(devices.end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
  }
  return devices;
}

}  // namespace kiln
