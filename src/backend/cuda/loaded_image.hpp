#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <kiln/device.hpp>

#include "backend/cuda/context.hpp"
#include "backend/cuda/image.hpp"
#include "base/mutex.hpp"

namespace kiln::cuda {

/// An image loaded into a context, and the one kernel of it that is the program.
class LoadedImage {
 public:
  /// What is known of the function from its first use on.
  struct Function {
    Handle native = nullptr;
    std::uint32_t max_group_items = 0;
    /// How many bytes each argument takes; nothing where neither the driver nor the image tells.
    std::optional<std::vector<std::size_t>> arguments = {};
  };

  /// Hands the image to the driver. The function is not looked up, for most of a load's time would go to that.
  static Result<std::unique_ptr<LoadedImage>> load(std::shared_ptr<Context> context, const Parts& parts);

  /// For load(), which fills it.
  LoadedImage(std::shared_ptr<Context> context, const Parts& parts,
              std::optional<std::vector<std::size_t>> arguments);
  ~LoadedImage();
  LoadedImage(const LoadedImage&) = delete;
  LoadedImage& operator=(const LoadedImage&) = delete;

  const Context& context() const noexcept { return *context_; }
  const std::string& name() const noexcept { return name_; }
  const std::string& entry() const noexcept { return entry_; }
  Handle module() const noexcept { return module_; }
  std::size_t bytes() const noexcept { return bytes_; }
  /// The function, looked up by whoever asks first; the pointer is good as long as the kernel is.
  Result<const Function*> function();
  /// Its handle alone, for which the driver need not be asked as much; null where the driver gives none.
  Handle native_function() noexcept;

 private:
  Result<Handle> find_native(const Context::ScopedCurrent& scope);
  Result<Function> find_function();

  const std::shared_ptr<Context> context_;
  Handle module_ = nullptr;
  const std::string name_;
  const std::string entry_;
  const std::size_t bytes_;
  /// As the image tells, where the driver does not.
  const std::optional<std::vector<std::size_t>> arguments_;
  std::atomic<Handle> native_ = nullptr;
  base::Mutex lookup_;
  Function function_ KILN_GUARDED_BY(lookup_);
  /// &function_ once it has been found and will not change any more.
  std::atomic<const Function*> found_ = nullptr;
};

/// The module of a loaded image. `Public` is cuda::Module or hip::Module.
template <class Public>
class LoadedModule final : public Public {
  template <auto getter>
  using Native = decltype((std::declval<const Public&>().*getter)());

 public:
  static std::unique_ptr<kiln::Module> wrap(std::unique_ptr<LoadedImage> image) {
    return std::make_unique<LoadedModule>(std::move(image));
  }
  /// The image of a module of this class; null for other modules.
  static LoadedImage* unwrap(kiln::Module& module) {
    const auto* own = dynamic_cast<const LoadedModule*>(&module);
    return own != nullptr ? own->image_.get() : nullptr;
  }

  explicit LoadedModule(std::unique_ptr<LoadedImage> image) noexcept : image_(std::move(image)) {}

  Native<&Public::native> native() const noexcept override {
    return static_cast<Native<&Public::native>>(image_->module());
  }
  Native<&Public::function> function() const noexcept override {
    return static_cast<Native<&Public::function>>(image_->native_function());
  }
  std::size_t bytes() const noexcept override { return image_->bytes(); }

 private:
  std::unique_ptr<LoadedImage> image_;
};

/// A launch that its kernel and the device take, in the driver's terms. The kernel and the launch outlive it.
class PreparedLaunch {
 public:
  /// The error says what does not fit. `kernel` is null for a module of another API; `context` and `info` are the
  /// device's.
  static Result<PreparedLaunch> make(LoadedImage* kernel, const Launch& launch, const Context& context,
                                     const DeviceInfo& info);

  const LoadedImage& kernel() const noexcept { return *kernel_; }
  /// False for no groups, which drivers refuse.
  bool is_work() const noexcept;
  /// Returns what the driver does, which has read the arguments then. Only within a ScopedCurrent.
  Status enqueue(Handle stream) const;

 private:
  PreparedLaunch(const LoadedImage& kernel, Handle function, const Launch& launch) noexcept
      : kernel_(&kernel), function_(function), launch_(&launch) {}

  const LoadedImage* kernel_;
  Handle function_;
  const Launch* launch_;
  std::vector<Address> addresses_;
};

}  // namespace kiln::cuda
