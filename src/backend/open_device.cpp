#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <span>

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
#include "base/environment.hpp"
#include "base/mutex.hpp"

namespace kiln {
namespace {

/// One way to a GPU.
struct Api {
  std::string_view name;
  /// The libraries through which a program may use it already, Kiln's or another.
  std::span<const char* const> (*libraries)();
  /// Its devices, GPUs first, those that cannot be used with the reason; one that stands for all where there is no
  /// driver.
  std::vector<DeviceInfo> (*list)(const Log& log);
  Result<std::shared_ptr<Device>> (*open)(std::size_t number, const Log& log);
};

constexpr std::array vulkan_libraries = {"libvulkan.so.1"};
// Programs with a window reach the driver by GLX.
constexpr std::array opengl_libraries = {"libEGL.so.1", "libGLX.so.0", "libGL.so.1"};
constexpr std::array opencl_libraries = {"libOpenCL.so.1"};

template <const auto& names>
std::span<const char* const> list_of() {
  return names;
}

/// In the order in which GPUs are taken where none is named: the vendor's own way first.
constexpr std::array apis = {
    Api{"cuda", [] { return cuda::dialect().driver->libraries; }, cuda::list_cuda_devices, cuda::open_cuda_device},
    Api{"hip", [] { return hip::dialect().driver->libraries; }, hip::list_hip_devices, hip::open_hip_device},
    Api{"vulkan", list_of<vulkan_libraries>, vulkan::list_vulkan_devices, vulkan::open_vulkan_device},
    Api{"opengl", list_of<opengl_libraries>, opengl::list_gl_devices, opengl::open_gl_device},
    Api{"opencl", list_of<opencl_libraries>, opencl::list_cl_devices, opencl::open_cl_device},
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

/// Held while a driver is loaded and while children are made, for none may be made of a process with a driver in
/// it.
base::Mutex& driver_mutex() {
  static base::Mutex mutex;
  return mutex;
}

std::vector<DeviceInfo> list(const Api& api, const Log& log) {
  const base::MutexLock lock(driver_mutex());
  return api.list(log);
}

Result<std::shared_ptr<Device>> open(const Api& api, std::size_t number, const Log& log) {
  const base::MutexLock lock(driver_mutex());
  return api.open(number, log);
}

/// Whether this process uses a GPU already. Then it is not forked: a driver's memory is shared with the GPU, and
/// with the child, and NVIDIA's was seen to compute wrong results after that.
bool uses_a_driver() {
  const auto loaded = [](const char* library) { return static_cast<bool>(base::DynamicLibrary::loaded(library)); };
  return std::any_of(apis.begin(), apis.end(), [&loaded](const Api& api) {
    const auto libraries = api.libraries();
    return std::any_of(libraries.begin(), libraries.end(), loaded);
  });
}

/// The lists of all APIs, each asked for when it is wanted, but in children that are made before any driver is
/// loaded into this process.
class Lists {
 public:
  explicit Lists(const Log& log) : log_(log) {
    const base::MutexLock lock(driver_mutex());
    if (uses_a_driver()) return;
    for (const Api& api : apis) probes_.emplace_back(api.name, api.list);
  }

  /// The devices of apis[place]; to be asked once.
  std::vector<DeviceInfo> take(std::size_t place) {
    return probes_.empty() ? list(apis[place], log_) : probes_[place].answer();
  }

 private:
  const Log& log_;
  std::vector<backend::Probe> probes_;
};

/// The number in a device's name; nothing in one that stands for all of its API.
std::optional<std::size_t> number_of(const Api& api, std::string_view name) {
  if (name.size() <= api.name.size()) return std::nullopt;
  const std::string_view digits = name.substr(api.name.size() + 1);
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return error == std::errc() && end == digits.data() + digits.size() ? std::optional(number) : std::nullopt;
}

/// The first device of an API that works; where none does, what is wrong with the first.
Result<std::shared_ptr<Device>> open_first(const Api& api, const Log& log) {
  auto first = open(api, 0, log);
  if (first) return first;
  for (const DeviceInfo& info : list(api, log)) {
    const auto number = number_of(api, info.name);
    if (!number || *number == 0 || !info.problem.empty()) continue;
    if (auto device = open(api, *number, log)) return device;
  }
  return first;
}

/// The best device of all: a GPU before a CPU.
Result<std::shared_ptr<Device>> open_best(const Log& log) {
  std::vector<DeviceInfo> on_cpu;
  std::string problems;
  Lists lists(log);
  for (std::size_t place = 0; place < apis.size(); ++place) {
    const Api& api = apis[place];
    for (DeviceInfo& info : lists.take(place)) {
      const auto number = number_of(api, info.name);
      if (!info.problem.empty() || !number) {
        problems += fmt::format("\n  {}: {}", info.name, info.problem);
      } else if (!info.software) {
        auto device = open(api, *number, log);
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
        auto device = open(api, *number_of(api, info.name), log);
        if (device) return device;
        problems += fmt::format("\n  {}: {}", info.name, device.error().message());
      }
  return Error(ErrorCode::no_device, "no device can be used:" + problems);
}

}  // namespace

Result<std::shared_ptr<Device>> open_device(std::string_view name, const Log& log) {
  base::AsymmetricFence::prepare();
  if (name.empty())
    if (const char* wanted = base::environment("KILN_DEVICE"); wanted != nullptr) name = wanted;
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
  return open(*api, *number, log);
}

std::vector<DeviceInfo> list_devices(const Log& log) {
  std::vector<DeviceInfo> devices;
  Lists lists(log);
  for (std::size_t place = 0; place < apis.size(); ++place) {
    auto some = lists.take(place);
    devices.insert(devices.end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
  }
  return devices;
}

}  // namespace kiln
