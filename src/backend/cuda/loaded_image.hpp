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

/// An image loaded into a context, and its entry function.
class LoadedImage {
 public:
  /// The properties of the function, read at its first use.
  struct Function {
    Handle native = nullptr;
    std::uint32_t max_group_items = 0;
    /// The size of each argument in bytes; nullopt if neither the driver nor the image contains it.
    std::optional<std::vector<std::size_t>> arguments = {};
  };

  /// Loads the image into the driver. Does not look up the function, because that would take most of the time.
  static Result<std::unique_ptr<LoadedImage>> load(std::shared_ptr<Context> context, const Parts& parts);

  /// For load(), which sets the module.
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
  /// The function, looked up at the first call. The pointer is valid as long as this object. Thread-safe.
  Result<const Function*> function();
  /// Only the handle of the function, which needs fewer calls to the driver; null on failure. Thread-safe.
  Handle native_function() noexcept;

 private:
  Result<Handle> find_native(const Context::ScopedCurrent& scope);
  Result<Function> find_function();

  const std::shared_ptr<Context> context_;
  Handle module_ = nullptr;
  const std::string name_;
  const std::string entry_;
  const std::size_t bytes_;
  /// The argument sizes from the image, if the driver does not report them.
  const std::optional<std::vector<std::size_t>> arguments_;
  std::atomic<Handle> native_ = nullptr;
  base::Mutex lookup_;
  Function function_ KILN_GUARDED_BY(lookup_);
  /// &function_ once it is set; it does not change after that.
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

/// A validated launch, in the driver's terms. The kernel and the launch must outlive it.
class PreparedLaunch {
 public:
  /// The error says what does not fit. `kernel` is null for a module of another API. `context` and `info` are the
  /// device's.
  static Result<PreparedLaunch> make(LoadedImage* kernel, const Launch& launch, const Context& context,
                                     const DeviceInfo& info);

  const LoadedImage& kernel() const noexcept { return *kernel_; }
  /// False if the launch has no groups: drivers refuse it.
  bool is_work() const noexcept;
  /// Returns the driver's status. The driver has read the arguments when it returns. Call it within a
  /// ScopedCurrent.
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
