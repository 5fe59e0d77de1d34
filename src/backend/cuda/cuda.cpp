#include "backend/cuda/cuda.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backend/cuda/context.hpp"
#include "backend/source_text.hpp"
#include "base/process.hpp"
#include "base/try.hpp"

namespace kiln::cuda {
namespace {

constexpr std::array driver_libraries = {"libcuda.so.1"};
constexpr std::array rtc_libraries = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"};

constexpr DriverNames driver_names{
    .title = "CUDA",
    .maker = "NVIDIA",
    .libraries = driver_libraries,
    .provider = "the NVIDIA driver",
    .symbols = SymbolSet::cuda,
    .attributes = {.max_group_items = 1,
                   .max_group_size_x = 2,
                   .max_groups_x = 5,
                   .shared_bytes = 8,
                   .subgroup_width = 10,
                   .compute_units = 16},
};

constexpr RtcNames rtc_names{
    .title = "NVRTC",
    .libraries = rtc_libraries,
    .provider = "libnvrtc of CUDA 12 or later",
    .symbols = SymbolSet::cuda,
};

Result<Target> target_of(const Driver& driver, int device, const Rtc* rtc) {
  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR.
  const int capability = 10 * driver.attribute(device, 75) + driver.attribute(device, 76);
  return target_for(capability, driver.version(), rtc != nullptr ? rtc->architectures() : std::vector{capability});
}

constexpr std::array<std::string_view, 2> architecture_options = {"-arch", "--gpu-architecture"};

constexpr std::array compiled_languages = {Language::ptx, Language::cubin, Language::fatbin};

constexpr Platform cuda_platform{
    .api = "cuda",
    .vendor = "NVIDIA",
    .language = Language::cuda,
    .compiled_languages = compiled_languages,
    .architecture_options = architecture_options,
    .driver = &driver_names,
    .open_rtc = [](const Driver& driver) { return open_nvrtc(driver.version()); },
    .target = target_of,
    .wrap = LoadedModule<Module>::wrap,
    .image_of = LoadedModule<Module>::image_of,
    .kernel_of = LoadedModule<Module>::kernel_of,
};

}  // namespace

Result<std::shared_ptr<const Rtc>> open_nvrtc(int driver_version) {
  std::vector<std::string> folders;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* root = base::environment(variable); root != nullptr && *root != '\0')
      folders.push_back(std::string(root) + "/lib64");
  folders.emplace_back("/usr/local/cuda/lib64");
  // A driver loads code from compilers of its own major version and of older ones, not of newer ones.
  const int newest = driver_version / 1000;
  const auto check = [newest](const Rtc& rtc) -> Result<void> {
    if (rtc.major_version() <= newest) return {};
    return Error(ErrorCode::unsupported,
                 fmt::format("NVRTC {} is newer than the driver (CUDA {}): install libnvrtc of CUDA {} or a newer "
                             "driver",
                             rtc.major_version(), newest, newest));
  };
  RtcNames names = rtc_names;
  // Load a library that is named for a newer version only if there is no other.
  names.libraries = std::span(rtc_libraries).subspan(newest < 13 ? 1 : 0);
  if (auto rtc = Rtc::open(names, folders, check)) return rtc;
  return Rtc::open(rtc_names, folders, check);
}

Result<Target> target_for(int capability, int version, const std::vector<int>& known) {
  const std::string architecture = fmt::format("sm_{}", capability);
  const std::string driver = fmt::format("CUDA {}", version / 1000);
  if (std::find(known.begin(), known.end(), capability) != known.end())
    return Target{architecture, ImageKind::cubin, "--gpu-architecture=" + architecture, driver};
  int below = 0;
  for (const int number : known)
    if (number < capability) below = std::max(below, number);
  if (below == 0)
    return Error(
        ErrorCode::unsupported,
        fmt::format("NVRTC does not support an architecture as old as {}: install libnvrtc of an older CUDA",
                    architecture));
  // The driver compiles PTX, and each driver version may compile it differently, so the minor version counts too.
  return Target{architecture, ImageKind::ptx, fmt::format("--gpu-architecture=compute_{}", below),
                fmt::format("{}.{}", driver, version % 1000 / 10)};
}

const Platform& platform() noexcept { return cuda_platform; }

std::uintptr_t memory(const Buffer& buffer) noexcept { return CudaBuffer::address_of(buffer, driver_names); }

std::vector<DeviceInfo> list_cuda_devices(const Log& /*log*/) { return list(platform()); }

Result<std::shared_ptr<Device>> open_cuda_device(std::size_t number, const Log& /*log*/) {
  return open(platform(), number);
}

Result<std::shared_ptr<Device>> adopt(CUcontext context, const Log& /*log*/) { return adopt(platform(), context); }

namespace {

/// The number of an architecture: 90 for "sm_90" and "sm_90a"; nullopt if it is none.
std::optional<int> number_of(std::string_view architecture) {
  if (!architecture.starts_with("sm_")) return std::nullopt;
  architecture.remove_prefix(3);
  int number = 0;
  const auto [end, error] = std::from_chars(architecture.data(), architecture.data() + architecture.size(), number);
  const std::string_view suffix(end, static_cast<std::size_t>(architecture.data() + architecture.size() - end));
  const bool fits = error == std::errc() && number > 0 && (suffix.empty() || suffix == "a" || suffix == "f");
  return fits ? std::optional(number) : std::nullopt;
}

struct OfflineCompiler {
  std::shared_ptr<const Rtc> rtc;
  Target target;
};

Result<OfflineCompiler> offline_compiler(std::string_view architecture) {
  const auto number = number_of(architecture);
  if (!number)
    return Error(ErrorCode::invalid_request,
                 fmt::format("\"{}\" is not an NVIDIA architecture; an example is sm_90", architecture));
  auto rtc = KILN_TRY(open_nvrtc(std::numeric_limits<int>::max()));
  if (std::ranges::find(rtc->architectures(), *number) == rtc->architectures().end())
    return Error(ErrorCode::unsupported, fmt::format("{} does not compile for {}; it knows sm_{}", rtc->version(),
                                                     architecture, fmt::join(rtc->architectures(), ", sm_")));
  Target target{std::string(architecture), ImageKind::cubin, fmt::format("--gpu-architecture={}", architecture),
                fmt::format("CUDA {}", rtc->major_version())};
  return OfflineCompiler{std::move(rtc), std::move(target)};
}

}  // namespace

Result<Binary> compile_for(const Request& request, std::string_view architecture, const Log& log) {
  if (request.error()) return *request.error();
  KILN_TRY(backend::check_language(request, {Language::cuda}));
  const auto compiler = KILN_TRY(offline_compiler(architecture));
  log.debug(fmt::format("compiling {} for {} with {}", request.name(), architecture, compiler.rtc->version()));
  const auto image = KILN_TRY(compile_image(platform(), *compiler.rtc, compiler.target, request));
  return to_binary(compiler.target.kind, image, request.name());
}

Result<Identity> identity_for(std::string_view architecture) {
  const auto compiler = KILN_TRY(offline_compiler(architecture));
  return identity_of(platform(), compiler.target, compiler.rtc.get());
}

}  // namespace kiln::cuda
