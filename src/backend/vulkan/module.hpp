#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <kiln/backend.hpp>
#include <kiln/vulkan.hpp>

#include "backend/vulkan/context.hpp"
#include "backend/vulkan/memory.hpp"
#include "backend/vulkan/shaderc.hpp"
#include "backend/vulkan/spirv.hpp"

namespace kiln::vulkan {

/// Whether a program keeps to the limits of a device; the error names the program and both numbers.
Result<void> check_limits(const Physical& physical, const std::string& name, const ShaderInterface& interface);

/// Whether the data begins as the pipeline caches that this device gives out. The driver sees no other.
Result<void> check_cache_header(const Physical& physical, std::span<const std::byte> data);

/// A compute pipeline.
class Pipeline {
 public:
  struct Made {
    std::unique_ptr<const Pipeline> pipeline = {};
    /// What the driver made of the program, for the next time; empty where it was given, or gives none.
    std::vector<std::byte> cache_data = {};
  };
  /// Makes the pipeline of a module with the interface that was read from it, within the device's limits.
  static Result<Made> create(std::shared_ptr<Context> context, const std::string& name,
                             std::span<const std::uint32_t> spirv, const ShaderInterface& interface,
                             std::span<const std::byte> cache_data = {});

  Pipeline(std::shared_ptr<Context> of, std::string called, const ShaderInterface& declared)
      : context(std::move(of)), name(std::move(called)), interface(declared) {}
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  const std::shared_ptr<Context> context;
  const std::string name;
  const ShaderInterface interface;
  /// Of the SPIR-V and of what the driver made of it.
  std::size_t bytes = 0;
  /// The context's.
  Context::Layout layout = {};
  VkPipeline handle = nullptr;

 private:
  Result<void> make_pipeline(std::span<const std::uint32_t> spirv, VkPipelineCache cache);
};

/// The only format of Kiln's Vulkan binaries: sealed, the SPIR-V, what was read from it (see ShaderInterface), the
/// driver's pipeline cache, the program's name.
constexpr std::uint32_t binary_format = 2;

class PipelineModule final : public Module {
 public:
  explicit PipelineModule(std::unique_ptr<const Pipeline> pipeline) noexcept : pipeline_(std::move(pipeline)) {}

  VkPipeline pipeline() const noexcept override { return pipeline_->handle; }
  VkPipelineLayout layout() const noexcept override { return pipeline_->layout.pipeline; }
  VkDescriptorSetLayout set_layout() const noexcept override { return pipeline_->layout.set; }
  const std::string& name() const noexcept override { return pipeline_->name; }
  std::uint32_t buffers() const noexcept override { return pipeline_->interface.buffers; }
  std::uint32_t parameter_bytes() const noexcept override { return pipeline_->interface.parameter_bytes; }
  std::size_t bytes() const noexcept override { return pipeline_->bytes; }
  const Context& context() const noexcept { return *pipeline_->context; }

 private:
  std::unique_ptr<const Pipeline> pipeline_;
};

Result<Compiled> compile_program(const std::shared_ptr<Context>& context, const Shaderc& shaderc,
                                 const Request& request);

/// The driver sees nothing of a binary that is not as it gave it out.
Result<std::unique_ptr<kiln::Module>> load_program(const std::shared_ptr<Context>& context, const Binary& binary);

/// A launch that was found to fit: its program and its buffers as this backend knows them.
struct Fitting {
  const Module& program;
  std::vector<const DeviceBuffer*> buffers;
};

/// Sees whether a launch gives a program of `context` what it declares, within what the device has.
Result<Fitting> fit(const Context& context, const DeviceInfo& device, const kiln::Module& module,
                    const Launch& launch);

}  // namespace kiln::vulkan
