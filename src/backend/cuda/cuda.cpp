#include "backend/cuda/cuda.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backend/cuda/callers_stream.hpp"
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

Result<std::unique_ptr<Buffer>> wrap(Device& device, std::uintptr_t address, std::size_t bytes) {
  return wrap_memory(platform(), device, address, bytes);
}

Result<std::unique_ptr<Stream>> stream(Device& device, CUstream stream) {
  return stream_on(platform(), device, stream);
}

std::vector<DeviceInfo> list_cuda_devices(const Log& /*log*/) { return list(platform()); }

Result<std::shared_ptr<Device>> open_cuda_device(std::size_t number, const Log& /*log*/) {
  return open(platform(), number);
}

Result<std::shared_ptr<Device>> adopt(CUcontext context, const Log& /*log*/) { return adopt(platform(), context); }

namespace {

/// An architecture, as in "sm_90", "sm_90a" or "compute_90".
struct Architecture {
  int number = 0;
  /// Empty, "a" or "f".
  std::string_view suffix = {};
  /// Whether it stands for PTX.
  bool is_virtual = false;
};

/// Reads an architecture; nullopt if the text is none.
std::optional<Architecture> architecture_in(std::string_view text) {
  constexpr std::string_view code = "sm_";
  constexpr std::string_view ptx = "compute_";
  Architecture read{.is_virtual = text.starts_with(ptx)};
  if (!read.is_virtual && !text.starts_with(code)) return std::nullopt;
  text.remove_prefix(read.is_virtual ? ptx.size() : code.size());
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), read.number);
  read.suffix = text.substr(static_cast<std::size_t>(end - text.data()));
  const bool fits = error == std::errc() && read.number > 0 && !text.starts_with('0') &&
                    (read.suffix.empty() || read.suffix == "a" || read.suffix == "f");
  return fits ? std::optional(read) : std::nullopt;
}

Result<Architecture> needed_architecture(std::string_view text) {
  if (const auto read = architecture_in(text)) return *read;
  return Error(ErrorCode::invalid_request,
               fmt::format("\"{}\" is not an NVIDIA architecture: write sm_ and a number without leading zeros, as "
                           "in sm_90, or compute_90 for PTX",
                           text));
}

/// The first architecture that an option of the request selects and that `refuses`; empty if there is none. NVRTC
/// refuses values that are no architecture.
template <class Refuses>
std::string_view selected_architecture(const Request& request, Refuses refuses) {
  const auto& options = request.options();
  for (std::size_t i = 0; i < options.size(); ++i) {
    std::string_view option = options[i];
    // NVRTC ignores spaces in front.
    option.remove_prefix(std::min(option.find_first_not_of(" \t\r\n\f\v"), option.size()));
    const auto name = std::ranges::find(architecture_options, option.substr(0, option.find('=')));
    if (name == architecture_options.end()) continue;
    const bool is_one_word = option.size() > name->size();
    if (!is_one_word && i + 1 == options.size()) continue;
    const std::string_view value = is_one_word ? option.substr(name->size() + 1) : std::string_view(options[i + 1]);
    if (const auto selected = architecture_in(value); selected && refuses(*selected)) return value;
  }
  return {};
}

/// Fails if an option of the request selects an architecture of another number: the binary would be stored for a
/// device that cannot load it.
Result<void> check_architecture_options(const Request& request, std::string_view architecture) {
  const int number = KILN_TRY(needed_architecture(architecture)).number;
  const std::string_view other =
      selected_architecture(request, [&](const Architecture& selected) { return selected.number != number; });
  if (other.empty()) return {};
  return Error(ErrorCode::invalid_request,
               fmt::format("{} has an option that selects {}, but is compiled for {}; remove the option, or "
                           "compile for sm_{}",
                           request.name(), other, architecture, architecture_in(other)->number));
}

struct OfflineCompiler {
  std::shared_ptr<const Rtc> rtc;
  Target target;
};

Result<OfflineCompiler> offline_compiler(std::string_view architecture) {
  const auto read = KILN_TRY(needed_architecture(architecture));
  auto rtc = KILN_TRY(find_nvrtc());
  if (std::ranges::find(rtc->architectures(), read.number) == rtc->architectures().end()) {
    const std::string_view prefix = read.is_virtual ? "compute_" : "sm_";
    return Error(ErrorCode::unsupported,
                 fmt::format("{} does not compile for {}; it knows {}{}", rtc->version(), architecture, prefix,
                             fmt::join(rtc->architectures(), fmt::format(", {}", prefix))));
  }
  Target target{std::string(architecture), read.is_virtual ? ImageKind::ptx : ImageKind::cubin,
                fmt::format("--gpu-architecture={}", architecture), fmt::format("CUDA {}", rtc->major_version())};
  return OfflineCompiler{std::move(rtc), std::move(target)};
}

}  // namespace

Result<std::shared_ptr<const Rtc>> find_nvrtc() { return open_nvrtc(std::numeric_limits<int>::max()); }

bool selects_only(const Request& request, std::string_view architecture) {
  const auto wanted = architecture_in(architecture);
  if (!wanted) return false;
  return selected_architecture(request,
                               [&](const Architecture& selected) {
                                 // PTX with a suffix is only for GPUs of one architecture, and machine code needs
                                 // sm_.
                                 return selected.number != wanted->number ||
                                        (wanted->is_virtual ? !selected.suffix.empty() : selected.is_virtual);
                               })
      .empty();
}

Result<Binary> compile_for(const Request& request, std::string_view architecture, const Log& log) {
  KILN_TRY(backend::check_language(request, {Language::cuda}));
  KILN_TRY(check_architecture_options(request, architecture));
  const auto compiler = KILN_TRY(offline_compiler(architecture));
  log.debug(fmt::format("compiling {} for {} with {}", request.name(), architecture, compiler.rtc->version()));
  const auto image = KILN_TRY(compile_image(platform(), *compiler.rtc, compiler.target, request));
  return to_binary(compiler.target.kind, image, request.name());
}

Result<Identity> identity_for(std::string_view architecture) {
  const auto read = KILN_TRY(needed_architecture(architecture));
  if (!read.suffix.empty())
    return Error(ErrorCode::invalid_request,
                 fmt::format("no device has the architecture {}; compile for sm_{} with the option -arch={} "
                             "(--arch sm_{} --option=-arch={})",
                             architecture, read.number, architecture, read.number, architecture));
  const auto compiler = KILN_TRY(offline_compiler(architecture));
  return identity_of(platform(), compiler.target, compiler.rtc.get());
}

}  // namespace kiln::cuda
