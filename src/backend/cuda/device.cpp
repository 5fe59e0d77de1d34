#include "backend/cuda/device.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "backend/cuda/context.hpp"
#include "backend/cuda/given_image.hpp"
#include "backend/cuda/loaded_image.hpp"
#include "backend/cuda/slot.hpp"
#include "backend/device_info.hpp"
#include "backend/launch_checks.hpp"
#include "backend/source_text.hpp"
#include "base/try.hpp"

namespace kiln::cuda {
namespace {

std::uint32_t number(const Driver& driver, int device, int attribute) {
  return static_cast<std::uint32_t>(std::max(driver.attribute(device, attribute), 0));
}

DeviceLimits read_limits(const Driver& driver, int device) {
  const Attributes& attributes = driver.names().attributes;
  const auto limit = [&](int attribute) { return number(driver, device, attribute); };
  DeviceLimits limits;
  for (std::size_t i = 0; i < 3; ++i) {
    limits.max_groups[i] = limit(attributes.max_groups_x + static_cast<int>(i));
    limits.max_group_size[i] = limit(attributes.max_group_size_x + static_cast<int>(i));
  }
  limits.max_group_items = limit(attributes.max_group_items);
  limits.shared_bytes = limit(attributes.shared_bytes);
  return limits;
}

/// `architecture` is empty if unknown.
DeviceTraits read_traits(const Platform& platform, const Driver& driver, int device, std::string architecture) {
  const Attributes& attributes = driver.names().attributes;
  DeviceTraits traits{.vendor = std::string(platform.vendor),
                      .architecture = std::move(architecture),
                      .subgroup_width = number(driver, device, attributes.subgroup_width),
                      .compute_units = number(driver, device, attributes.compute_units)};
  traits.fp16 = backend::computes_f16(traits.architecture);
  traits.matrix_units = backend::has_matrix_units(traits.architecture);
  return traits;
}

std::string read_name(const Driver& driver, int device) {
  std::array<char, 256> name = {};
  if (driver->device_name(name.data(), static_cast<int>(name.size()) - 1, device) != status::success) return "";
  return name.data();
}

/// Empty if unknown.
std::string read_uuid(const Driver& driver, int device) {
  std::array<std::uint8_t, 16> uuid = {};
  if (driver->device_uuid == nullptr || driver->device_uuid(uuid.data(), device) != status::success) return "";
  return backend::uuid_text(uuid);
}

/// Calls `enqueue` with a stream and waits for its work to end. `doing` returns the name of the operation, for
/// errors.
template <class Enqueue, class Doing>
Result<void> run_on_stream(Context& context, Enqueue enqueue, Doing doing) {
  const Driver& driver = context.driver();
  const Context::ScopedCurrent scope(context);
  if (scope.status() != status::success) return driver.error(scope.status(), doing());
  auto stream = KILN_TRY(context.borrow_stream());
  Status status = enqueue(stream->handle());
  if (status == status::success) status = driver->stream_wait(stream->handle());
  if (status == status::success) return {};
  stream.discard();
  return driver.error(status, doing());
}

}  // namespace

Identity identity_of(const Platform& platform, const Target& target, const Rtc* rtc) {
  Identity identity{.api = std::string(platform.api),
                    .vendor = std::string(platform.vendor),
                    .device = target.architecture,
                    .driver = target.driver,
                    .formats = {static_cast<std::uint32_t>(target.kind)}};
  if (rtc != nullptr) identity.compiler = rtc->version();
  return identity;
}

namespace {

/// Finds the symbols of entry points that share their names with other functions of the source. Kernels with C
/// linkage have the name as their symbol; others must be the only kernel of the name.
Result<void> find_unnamed(const Request& request, ImageKind kind, Image& image) {
  if (std::ranges::find(image.entries, "", &EntryPoint::symbol) == image.entries.end()) return {};
  const std::vector<EntryPoint> kernels = entry_points(image.bytes, kind);
  for (EntryPoint& entry : image.entries) {
    if (!entry.symbol.empty()) continue;
    auto found = std::ranges::find(kernels, entry.name, &EntryPoint::symbol);
    if (found == kernels.end()) found = std::ranges::find(kernels, entry.name, &EntryPoint::name);
    if (found == kernels.end()) return backend::ambiguous_kernel(request, entry.name, "");
    entry.symbol = found->symbol;
  }
  return {};
}

}  // namespace

Result<Image> compile_image(const Platform& platform, const Rtc& rtc, const Target& target,
                            const Request& request) {
  KILN_TRY(backend::check_language(request, {platform.language}));
  const auto chooses = [&](const std::string& option) {
    return std::any_of(platform.architecture_options.begin(), platform.architecture_options.end(),
                       [&](std::string_view start) { return option.starts_with(start); });
  };
  std::vector<std::string> options;
  if (std::none_of(request.options().begin(), request.options().end(), chooses)) options.push_back(target.option);
  auto image = KILN_TRY(
      rtc.compile(request, options, target.kind == ImageKind::ptx ? Rtc::Output::text : Rtc::Output::code));
  KILN_TRY(find_unnamed(request, target.kind, image));
  if (image.entries.empty()) image.entries = entry_points(image.bytes, target.kind);
  if (image.entries.empty())
    return Error(
        ErrorCode::compile_failed,
        fmt::format("{} has no kernel: declare one as __global__, and name templates in Request::Fields::entries",
                    request.name()));
  return image;
}

Result<Toolchain> toolchain_of(const Platform& platform, const Driver& driver, int device) {
  Toolchain found;
  auto rtc = platform.open_rtc(driver);
  if (rtc) {
    auto target = platform.target(driver, device, rtc->get());
    if (target) return Toolchain{std::move(*target), std::move(*rtc)};
    found.problem = target.error().message();
  } else {
    found.problem = rtc.error().message();
  }
  found.target = KILN_TRY(platform.target(driver, device, nullptr));
  return found;
}

DeviceInfo describe(const Platform& platform, const Driver& driver, int device, std::string name,
                    const Result<Toolchain>& toolchain) {
  DeviceInfo info{.name = std::move(name),
                  .identity = {.api = std::string(platform.api), .vendor = std::string(platform.vendor)},
                  .label = read_name(driver, device),
                  .uuid = read_uuid(driver, device),
                  .language = platform.language,
                  .limits = read_limits(driver, device)};
  info.traits = read_traits(platform, driver, device, toolchain ? toolchain->target.architecture : "");
  if (!toolchain) {
    info.problem = toolchain.error().message();
    return info;
  }
  info.identity = identity_of(platform, toolchain->target, toolchain->rtc.get());
  info.compiler_problem = toolchain->problem;
  return info;
}

Result<std::shared_ptr<Device>> CudaDevice::open(const Platform& platform, std::shared_ptr<Context> context,
                                                 std::string name) {
  const Driver& driver = context->driver();
  auto toolchain = toolchain_of(platform, driver, context->device());
  if (!toolchain) return Error(toolchain.error().code(), fmt::format("{}: {}", name, toolchain.error().message()));
  DeviceInfo info = describe(platform, driver, context->device(), std::move(name), toolchain);
  return std::shared_ptr<Device>(
      std::make_shared<CudaDevice>(platform, std::move(context), std::move(*toolchain), std::move(info)));
}

Result<Compiled> CudaDevice::compile(const Request& request) {
  std::vector<Language> taken = {platform_.language};
  taken.insert(taken.end(), platform_.compiled_languages.begin(), platform_.compiled_languages.end());
  KILN_TRY(backend::check_language(request, taken));
  const Target& target = toolchain_.target;
  if (request.language() != platform_.language) {
    auto loaded = load_given(request);
    if (loaded || loaded.error().code() != ErrorCode::load_failed) return loaded;
    return Error(ErrorCode::load_failed,
                 fmt::format("{}; this device needs code for {}{}", loaded.error().message(), target.architecture,
                             std::ranges::find(taken, Language::ptx) != taken.end() ? ", or PTX" : ""));
  }
  if (toolchain_.rtc == nullptr) return backend::no_compiler(request, info_);
  return load_compiled(request.name(), target.kind,
                       KILN_TRY(compile_image(platform_, *toolchain_.rtc, target, request)));
}

Result<Compiled> CudaDevice::load_given(const Request& request) {
  auto given = KILN_TRY(given_image(request));
  if (given.kind == ImageKind::ptx)
    if (auto cubin = KILN_TRY(link_ptx(*context_, request.name(), given.image.bytes))) {
      given.kind = ImageKind::cubin;
      given.image.bytes = std::move(*cubin);
    }
  if (given.kind == ImageKind::fatbin) {
    const auto loaded = KILN_TRY(LoadedImage::load(context_, {request.name(), {}, given.kind, given.image.bytes}));
    given.image.entries = KILN_TRY(fatbin_entries(request, listed_entries(*context_, loaded->module())));
  }
  return load_compiled(request.name(), given.kind, std::move(given.image));
}

Result<Compiled> CudaDevice::load_compiled(const std::string& name, ImageKind kind, Image image) {
  auto loaded = KILN_TRY(LoadedImage::load(context_, {name, image.entries, kind, image.bytes}));
  for (const auto& kernel : loaded->kernels()) {
    const auto function = kernel->function();
    if (!function && function.error().code() == ErrorCode::load_failed)
      return Error(ErrorCode::compile_failed, function.error().message());
    if (!function) return function.error();
  }
  return Compiled{platform_.wrap(std::move(loaded)), to_binary(kind, image, name)};
}

Result<std::unique_ptr<kiln::Module>> CudaDevice::load(const Binary& binary) {
  auto kind = toolchain_.target.kind;
  for (const Language language : platform_.compiled_languages)
    if (static_cast<std::uint32_t>(*image_kind(language)) == binary.format) kind = *image_kind(language);
  const auto parts = KILN_TRY(parts_of(binary, kind));
  auto loaded = KILN_TRY(LoadedImage::load(context_, parts));
  return platform_.wrap(std::move(loaded));
}

unsigned CudaDevice::accepts(const Identity& target) const {
  if (Device::accepts(target) != 0) return std::numeric_limits<unsigned>::max();
  if (target.api != platform_.api || target.vendor != platform_.vendor || target.formats.size() != 1) return 0;
  return platform_.rank(toolchain_.target, context_->driver().version(), target);
}

Result<Compiled> CudaDevice::adapt(const Identity& target, const Binary& binary) {
  const bool is_own = Device::accepts(target) != 0;
  if (!is_own && binary.format == static_cast<std::uint32_t>(ImageKind::ptx)) return load_ptx(binary);
  return Device::adapt(target, binary);
}

Result<Compiled> CudaDevice::load_ptx(const Binary& binary) {
  const auto parts = KILN_TRY(parts_of(binary, ImageKind::ptx));
  const std::string name(parts.name);
  auto linked = link_ptx(*context_, name, parts.image);
  if (!linked && linked.error().code() == ErrorCode::compile_failed)
    return Error(ErrorCode::load_failed, linked.error().message(), linked.error().log());
  auto cubin = KILN_TRY(std::move(linked));
  // Without a linker, the driver compiles the PTX with each load.
  if (!cubin) return Compiled{KILN_TRY(load(binary))};
  Binary own = to_binary(ImageKind::cubin, {std::move(*cubin), parts.entries}, name);
  auto module = KILN_TRY(load(own));
  return Compiled{std::move(module), std::move(own)};
}

Result<std::unique_ptr<Buffer>> CudaDevice::allocate(std::size_t bytes) {
  return CudaBuffer::allocate(context_, bytes);
}

Result<void> CudaDevice::write(Buffer& buffer, std::span<const std::byte> bytes, std::size_t offset) {
  const auto own = KILN_TRY(backend::own_buffer<CudaBuffer>(buffer, *context_, info_.name, bytes.size(), offset));
  if (bytes.empty()) return {};
  return run_on_stream(
      *context_,
      [&](Handle stream) {
        return context_->driver()->copy_to_device(own->address() + offset, bytes.data(), bytes.size(), stream);
      },
      [&] { return fmt::format("writing {} bytes", bytes.size()); });
}

Result<void> CudaDevice::read(const Buffer& buffer, std::span<std::byte> bytes, std::size_t offset) {
  const auto own = KILN_TRY(backend::own_buffer<CudaBuffer>(buffer, *context_, info_.name, bytes.size(), offset));
  if (bytes.empty()) return {};
  return run_on_stream(
      *context_,
      [&](Handle stream) {
        return context_->driver()->copy_to_host(bytes.data(), own->address() + offset, bytes.size(), stream);
      },
      [&] { return fmt::format("reading {} bytes", bytes.size()); });
}

Result<void> CudaDevice::launch(kiln::Module& module, const Launch& launch) {
  const auto prepared = KILN_TRY(
      PreparedLaunch::make(platform_.image_of(module), platform_.kernel_of(module), launch, *context_, info_));
  if (!prepared.is_work()) return {};
  return run_on_stream(
      *context_, [&](Handle stream) { return prepared.enqueue(stream); },
      [&] { return fmt::format("running {}", prepared.name()); });
}

Result<std::vector<Parameter>> CudaDevice::parameters(kiln::Module& module) {
  const LoadedImage* image = platform_.image_of(module);
  LoadedKernel* kernel = platform_.kernel_of(module);
  if (image == nullptr || &image->context() != context_.get())
    return backend::foreign_program(image != nullptr ? image->name() : "the program", info_.name);
  if (kernel == nullptr) return backend::no_entry_chosen(image->name(), image->kernels().size());
  const auto function = KILN_TRY(kernel->function());
  if (!function->arguments) return unknown_arguments(*kernel);
  std::vector<Parameter> parameters;
  for (const std::size_t bytes : *function->arguments)
    parameters.push_back({.kind = bytes == sizeof(Address) ? "value or buffer" : "value",
                          .place = fmt::format("argument {}", parameters.size()),
                          .bytes = bytes});
  return parameters;
}

Result<std::unique_ptr<Slot>> CudaDevice::open_slot() { return CudaSlot::open(platform_, context_, info_); }

namespace {

std::string numbered(const Platform& platform, std::size_t number) {
  return fmt::format("{}:{}", platform.api, number);
}

DeviceInfo unusable(const Platform& platform, std::string name, const Error& error) {
  return {.name = std::move(name),
          .identity = {.api = std::string(platform.api)},
          .language = platform.language,
          .problem = error.message()};
}

}  // namespace

std::vector<DeviceInfo> list(const Platform& platform) {
  const auto driver = Driver::open(*platform.driver);
  if (!driver) return {unusable(platform, std::string(platform.api), driver.error())};
  const auto count = (*driver)->device_count();
  if (!count) return {unusable(platform, std::string(platform.api), count.error())};
  std::vector<DeviceInfo> infos;
  for (std::size_t number = 0; number < *count; ++number) {
    const std::string name = numbered(platform, number);
    const auto device = (*driver)->device(number);
    infos.push_back(device ? describe(platform, **driver, *device, name, toolchain_of(platform, **driver, *device))
                           : unusable(platform, name, device.error()));
  }
  return infos;
}

Result<std::shared_ptr<Device>> open(const Platform& platform, std::size_t number) {
  auto driver = KILN_TRY(Driver::open(*platform.driver));
  const std::string name = numbered(platform, number);
  const auto device = driver->device(number);
  if (!device)
    return Error(device.error().code(), fmt::format("there is no {}; {}", name, device.error().message()));
  auto context = Context::primary(std::move(driver), *device);
  if (!context) return Error(context.error().code(), fmt::format("{}: {}", name, context.error().message()));
  return CudaDevice::open(platform, std::move(*context), name);
}

Result<std::shared_ptr<Device>> adopt(const Platform& platform, Handle context) {
  auto driver = KILN_TRY(Driver::open(*platform.driver));
  auto adopted = KILN_TRY(Context::adopt(std::move(driver), context));
  return CudaDevice::open(platform, std::move(adopted), fmt::format("{}:adopted", platform.api));
}

}  // namespace kiln::cuda
