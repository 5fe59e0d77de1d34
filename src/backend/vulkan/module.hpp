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

/// Checks a program against the limits of a device. The error names the program, its requirement and the limit.
Result<void> check_limits(const Physical& physical, const std::string& name, const ShaderInterface& interface);

/// Checks that the data begins with the pipeline cache header of this device and driver. Kiln passes no other data
/// to the driver.
Result<void> check_cache_header(const Physical& physical, std::span<const std::byte> data);

/// Owns a compute pipeline.
class Pipeline {
 public:
  struct Made {
    std::unique_ptr<const Pipeline> pipeline = {};
    /// The driver's pipeline cache, to be stored; empty if create() was given one, or if the driver provides none.
    std::vector<std::byte> cache_data = {};
  };
  /// Makes the pipeline of a SPIR-V module. `interface` is the module's and must be within the device's limits.
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
  /// The size of the SPIR-V and of the pipeline cache.
  std::size_t bytes = 0;
  /// Owned by the context.
  Context::Layout layout = {};
  VkPipeline handle = nullptr;

 private:
  Result<void> make_pipeline(std::span<const std::uint32_t> spirv, VkPipelineCache cache);
};

/// The only format of Kiln's Vulkan binaries, sealed as in seal_sections(): the SPIR-V, its ShaderInterface, the
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
  std::vector<std::string> entries() const override { return {"main"}; }
  kiln::Module* entry(std::string_view name) noexcept override { return name == "main" ? this : nullptr; }
  const Context& context() const noexcept { return *pipeline_->context; }

 private:
  std::unique_ptr<const Pipeline> pipeline_;
};

Result<Compiled> compile_program(const std::shared_ptr<Context>& context, const Shaderc& shaderc,
                                 const Request& request);

/// Passes a binary to the driver only if its checksum and its pipeline cache header match.
Result<std::unique_ptr<kiln::Module>> load_program(const std::shared_ptr<Context>& context, const Binary& binary);

/// A validated launch: its program and its buffers, downcast to the types of this backend.
struct Fitting {
  const Module& program;
  std::vector<const DeviceBuffer*> buffers;
};

/// Validates a launch: the module and the buffers belong to `context`, the arguments are those that the program
/// declares, and the number of groups is within the device's limits.
Result<Fitting> fit(const Context& context, const DeviceInfo& device, const kiln::Module& module,
                    const Launch& launch);

}  // namespace kiln::vulkan
