#include "backend/hip/hip.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <map>

#include <fmt/format.h>

#include "backend/cuda/callers_stream.hpp"
#include "backend/cuda/context.hpp"

namespace kiln::hip {
namespace {

/// The properties of a topology node: a name and a number per line.
std::map<std::string, unsigned long> properties_of(const std::filesystem::path& node) {
  std::map<std::string, unsigned long> properties;
  std::ifstream stream(node / "properties");
  std::string name;
  for (unsigned long value = 0; stream >> name >> value;) properties[name] = value;
  return properties;
}

}  // namespace

std::optional<std::string> architecture_name(unsigned long version) {
  if (version == 0) return std::nullopt;
  return fmt::format("gfx{}{:x}{:x}", version / 10000, version / 100 % 100, version % 100);
}

std::optional<std::string> architecture_at(std::string_view pci_id, const std::filesystem::path& nodes) {
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned device = 0;
  unsigned function = 0;
  if (std::sscanf(std::string(pci_id).c_str(), "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4)
    return std::nullopt;
  const unsigned long location = bus << 8 | device << 3 | function;
  std::error_code error;
  for (std::filesystem::directory_iterator node(nodes, error), end; !error && node != end; node.increment(error)) {
    auto properties = properties_of(node->path());
    if (properties["gfx_target_version"] != 0 && properties["location_id"] == location &&
        properties["domain"] == domain)
      return architecture_name(properties["gfx_target_version"]);
  }
  return std::nullopt;
}

namespace {

using cuda::Driver;
using cuda::Rtc;
using cuda::Target;

constexpr std::array driver_libraries = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5",
                                         "libamdhip64.so"};
constexpr std::array rtc_libraries = {"libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5", "libhiprtc.so"};

constexpr cuda::DriverNames driver_names{
    .title = "HIP",
    .maker = "AMD",
    .libraries = driver_libraries,
    .provider = "the HIP runtime (libamdhip64)",
    .symbols = cuda::SymbolSet::hip,
    .attributes = {.max_group_items = 56,
                   .max_group_size_x = 26,
                   .max_groups_x = 29,
                   .shared_bytes = 74,
                   .subgroup_width = 87,
                   .compute_units = 63},
};

constexpr cuda::RtcNames rtc_names{
    .title = "hipRTC",
    .libraries = rtc_libraries,
    .provider = "libhiprtc of ROCm 5 or later",
    .symbols = cuda::SymbolSet::hip,
};

/// Requires a device: hipRTC crashes without one.
Result<std::shared_ptr<const Rtc>> open_hiprtc(const Driver& driver) {
  // Before ROCm 5.5, hipRTC was part of the runtime library.
  if (driver.library().symbol("hiprtcVersion") != nullptr)
    for (const char* name : driver_libraries)
      if (auto same = base::DynamicLibrary::loaded(name)) return Rtc::within(rtc_names, std::move(same));
  return Rtc::open(rtc_names, {"/opt/rocm/lib"});
}

/// The part of the runtime's version that code objects depend on: its major version. Versions are numbers such as
/// 50221153 for 5.2; those of other forms count as a whole.
std::string driver_text(int version) {
  constexpr int major = 10'000'000;
  return fmt::format("HIP {}", version >= major ? version / major : version);
}

Result<Target> target_of(const Driver& driver, int device, const Rtc* /*rtc*/) {
  std::array<char, 32> pci_id = {};
  if (const auto status = driver->device_pci_id(pci_id.data(), static_cast<int>(pci_id.size()) - 1, device);
      status != cuda::status::success)
    return driver.error(status, "reading a device's PCI address");
  const auto architecture = architecture_at(pci_id.data());
  if (!architecture)
    return Error(
        ErrorCode::unsupported,
        fmt::format("the kernel driver (amdgpu, with /sys/class/kfd) does not report the architecture of the "
                    "device at {}",
                    pci_id.data()));
  return Target{*architecture, cuda::ImageKind::code_object, "--offload-arch=" + *architecture,
                driver_text(driver.version())};
}

/// A code object for exactly the device's architecture, or for one with features, as in "gfx90a:xnack-", which the
/// runtime refuses if the device lacks them. Those with features come first: they are the faster ones.
unsigned rank(const Target& own, int version, const Identity& target) {
  const std::string_view device = target.device;
  const std::size_t end = std::min(device.find(':'), device.size());
  const bool fits = device.substr(0, end) == own.architecture &&
                    target.formats.front() == static_cast<std::uint32_t>(cuda::ImageKind::code_object) &&
                    (target.driver.empty() || target.driver == driver_text(version));
  return fits ? 1 + static_cast<unsigned>(std::ranges::count(device, ':')) : 0;
}

constexpr std::array<std::string_view, 2> architecture_options = {"--offload-arch", "--gpu-architecture"};

constexpr std::array compiled_languages = {Language::code_object};

constexpr cuda::Platform hip_platform{
    .api = "hip",
    .vendor = "AMD",
    .language = Language::hip,
    .compiled_languages = compiled_languages,
    .architecture_options = architecture_options,
    .driver = &driver_names,
    .open_rtc = open_hiprtc,
    .target = target_of,
    .rank = rank,
    .wrap = cuda::LoadedModule<Module>::wrap,
    .image_of = cuda::LoadedModule<Module>::image_of,
    .kernel_of = cuda::LoadedModule<Module>::kernel_of,
};

}  // namespace

const cuda::Platform& platform() noexcept { return hip_platform; }

void* memory(const Buffer& buffer) noexcept {
  return reinterpret_cast<void*>(cuda::CudaBuffer::address_of(buffer, driver_names));
}

Result<std::unique_ptr<Buffer>> wrap(Device& device, void* address, std::size_t bytes) {
  return cuda::wrap_memory(platform(), device, reinterpret_cast<cuda::Address>(address), bytes);
}

Result<std::unique_ptr<Stream>> stream(Device& device, hipStream_t stream) {
  return cuda::stream_on(platform(), device, stream);
}

std::vector<DeviceInfo> list_hip_devices(const Log& /*log*/) { return cuda::list(platform()); }

Result<std::shared_ptr<Device>> open_hip_device(std::size_t number, const Log& /*log*/) {
  return cuda::open(platform(), number);
}

Result<std::shared_ptr<Device>> adopt(hipCtx_t context, const Log& /*log*/) {
  return cuda::adopt(platform(), context);
}

}  // namespace kiln::hip
