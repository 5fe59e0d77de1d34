#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <kiln/device.hpp>

#include "backend/cuda/context.hpp"
#include "backend/cuda/image.hpp"
#include "backend/cuda/loaded_image.hpp"
#include "backend/cuda/rtc.hpp"

namespace kiln::cuda {

/// The compilation target of a device.
struct Target {
  /// As in "sm_90". A binary fits every device of its architecture.
  std::string architecture;
  ImageKind kind = ImageKind::cubin;
  /// The compiler option that selects the target.
  std::string option;
  /// The part of the driver's version that a binary depends on.
  std::string driver;
};

/// The differences between CUDA and HIP, except the names of functions.
struct Platform {
  std::string_view api;
  std::string_view vendor;
  Language language;
  /// The languages of requests that contain a compiled program instead of a source, such as Language::ptx.
  std::span<const Language> compiled_languages;
  /// Prefixes of the compiler options that select an architecture. If a request has one, it replaces the target's
  /// option.
  std::span<const std::string_view> architecture_options;
  const DriverNames* driver;
  Result<std::shared_ptr<const Rtc>> (*open_rtc)(const Driver& driver);
  /// `rtc` is null if there is no compiler.
  Result<Target> (*target)(const Driver& driver, int device, const Rtc* rtc);
  /// How well binaries for another target suit a device, as Backend::accepts() says. `own` is the device's target,
  /// and `version` the driver's.
  unsigned (*rank)(const Target& own, int version, const Identity& target);
  std::unique_ptr<kiln::Module> (*wrap)(std::unique_ptr<LoadedImage> image);
  /// The image of a module; null for a module of another platform.
  LoadedImage* (*image_of)(const kiln::Module& module);
  /// The kernel of a module; null for a module of another platform, or with several kernels.
  LoadedKernel* (*kernel_of)(const kiln::Module& module);
};

/// What a device runs, and what compiles for it.
struct Toolchain {
  Target target;
  /// Null if there is no compiler.
  std::shared_ptr<const Rtc> rtc = {};
  /// Why there is none.
  std::string problem = {};
};

/// A device of CUDA or HIP. Every call makes the context current for its duration.
class CudaDevice final : public Device {
 public:
  /// `name` is the device's name for open_device().
  static Result<std::shared_ptr<Device>> open(const Platform& platform, std::shared_ptr<Context> context,
                                              std::string name);

  CudaDevice(const Platform& platform, std::shared_ptr<Context> context, Toolchain toolchain, DeviceInfo info)
      : platform_(platform),
        context_(std::move(context)),
        toolchain_(std::move(toolchain)),
        info_(std::move(info)) {}

  const Identity& identity() const noexcept override { return info_.identity; }
  const DeviceInfo& info() const noexcept override { return info_; }
  const Platform& platform() const noexcept { return platform_; }
  const std::shared_ptr<Context>& context() const noexcept { return context_; }

  Result<Compiled> compile(const Request& request) override;
  std::unique_ptr<CompilePlace> wait_for_place(Urgency urgency) override {
    const Rtc* rtc = toolchain_.rtc.get();
    return rtc != nullptr && rtc->places() != nullptr ? rtc->places()->wait(urgency) : nullptr;
  }
  Result<std::unique_ptr<kiln::Module>> load(const Binary& binary) override;
  unsigned accepts(const Identity& target) const override;
  Result<Compiled> adapt(const Identity& target, const Binary& binary) override;
  Result<std::unique_ptr<Buffer>> allocate(std::size_t bytes) override;
  Result<void> write(Buffer& buffer, std::span<const std::byte> bytes, std::size_t offset) override;
  Result<void> read(const Buffer& buffer, std::span<std::byte> bytes, std::size_t offset) override;
  Result<void> launch(kiln::Module& module, const Launch& launch) override;
  Result<std::vector<Parameter>> parameters(kiln::Module& module) override;
  Result<std::unique_ptr<Slot>> open_slot() override;

 private:
  /// Loads an image and checks that it has its kernels.
  Result<Compiled> load_compiled(const std::string& name, ImageKind kind, Image image);
  Result<Compiled> load_given(const Request& request);
  Result<Compiled> load_ptx(const Binary& binary);

  const Platform& platform_;
  const std::shared_ptr<Context> context_;
  const Toolchain toolchain_;
  const DeviceInfo info_;
};

/// The identity of devices that the target stands for; without a compiler if `rtc` is null.
Identity identity_of(const Platform& platform, const Target& target, const Rtc* rtc);

/// Compiles a request to an image. Needs no device. Fails with compile_failed if it has no kernel.
Result<Image> compile_image(const Platform& platform, const Rtc& rtc, const Target& target, const Request& request);

/// Finds what a device runs and the compiler for it. Fails if its architecture is unknown.
Result<Toolchain> toolchain_of(const Platform& platform, const Driver& driver, int device);

/// Describes a device without making a context on it. DeviceInfo::problem says why it cannot be used.
DeviceInfo describe(const Platform& platform, const Driver& driver, int device, std::string name,
                    const Result<Toolchain>& toolchain);

/// List the devices of a platform, open the one with this number, and adopt the caller's context.
std::vector<DeviceInfo> list(const Platform& platform);
Result<std::shared_ptr<Device>> open(const Platform& platform, std::size_t number);
Result<std::shared_ptr<Device>> adopt(const Platform& platform, Handle context);

}  // namespace kiln::cuda
