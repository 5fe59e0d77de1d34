#include "backend/cuda/loaded_image.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <variant>

#include <fmt/format.h>

#include <kiln/cuda.hpp>

#include "backend/cuda/context.hpp"
#include "backend/cuda/image.hpp"
#include "backend/launch_checks.hpp"
#include "base/try.hpp"

namespace kiln::cuda {
namespace {

/// Whether an error from loading an image means that the image is at fault, not the driver or the context.
bool blames_the_image(Status status) noexcept {
  // Invalid value, invalid image, no code for this GPU, invalid PTX, unsupported PTX version, unsupported
  // device-side synchronisation, invalid source, missing symbol, failed initialisation.
  static constexpr std::array verdicts = {1, 200, 209, 218, 222, 225, 300, 302, 303};
  return std::find(verdicts.begin(), verdicts.end(), status) != verdicts.end();
}

}  // namespace

Result<std::unique_ptr<LoadedImage>> LoadedImage::load(std::shared_ptr<Context> context, const Parts& parts) {
  const Driver& driver = context->driver();
  const auto doing = [&parts] { return fmt::format("loading {}", parts.name); };
  const Context::ScopedCurrent scope(*context);
  if (scope.status() != status::success) return driver.error(scope.status(), doing());
  auto loaded = std::make_unique<LoadedImage>(std::move(context), parts);
  const RelaxedCapture relaxed(driver);
  const Status status = driver->module_load(&loaded->module_, parts.image.data());
  if (status == status::success) return loaded;
  // Caches remove entries that return load_failed, so return it only if the image is at fault.
  if (!blames_the_image(status)) return driver.error(status, doing());
  return Error(ErrorCode::load_failed,
               fmt::format("the driver refuses the binary of {}: {}", parts.name, driver.error_name(status)));
}

LoadedImage::LoadedImage(std::shared_ptr<Context> context, const Parts& parts)
    : context_(std::move(context)), name_(parts.name), bytes_(parts.image.size()) {
  std::vector<std::optional<std::vector<std::size_t>>> arguments(parts.entries.size());
  if (context_->driver()->parameter_info == nullptr)
    arguments = argument_sizes(parts.image, parts.kind, parts.entries);
  for (std::size_t i = 0; i < parts.entries.size(); ++i)
    kernels_.push_back(std::make_unique<LoadedKernel>(*this, parts.entries[i], std::move(arguments[i])));
}

LoadedKernel::LoadedKernel(const LoadedImage& image, EntryPoint entry,
                           std::optional<std::vector<std::size_t>> arguments)
    : image_(image), entry_(std::move(entry)), arguments_(std::move(arguments)) {}

LoadedImage::~LoadedImage() {
  if (module_ == nullptr) return;
  const Context::ScopedCurrent scope(*context_);
  const RelaxedCapture relaxed(context_->driver());
  if (scope.status() == status::success) context_->driver()->module_unload(module_);
}

Result<const LoadedKernel::Function*> LoadedKernel::function() {
  if (const Function* found = found_.load(std::memory_order_acquire)) return found;
  const base::MutexLock lock(lookup_);
  if (const Function* found = found_.load(std::memory_order_relaxed)) return found;
  auto function = KILN_TRY(find_function());
  function_ = std::move(function);
  found_.store(&function_, std::memory_order_release);
  return &function_;
}

Handle LoadedKernel::native() noexcept {
  try {
    const Context::ScopedCurrent scope(image_.context());
    const auto found = find_native(scope);
    return found ? *found : nullptr;
  } catch (const std::exception&) {
    return nullptr;
  }
}

Result<Handle> LoadedKernel::find_native(const Context::ScopedCurrent& scope) {
  if (Handle found = native_.load(std::memory_order_acquire)) return found;
  const Driver& driver = image_.context().driver();
  Handle native = nullptr;
  Status status = scope.status();
  if (status == status::success) status = driver->module_function(&native, image_.module(), entry_.symbol.c_str());
  if (status == status::not_found)
    return Error(ErrorCode::load_failed, fmt::format("{} has no kernel called {}", image_.name(), entry_.name));
  if (status != status::success)
    return driver.error(status, fmt::format("looking up {} in {}", entry_.name, image_.name()));
  // Every thread that looks it up finds the same handle.
  native_.store(native, std::memory_order_release);
  return native;
}

Result<LoadedKernel::Function> LoadedKernel::find_function() {
  const Driver& driver = image_.context().driver();
  const Context::ScopedCurrent scope(image_.context());
  const RelaxedCapture relaxed(driver);
  auto native = KILN_TRY(find_native(scope));
  Function function;
  function.native = native;
  // CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, which HIP numbers alike.
  constexpr int max_threads_per_block = 0;
  int items = 0;
  if (driver->function_attribute(&items, max_threads_per_block, function.native) == status::success && items > 0)
    function.max_group_items = static_cast<std::uint32_t>(items);
  // CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES and CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN.
  constexpr int shared_size_bytes = 1;
  constexpr int max_shared_memory_per_block_optin = 97;
  int shared = 0;
  if (driver->function_attribute(&shared, shared_size_bytes, function.native) == status::success && shared > 0)
    function.static_shared_bytes = static_cast<std::uint64_t>(shared);
  const int device = image_.context().device();
  int most = driver.attribute(device, driver.names().attributes.shared_bytes);
  // The driver accepts this much less its static memory without being asked.
  allowed_shared_.store(static_cast<std::uint32_t>(std::max(most - shared, 0)), std::memory_order_relaxed);
  if (driver->function_set_attribute != nullptr)
    most = std::max(most, driver.attribute(device, max_shared_memory_per_block_optin));
  function.max_shared_bytes = static_cast<std::uint64_t>(std::max(most - shared, 0));
  function.arguments = arguments_;
  if (driver->parameter_info == nullptr) return function;
  std::vector<std::size_t>& sizes = function.arguments.emplace();
  // The driver does not report the number of arguments, but fails for an index past the last.
  for (std::size_t offset = 0, bytes = 0;
       driver->parameter_info(function.native, sizes.size(), &offset, &bytes) == status::success;)
    sizes.push_back(bytes);
  return function;
}

Status LoadedKernel::allow_shared(const Function& function, std::uint32_t bytes) {
  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
  constexpr int max_dynamic_shared_size_bytes = 8;
  const Driver& driver = image_.context().driver();
  if (bytes <= allowed_shared_.load(std::memory_order_acquire) || driver->function_set_attribute == nullptr)
    return status::success;
  const base::MutexLock lock(lookup_);
  if (bytes <= allowed_shared_.load(std::memory_order_relaxed)) return status::success;
  const Status status =
      driver->function_set_attribute(function.native, max_dynamic_shared_size_bytes, static_cast<int>(bytes));
  if (status == status::success) allowed_shared_.store(bytes, std::memory_order_release);
  return status;
}

Error unknown_arguments(const LoadedKernel& kernel) {
  return Error(ErrorCode::unsupported,
               fmt::format("{}: neither the driver nor the binary reports the arguments of {}",
                           kernel.image().name(), kernel.entry()));
}

Result<PreparedLaunch> PreparedLaunch::make(const LoadedImage* image, LoadedKernel* kernel, const Launch& launch,
                                            const Context& context, const DeviceInfo& info) {
  if (image == nullptr || &image->context() != &context)
    return backend::foreign_program(image != nullptr ? image->name() : "the program", info.name);
  if (kernel == nullptr) return backend::no_entry_chosen(image->name(), image->kernels().size());
  const auto function = KILN_TRY(kernel->function());
  PreparedLaunch prepared(*kernel, *function, launch);
  KILN_TRY(prepared.set_sizes(info));
  KILN_TRY(prepared.set_arguments(context, info));
  return prepared;
}

Error PreparedLaunch::refuse(std::string_view why) const {
  return Error(ErrorCode::invalid_request, fmt::format("{}: {}", name(), why));
}

std::string PreparedLaunch::describe(std::size_t i) const { return fmt::format("{}: argument {}", name(), i); }

Result<void> PreparedLaunch::set_sizes(const DeviceInfo& info) {
  const DeviceLimits& limits = info.limits;
  const Extent& size = launch_->group_size;
  const std::string_view api = info.language == Language::cuda ? "CUDA" : "HIP";
  if (!size.is_set())
    return refuse(fmt::format("{} programs do not declare a group size; set Launch::group_size", api));
  KILN_TRY(backend::refuse_offset(*launch_, name(), api));
  std::uint64_t items = 1;
  for (std::size_t i = 0; i < 3; ++i) {
    if (size[i] == 0 || size[i] > limits.max_group_size[i])
      return refuse(fmt::format("{} work items in dimension {} of a group; the device allows 1 to {}", size[i], i,
                                limits.max_group_size[i]));
    items *= size[i];
  }
  if (items > limits.max_group_items)
    return refuse(
        fmt::format("{} work items in a group; the device allows at most {}", items, limits.max_group_items));
  // A kernel may take fewer work items than the device: it needs many registers, or its source sets a limit.
  if (function_->max_group_items != 0 && items > function_->max_group_items)
    return refuse(
        fmt::format("{} work items in a group; this kernel allows at most {}", items, function_->max_group_items));
  if (launch_->shared_bytes > function_->max_shared_bytes)
    return refuse(
        fmt::format("{} bytes of dynamic shared memory; this kernel allows at most {} beside the {} that it "
                    "declares",
                    launch_->shared_bytes, function_->max_shared_bytes, function_->static_shared_bytes));
  groups_ = KILN_TRY(backend::groups_of(*launch_, size, limits, name()));
  return {};
}

Result<void> PreparedLaunch::set_arguments(const Context& context, const DeviceInfo& info) {
  // The driver gets the arguments' addresses without their number, and would read past the end of a list that is
  // too short.
  if (!function_->arguments) return unknown_arguments(*kernel_);
  const std::size_t taken = function_->arguments->size();
  const std::size_t given = launch_->arguments.size();
  for (std::size_t i = 0; i < std::min(taken, given); ++i) KILN_TRY(add(i, context, info));
  if (given == taken) return {};
  return refuse(fmt::format("{} takes {} argument{}; the launch has {}", kernel_->entry(), taken,
                            taken == 1 ? "" : "s", given));
}

Result<void> PreparedLaunch::add(std::size_t i, const Context& context, const DeviceInfo& info) {
  const Argument& argument = launch_->arguments[i];
  const auto refuse_argument = [&](const std::string& why) {
    return Error(ErrorCode::invalid_request, fmt::format("{} {}", describe(i), why));
  };
  if (argument.as<Argument::Memory>() != nullptr) return backend::outside_of_job(name());
  if (!std::holds_alternative<std::monostate>(argument.place()))
    return refuse_argument("has a place; CUDA and HIP take arguments in order");
  if (argument.as<Argument::Local>() != nullptr)
    return refuse_argument("is local memory; declare extern __shared__, and set Launch::shared_bytes");
  if (argument.as<NativeObject>() != nullptr)
    return refuse_argument("is an object of another API; give a texture or surface object as a value of 8 bytes");
  std::size_t bytes = sizeof(Address);
  if (const auto* value = argument.as<Argument::Value>()) {
    bytes = value->bytes().size();
    // The driver only reads it, despite its signature.
    arguments_.push_back(const_cast<std::byte*>(value->bytes().data()));
  } else {
    Address address = 0;
    if (const auto* range = argument.as<Argument::Range>()) {
      const auto own =
          KILN_TRY(backend::own_argument<CudaBuffer>(*range, context, info.name, [&] { return describe(i); }));
      address = own->address() + range->offset;
    }
    addresses_.push_back(address);
    arguments_.push_back(&addresses_.back());
  }
  if (const std::size_t taken = (*function_->arguments)[i]; bytes != taken)
    return refuse_argument(fmt::format("takes {} bytes; the launch has {}", taken, backend::content_of(argument)));
  return {};
}

bool PreparedLaunch::is_work() const noexcept { return backend::has_work(groups_); }

Status PreparedLaunch::enqueue(Handle stream) const {
  const Extent& size = launch_->group_size;
  const std::uint32_t shared = launch_->shared_bytes;
  if (const Status status = kernel_->allow_shared(*function_, shared); status != status::success) return status;
  return kernel_->image().context().driver()->launch(function_->native, groups_[0], groups_[1], groups_[2], size[0],
                                                     size[1], size[2], shared, stream,
                                                     const_cast<void**>(arguments_.data()), nullptr);
}

}  // namespace kiln::cuda
