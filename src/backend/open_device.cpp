#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <iterator>

#include <fmt/format.h>

#include <kiln/device.hpp>

#include "backend/api.hpp"
#include "backend/device_info.hpp"
#include "backend/probe.hpp"
#include "base/asymmetric_fence.hpp"
#include "base/mutex.hpp"
#include "base/process.hpp"

namespace kiln {
namespace {

using backend::Api;
using backend::apis;
using backend::find_api;

/// The order of preference for CPU devices, by how fast the APIs start and compile.
constexpr std::array<std::string_view, 3> apis_on_cpu = {"opengl", "vulkan", "opencl"};

std::string known_apis() {
  std::string names;
  for (const Api& api : apis()) names += (names.empty() ? "" : ", ") + std::string(api.name);
  return names;
}

/// Held while a driver is loaded into this process, because drivers are loaded one at a time.
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

/// The device lists of all APIs, each made by a kiln-helper process. All processes start at once. Without a helper,
/// the drivers are loaded into this process.
class Lists {
 public:
  explicit Lists(const Log& log) : log_(log) {
    const auto helper = backend::find_helper();
    if (!helper) {
      log.debug("there is no kiln-helper: drivers are loaded into this process to list their devices");
      return;
    }
    log.debug(fmt::format("drivers are asked for their devices by {}", *helper));
    for (const Api& api : apis()) probes_.emplace_back(api.name, *helper);
  }

  /// The devices of apis()[place]. Call it once per place.
  std::vector<DeviceInfo> take(std::size_t place) {
    if (!probes_.empty()) {
      auto devices = probes_[place].answer();
      if (devices) return *std::move(devices);
      // If the user named a helper, a failure deserves a warning.
      log_.write(
          base::environment("KILN_HELPER") != nullptr ? LogLevel::warning : LogLevel::debug,
          fmt::format("{}: drivers are loaded into this process to list their devices", devices.error().message()));
      // The helper would fail for the other APIs too.
      probes_.clear();
    }
    return list(apis()[place], log_);
  }

 private:
  const Log& log_;
  std::vector<backend::Probe> probes_;
};

/// The number in a device name, as in "opencl:1"; nullopt if it has none.
std::optional<std::size_t> number_of(const Api& api, std::string_view name) {
  if (name.size() <= api.name.size()) return std::nullopt;
  const std::string_view digits = name.substr(api.name.size() + 1);
  std::size_t number = 0;
  // Longer ones are the beginning of a UUID.
  constexpr std::size_t most_digits = 4;
  if (digits.size() > most_digits) return std::nullopt;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return error == std::errc() && end == digits.data() + digits.size() ? std::optional(number) : std::nullopt;
}

/// Opens the first usable device of an API. If there is none, returns the error of the first device.
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

/// Opens the device of an API with this UUID.
Result<std::shared_ptr<Device>> open_by_uuid(const Api& api, std::string_view name, const Log& log) {
  const std::string_view uuid = name.substr(api.name.size() + 1);
  const std::vector<DeviceInfo> devices = list(api, log);
  std::vector<std::string> known;
  std::vector<std::string> matching;
  std::vector<const DeviceInfo*> found;
  for (const DeviceInfo& device : devices) {
    if (device.uuid.empty()) continue;
    known.push_back(fmt::format("{} ({})", device.uuid, device.name));
    if (!backend::is_uuid_of(device, uuid)) continue;
    matching.push_back(known.back());
    // A driver may list one device twice.
    if (found.empty() || found.front()->uuid != device.uuid) found.push_back(&device);
  }
  if (found.size() > 1)
    return Error(ErrorCode::no_device, fmt::format("\"{}\" is the beginning of the UUIDs of several devices: {}",
                                                   name, fmt::join(matching, ", ")));
  // There is no driver, or no device.
  if (known.empty() && devices.size() == 1 && !devices.front().problem.empty())
    return Error(ErrorCode::no_device, fmt::format("{}: {}", name, devices.front().problem));
  if (found.size() == 1) return open(api, *number_of(api, found.front()->name), log);
  std::string message =
      fmt::format("\"{}\" names no device: write {}, {}:0, or {}: and a UUID", name, api.name, api.name, api.name);
  if (!known.empty()) message += fmt::format("; the UUIDs here are {}", fmt::join(known, ", "));
  // The driver shows one MIG instance at most, and only those devices that the variable names.
  if (const char* visible = base::environment("CUDA_VISIBLE_DEVICES"); api.name == "cuda" && visible != nullptr)
    message += fmt::format("; CUDA_VISIBLE_DEVICES is \"{}\"", visible);
  else if (api.name == "cuda" && uuid.starts_with("MIG-"))
    message += "; to use a MIG instance, set CUDA_VISIBLE_DEVICES to its UUID";
  return Error(ErrorCode::no_device, std::move(message));
}

/// Warns of GPUs for which a CPU is preferred, because a user expects the GPU.
void warn_of_unused_gpus(const DeviceInfo& chosen, const std::vector<DeviceInfo>& without_compiler,
                         const Log& log) {
  for (const DeviceInfo& gpu : without_compiler)
    if (!gpu.software)
      log.warning(
          fmt::format("{} ({}) is not used, because it has no compiler: {}. The CPU ({}) is used. To run "
                      "programs of bundles on the GPU, set KILN_DEVICE={}, or call open_device(\"{}\")",
                      gpu.label.empty() ? gpu.identity.device : gpu.label, gpu.name, gpu.compiler_problem,
                      chosen.name, gpu.name, gpu.name));
}

/// Opens the best device of all APIs: a GPU before a CPU, and a device without a compiler last.
Result<std::shared_ptr<Device>> open_best(const Log& log) {
  std::vector<DeviceInfo> on_cpu;
  std::vector<DeviceInfo> without_compiler;
  std::string problems;
  Lists lists(log);
  for (std::size_t place = 0; place < apis().size(); ++place) {
    const Api& api = apis()[place];
    for (DeviceInfo& info : lists.take(place)) {
      const auto number = number_of(api, info.name);
      if (!info.problem.empty() || !number) {
        problems += fmt::format("\n  {}: {}", info.name, info.problem);
      } else if (!info.compiler_problem.empty()) {
        without_compiler.push_back(std::move(info));
      } else if (!info.software) {
        auto device = open(api, *number, log);
        if (device) return device;
        problems += fmt::format("\n  {}: {}", info.name, device.error().message());
      } else {
        on_cpu.push_back(std::move(info));
      }
    }
  }
  std::vector<const DeviceInfo*> others;
  for (const std::string_view name : apis_on_cpu)
    for (const DeviceInfo& info : on_cpu)
      if (info.identity.api == name) others.push_back(&info);
  std::ranges::stable_partition(without_compiler, [](const DeviceInfo& info) { return !info.software; });
  for (const DeviceInfo& info : without_compiler) others.push_back(&info);
  for (const DeviceInfo* info : others) {
    const Api& api = *find_api(info->identity.api);
    auto device = open(api, *number_of(api, info->name), log);
    if (device && info->software) warn_of_unused_gpus(*info, without_compiler, log);
    if (device) return device;
    problems += fmt::format("\n  {}: {}", info->name, device.error().message());
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
                 fmt::format("\"{}\" is not a device name; the known APIs are: {}", name, known_apis()));
  if (api_name.size() == name.size()) return open_first(*api, log);
  if (const auto number = number_of(*api, name)) return open(*api, *number, log);
  return open_by_uuid(*api, name, log);
}

std::vector<DeviceInfo> list_devices(const Log& log) {
  std::vector<DeviceInfo> devices;
  Lists lists(log);
  for (std::size_t place = 0; place < apis().size(); ++place) {
    auto some = lists.take(place);
    devices.insert(devices.end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
  }
  return devices;
}

}  // namespace kiln
