#include "backend/cuda/loaded_image.hpp"

#include <algorithm>
#include <array>
#include <exception>

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
  auto native = KILN_TRY(find_native(scope));
  Function function;
  function.native = native;
  // CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, which HIP numbers alike.
  constexpr int max_threads_per_block = 0;
  int items = 0;
  if (driver->function_attribute(&items, max_threads_per_block, function.native) == status::success && items > 0)
    function.max_group_items = static_cast<std::uint32_t>(items);
  function.arguments = arguments_;
  if (driver->parameter_info == nullptr) return function;
  std::vector<std::size_t>& sizes = function.arguments.emplace();
  // The driver does not report the number of arguments, but fails for an index past the last.
  for (std::size_t offset = 0, bytes = 0;
       driver->parameter_info(function.native, sizes.size(), &offset, &bytes) == status::success;)
    sizes.push_back(bytes);
  return function;
}

namespace {

Error invalid(const LoadedKernel& kernel, std::string what) {
  return Error(ErrorCode::invalid_request, fmt::format("{}: {}", kernel.image().name(), what));
}

Result<void> check_sizes(const LoadedKernel& kernel, const LoadedKernel::Function& function,
                         const DeviceLimits& limits, const Launch& launch) {
  std::uint64_t items = 1;
  for (std::size_t i = 0; i < 3; ++i) {
    if (launch.groups[i] > limits.max_groups[i])
      return invalid(kernel, fmt::format("{} work groups in dimension {}; the device allows at most {}",
                                         launch.groups[i], i, limits.max_groups[i]));
    if (launch.group_size[i] == 0 || launch.group_size[i] > limits.max_group_size[i])
      return invalid(kernel, fmt::format("{} work items in dimension {} of a group; the device allows 1 to {}",
                                         launch.group_size[i], i, limits.max_group_size[i]));
    items *= launch.group_size[i];
  }
  if (items > limits.max_group_items)
    return invalid(kernel, fmt::format("{} work items in a group; the device allows at most {}", items,
                                       limits.max_group_items));
  // A kernel may take fewer work items than the device: it needs many registers, or its source sets a limit.
  if (function.max_group_items != 0 && items > function.max_group_items)
    return invalid(kernel, fmt::format("{} work items in a group; this kernel allows at most {}", items,
                                       function.max_group_items));
  return {};
}

Result<void> check_arguments(const LoadedKernel& kernel, const std::vector<std::size_t>& taken,
                             const Launch& launch) {
  const std::size_t given = launch.buffers.size() + (launch.parameters.empty() ? 0 : 1);
  for (std::size_t i = 0; i < std::min(given, taken.size()); ++i) {
    const std::size_t bytes = i < launch.buffers.size() ? sizeof(Address) : launch.parameters.size();
    if (bytes != taken[i])
      return invalid(kernel, fmt::format("argument {} takes {} bytes; {} were given{}", i, taken[i], bytes,
                                         i < launch.buffers.size() ? ", a buffer" : ""));
  }
  if (given != taken.size())
    return invalid(kernel, fmt::format("{} takes {} argument{}; {} buffer{} and {} were given", kernel.entry(),
                                       taken.size(), taken.size() == 1 ? "" : "s", launch.buffers.size(),
                                       launch.buffers.size() == 1 ? "" : "s",
                                       launch.parameters.empty() ? "no parameters" : "parameters"));
  return {};
}

/// Checks a launch against the device and the kernel.
Result<void> check_launch(const LoadedKernel& kernel, const LoadedKernel::Function& function,
                          const DeviceInfo& info, const Launch& launch) {
  if (launch.group_size == std::array<std::uint32_t, 3>{0, 0, 0})
    return invalid(kernel, fmt::format("{} programs do not declare a group size; set Launch::group_size",
                                       info.language == Language::cuda ? "CUDA" : "HIP"));
  KILN_TRY(check_sizes(kernel, function, info.limits, launch));
  // The driver gets the arguments' addresses without their number, and would read past the end of a list that is
  // too short.
  if (!function.arguments)
    return Error(ErrorCode::unsupported,
                 fmt::format("{}: neither the driver nor the binary reports the arguments of {}",
                             kernel.image().name(), kernel.entry()));
  return check_arguments(kernel, *function.arguments, launch);
}

}  // namespace

Result<PreparedLaunch> PreparedLaunch::make(const LoadedImage* image, LoadedKernel* kernel, const Launch& launch,
                                            const Context& context, const DeviceInfo& info) {
  if (image == nullptr || &image->context() != &context)
    return backend::foreign_program(image != nullptr ? image->name() : "the program", info.name);
  if (kernel == nullptr) return backend::no_entry_chosen(image->name(), image->kernels().size());
  const auto function = KILN_TRY(kernel->function());
  KILN_TRY(check_launch(*kernel, *function, info, launch));
  const auto buffers = KILN_TRY(backend::own_buffers<CudaBuffer>(launch, context, info.name, image->name()));
  PreparedLaunch prepared(*kernel, function->native, launch);
  for (const CudaBuffer* buffer : buffers) prepared.addresses_.push_back(buffer->address());
  return prepared;
}

bool PreparedLaunch::is_work() const noexcept {
  return std::ranges::find(launch_->groups, 0U) == launch_->groups.end();
}

Status PreparedLaunch::enqueue(Handle stream) const {
  const auto& groups = launch_->groups;
  const auto& size = launch_->group_size;
  // The driver only reads the arguments, despite its signature.
  std::vector<void*> arguments;
  for (const Address& address : addresses_) arguments.push_back(const_cast<Address*>(&address));
  if (!launch_->parameters.empty()) arguments.push_back(const_cast<std::byte*>(launch_->parameters.data()));
  return kernel_->image().context().driver()->launch(function_, groups[0], groups[1], groups[2], size[0], size[1],
                                                     size[2], 0, stream, arguments.data(), nullptr);
}

}  // namespace kiln::cuda
