#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <kiln/device.hpp>

#include "backend/cuda/context.hpp"
#include "backend/cuda/image.hpp"
#include "base/mutex.hpp"

namespace kiln::cuda {

class LoadedImage;

/// A kernel of a loaded image. Thread-safe.
class LoadedKernel {
 public:
  /// The properties of the function, read at its first use.
  struct Function {
    Handle native = nullptr;
    std::uint32_t max_group_items = 0;
    /// Shared memory that the kernel declares, and the most that a launch may add.
    std::uint64_t static_shared_bytes = 0;
    std::uint64_t max_shared_bytes = 0;
    /// The size of each argument in bytes; nullopt if neither the driver nor the image contains it.
    std::optional<std::vector<std::size_t>> arguments = {};
  };

  /// `arguments` are the argument sizes from the image, if the driver does not report them. `image` must outlive
  /// this.
  LoadedKernel(const LoadedImage& image, EntryPoint entry, std::optional<std::vector<std::size_t>> arguments);
  LoadedKernel(const LoadedKernel&) = delete;
  LoadedKernel& operator=(const LoadedKernel&) = delete;

  const LoadedImage& image() const noexcept { return image_; }
  /// The name in the request.
  const std::string& entry() const noexcept { return entry_.name; }
  /// The function, looked up at the first call. The pointer is valid as long as this object.
  Result<const Function*> function();
  /// Has the driver accept launches with this much dynamic shared memory, which may be above its default.
  Status allow_shared(const Function& function, std::uint32_t bytes);
  /// Only the handle of the function, which needs fewer calls to the driver; null on failure.
  Handle native() noexcept;

 private:
  Result<Handle> find_native(const Context::ScopedCurrent& scope);
  Result<Function> find_function();

  const LoadedImage& image_;
  const EntryPoint entry_;
  const std::optional<std::vector<std::size_t>> arguments_;
  std::atomic<Handle> native_ = nullptr;
  base::Mutex lookup_;
  Function function_ KILN_GUARDED_BY(lookup_);
  /// &function_ once it is set; it does not change after that.
  std::atomic<const Function*> found_ = nullptr;
  /// The dynamic shared memory that the driver accepts; only grows.
  std::atomic<std::uint32_t> allowed_shared_ = 0;
};

/// An image loaded into a context, and its kernels.
class LoadedImage {
 public:
  /// Loads the image into the driver. Does not look up functions, because that would take most of the time.
  static Result<std::unique_ptr<LoadedImage>> load(std::shared_ptr<Context> context, const Parts& parts);

  /// For load(), which sets the module.
  LoadedImage(std::shared_ptr<Context> context, const Parts& parts);
  ~LoadedImage();
  LoadedImage(const LoadedImage&) = delete;
  LoadedImage& operator=(const LoadedImage&) = delete;

  const Context& context() const noexcept { return *context_; }
  const std::string& name() const noexcept { return name_; }
  Handle module() const noexcept { return module_; }
  std::size_t bytes() const noexcept { return bytes_; }
  /// At least one, in the order of the request.
  const std::vector<std::unique_ptr<LoadedKernel>>& kernels() const noexcept { return kernels_; }

 private:
  const std::shared_ptr<Context> context_;
  Handle module_ = nullptr;
  const std::string name_;
  const std::size_t bytes_;
  std::vector<std::unique_ptr<LoadedKernel>> kernels_;
};

/// The module of a loaded image, or of one of its kernels. `Public` is cuda::Module or hip::Module.
template <class Public>
class LoadedModule final : public Public {
  template <auto getter>
  using Native = decltype((std::declval<const Public&>().*getter)());

 public:
  static std::unique_ptr<kiln::Module> wrap(std::unique_ptr<LoadedImage> image) {
    auto module = std::make_unique<LoadedModule>(std::shared_ptr<LoadedImage>(std::move(image)), nullptr);
    const auto& kernels = module->image_->kernels();
    if (kernels.size() == 1) module->kernel_ = kernels[0].get();
    if (kernels.size() > 1)
      for (const auto& kernel : kernels)
        module->entries_.push_back(std::make_unique<LoadedModule>(module->image_, kernel.get()));
    return module;
  }
  /// The image of a module; null for a module of another class.
  static LoadedImage* image_of(const kiln::Module& module) {
    const auto* own = dynamic_cast<const LoadedModule*>(&module);
    return own != nullptr ? own->image_.get() : nullptr;
  }
  /// The kernel of a module; null for a module of another class, or with several kernels.
  static LoadedKernel* kernel_of(const kiln::Module& module) {
    const auto* own = dynamic_cast<const LoadedModule*>(&module);
    return own != nullptr ? own->kernel_ : nullptr;
  }

  LoadedModule(std::shared_ptr<LoadedImage> image, LoadedKernel* kernel) noexcept
      : image_(std::move(image)), kernel_(kernel) {}

  Native<&Public::native> native() const noexcept override {
    return static_cast<Native<&Public::native>>(image_->module());
  }
  Native<&Public::function> function() const noexcept override {
    return static_cast<Native<&Public::function>>(kernel_ != nullptr ? kernel_->native() : nullptr);
  }
  std::size_t bytes() const noexcept override { return image_->bytes(); }
  std::vector<std::string> entries() const override {
    std::vector<std::string> names;
    for (const auto& kernel : image_->kernels())
      if (kernel_ == nullptr || kernel.get() == kernel_) names.push_back(kernel->entry());
    return names;
  }
  kiln::Module* entry(std::string_view name) noexcept override {
    if (kernel_ != nullptr) return kernel_->entry() == name ? this : nullptr;
    for (const auto& module : entries_)
      if (module->kernel_->entry() == name) return module.get();
    return nullptr;
  }

 private:
  std::shared_ptr<LoadedImage> image_;
  /// Null if there are several.
  LoadedKernel* kernel_;
  /// A module for each kernel, if there are several.
  std::vector<std::unique_ptr<LoadedModule>> entries_;
};

/// The error for a kernel whose arguments nobody reports.
Error unknown_arguments(const LoadedKernel& kernel);

/// A validated launch, in the driver's terms. The kernel and the launch must outlive it.
class PreparedLaunch {
 public:
  /// The error says what does not fit. `image` and `kernel` are those of the module; `context` and `info` are the
  /// device's.
  static Result<PreparedLaunch> make(const LoadedImage* image, LoadedKernel* kernel, const Launch& launch,
                                     const Context& context, const DeviceInfo& info);

  /// The name of the program.
  const std::string& name() const noexcept { return kernel_->image().name(); }
  /// False if the launch has no groups: drivers refuse it.
  bool is_work() const noexcept;
  /// Returns the driver's status. The driver has read the arguments when it returns. Call it within a
  /// ScopedCurrent.
  Status enqueue(Handle stream) const;

 private:
  PreparedLaunch(LoadedKernel& kernel, const LoadedKernel::Function& function, const Launch& launch)
      : kernel_(&kernel), function_(&function), launch_(&launch) {
    addresses_.reserve(launch.arguments.size());
    arguments_.reserve(launch.arguments.size());
  }

  Result<void> set_sizes(const DeviceInfo& info);
  Result<void> set_arguments(const Context& context, const DeviceInfo& info);
  Result<void> add(std::size_t i, const Context& context, const DeviceInfo& info);
  /// As in "saxpy: argument 2".
  std::string describe(std::size_t i) const;
  Error refuse(std::string_view why) const;

  LoadedKernel* kernel_;
  const LoadedKernel::Function* function_;
  const Launch* launch_;
  Extent groups_ = {};
  /// Never reallocated: `arguments_` points into it.
  std::vector<Address> addresses_;
  /// The address of each argument, in `addresses_` or in the launch.
  std::vector<void*> arguments_;
};

}  // namespace kiln::cuda
