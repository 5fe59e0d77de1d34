#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <iterator>

#include <fmt/format.h>

#include <kiln/device.hpp>

#include "backend/cuda/cuda.hpp"
#include "backend/hip/hip.hpp"
#include "backend/opencl/device.hpp"
#include "backend/opengl/device.hpp"
#include "backend/probe.hpp"
#include "backend/vulkan/device.hpp"
#include "base/asymmetric_fence.hpp"
#include "base/dynamic_library.hpp"

namespace kiln {
namespace {

/// One way to a GPU.
struct Api {
  std::string_view name;
  /// The library through which it goes.
  const char* library;
  /// Its devices, GPUs first, those that cannot be used with the reason; one that stands for all where there is no
  /// driver.
  std::vector<DeviceInfo> (*list)(const Log& log);
  Result<std::shared_ptr<Device>> (*open)(std::size_t number, const Log& log);
};

/// In the order in which GPUs are taken where none is named: the vendor's own way first.
constexpr std::array apis = {
    Api{"cuda", "libcuda.so.1", cuda::list_cuda_devices, cuda::open_cuda_device},
    Api{"hip", "libamdhip64.so.5", hip::list_hip_devices, hip::open_hip_device},
    Api{"vulkan", "libvulkan.so.1", vulkan::list_vulkan_devices, vulkan::open_vulkan_device},
    Api{"opengl", "libEGL.so.1", opengl::list_gl_devices, opengl::open_gl_device},
    Api{"opencl", "libOpenCL.so.1", opencl::list_cl_devices, opencl::open_cl_device},
};

/// The order for devices that are the CPU: by how fast they start and compile.
constexpr std::array<std::string_view, 3> apis_on_cpu = {"opengl", "vulkan", "opencl"};

std::string known_apis() {
  std::string names;
  for (const Api& api : apis) names += (names.empty() ? "" : ", ") + std::string(api.name);
  return names;
}

const Api* find_api(std::string_view name) {
  const auto* found = std::find_if(apis.begin(), apis.end(), [&](const Api& api) { return api.name == name; });
  return found != apis.end() ? found : nullptr;
}

/// Whether this process uses a GPU already. Then it is not forked: a driver's memory is shared with the GPU, and
/// with the child, and NVIDIA's was seen to compute wrong results after that.
bool uses_a_driver() {
  return std::any_of(apis.begin(), apis.end(),
                     [](const Api& api) { return static_cast<bool>(base::DynamicLibrary::loaded(api.library)); });
}

std::vector<DeviceInfo> list_safely(const Api& api, const Log& log) {
  return uses_a_driver() ? api.list(log) : backend::list_in_child(api.name, api.list);
}

/// The number in a device's name; nothing in one that stands for all of its API.
std::optional<std::size_t> number_of(const Api& api, std::string_view name) {
  if (name.size() <= api.name.size()) return std::nullopt;
  const std::string_view digits = name.substr(api.name.size() + 1);
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return error == std::errc() && end == digits.data() + digits.size() ? std::optional(number) : std::nullopt;
}

/// The first device of an API that works.
Result<std::shared_ptr<Device>> open_first(const Api& api, const Log& log) {
  auto device = api.open(0, log);
  if (device) return device;
  for (const DeviceInfo& info : api.list(log))
    if (const auto number = number_of(api, info.name); number && info.problem.empty())
      return api.open(*number, log);
  return device;
}

/// The best device of all: a GPU before a CPU.
Result<std::shared_ptr<Device>> open_best(const Log& log) {
  std::vector<DeviceInfo> on_cpu;
  std::string problems;
  for (const Api& api : apis) {
    for (DeviceInfo& info : list_safely(api, log)) {
      const auto number = number_of(api, info.name);
      if (!info.problem.empty() || !number) {
        problems += fmt::format("\n  {}: {}", info.name, info.problem);
      } else if (!info.software) {
        auto device = api.open(*number, log);
        if (device) return device;
        problems += fmt::format("\n  {}: {}", info.name, device.error().message());
      } else {
        on_cpu.push_back(std::move(info));
      }
    }
  }
  for (const std::string_view name : apis_on_cpu)
    for (const DeviceInfo& info : on_cpu)
      if (info.identity.api == name) {
        const Api& api = *find_api(name);
        auto device = api.open(*number_of(api, info.name), log);
        if (device) return device;
        problems += fmt::format("\n  {}: {}", info.name, device.error().message());
      }
  return Error(ErrorCode::no_device, "no device can be used:" + problems);
}

}  // namespace

Result<std::shared_ptr<Device>> open_device(std::string_view name, const Log& log) {
  base::AsymmetricFence::prepare();
  if (name.empty())
    if (const char* wanted = std::getenv("KILN_DEVICE"); wanted != nullptr) name = wanted;
  if (name.empty()) return open_best(log);
  const std::string_view api_name = name.substr(0, name.find(':'));
  const Api* api = find_api(api_name);
  if (api == nullptr)
    return Error(ErrorCode::no_device,
                 fmt::format("\"{}\" names no device; the APIs known are: {}", name, known_apis()));
  if (api_name.size() == name.size()) return open_first(*api, log);
  const auto number = number_of(*api, name);
  if (!number)
    return Error(ErrorCode::no_device,
                 fmt::format("\"{}\" names no device; write it as {} or {}:0", name, api_name, api_name));
  return api->open(*number, log);
}

std::vector<DeviceInfo> list_devices(const Log& log) {
  std::vector<DeviceInfo> devices;
  for (const Api& api : apis) {
    auto some = list_safely(api, log);
    devices.insert(devices.end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
  }
  return devices;
}

}  // namespace kiln
