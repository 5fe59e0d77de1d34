#pragma once

#include <memory>
#include <string>
#include <utility>

#include <kiln/backend.hpp>
#include <kiln/vulkan.hpp>

#include "backend/vulkan/context.hpp"
#include "backend/vulkan/pipeline.hpp"
#include "backend/vulkan/shaderc.hpp"

namespace kiln::vulkan {

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

}  // namespace kiln::vulkan
