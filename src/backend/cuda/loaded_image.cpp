#include "backend/cuda/loaded_image.hpp"

#include <algorithm>
#include <array>
#include <exception>

#include <fmt/format.h>

#include <kiln/cuda.hpp>

#include "backend/cuda/arguments.hpp"
#include "base/try.hpp"

namespace kiln::cuda {
namespace {

/// Whether a driver that refused to load an image says that of the image, and not of itself or the context.
bool blames_the_image(Status status) noexcept {
  // Invalid value, image, no code for this GPU, PTX, its version, device-side waits in it, source, and symbols or
  // a start that fail when it is linked.
  static constexpr std::array verdicts = {1, 200, 209, 218, 222, 225, 300, 302, 303};
  return std::find(verdicts.begin(), verdicts.end(), status) != verdicts.end();
}

}  // namespace

Result<std::unique_ptr<LoadedImage>> LoadedImage::load(std::shared_ptr<Context> context, const Parts& parts) {
  const Driver& driver = context->driver();
  const auto doing = [&parts] { return fmt::format("loading {}", parts.name); };
  const Context::ScopedCurrent scope(*context);
  if (scope.status() != status::success) return driver.error(scope.status(), doing());
  std::optional<std::vector<std::size_t>> arguments;
  if (driver->parameter_info == nullptr) arguments = argument_sizes(parts.image, parts.kind, parts.entry);
  auto loaded = std::make_unique<LoadedImage>(std::move(context), parts, std::move(arguments));
  const Status status = driver->module_load(&loaded->module_, parts.image.data());
  if (status == status::success) return loaded;
  // Caches remove what fails to load, so only an image that is at fault may be called that.
  if (!blames_the_image(status)) return driver.error(status, doing());
  return Error(ErrorCode::load_failed,
               fmt::format("the driver refuses the binary of {}: {}", parts.name, driver.error_name(status)));
}

LoadedImage::LoadedImage(std::shared_ptr<Context> context, const Parts& parts,
                         std::optional<std::vector<std::size_t>> arguments)
    : context_(std::move(context)),
      name_(parts.name),
      entry_(parts.entry),
      bytes_(parts.image.size()),
      arguments_(std::move(arguments)) {}

LoadedImage::~LoadedImage() {
  if (module_ == nullptr) return;
  const Context::ScopedCurrent scope(*context_);
  if (scope.status() == status::success) context_->driver()->module_unload(module_);
}

Result<const LoadedImage::Function*> LoadedImage::function() {
  if (const Function* found = found_.load(std::memory_order_acquire)) return found;
  const base::MutexLock lock(lookup_);
  if (const Function* found = found_.load(std::memory_order_relaxed)) return found;
  auto function = KILN_TRY(find_function());
  function_ = std::move(function);
  found_.store(&function_, std::memory_order_release);
  return &function_;
}

Handle LoadedImage::native_function() noexcept {
  try {
    const Context::ScopedCurrent scope(*context_);
    const auto found = find_native(scope);
    return found ? *found : nullptr;
  } catch (const std::exception&) {
    return nullptr;
  }
}

Result<Handle> LoadedImage::find_native(const Context::ScopedCurrent& scope) {
  if (Handle found = native_.load(std::memory_order_acquire)) return found;
  const Driver& driver = context_->driver();
  Handle native = nullptr;
  Status status = scope.status();
  if (status == status::success) status = driver->module_function(&native, module_, entry_.c_str());
  if (status == status::not_found)
    return Error(ErrorCode::load_failed, fmt::format("{} has no kernel called {}", name_, entry_));
  if (status != status::success) return driver.error(status, fmt::format("looking up {} in {}", entry_, name_));
  // Whoever looks it up finds the same.
  native_.store(native, std::memory_order_release);
  return native;
}

Result<LoadedImage::Function> LoadedImage::find_function() {
  const Driver& driver = context_->driver();
  const Context::ScopedCurrent scope(*context_);
  auto native = KILN_TRY(find_native(scope));
  Function function;
  function.native = native;
  // CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, and HIP's.
  constexpr int max_threads_per_block = 0;
  int items = 0;
  if (driver->function_attribute(&items, max_threads_per_block, function.native) == status::success && items > 0)
    function.max_group_items = static_cast<std::uint32_t>(items);
  function.arguments = arguments_;
  if (driver->parameter_info == nullptr) return function;
  std::vector<std::size_t>& sizes = function.arguments.emplace();
  // The driver does not tell how many there are, but refuses the one behind the last.
  for (std::size_t offset = 0, bytes = 0;
       driver->parameter_info(function.native, sizes.size(), &offset, &bytes) == status::success;)
    sizes.push_back(bytes);
  return function;
}

}  // namespace kiln::cuda
