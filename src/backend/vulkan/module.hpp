#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <kiln/backend.hpp>
#include <kiln/vulkan.hpp>

#include "backend/glsl_arguments.hpp"
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

/// What a launch must give.
backend::GlslInterface interface_of(const ShaderInterface& declared);

/// The largest uniform buffer that a launch can give as a value.
constexpr std::size_t max_uniform_value = 65536;

/// Owns the compute pipeline of an entry point.
class Pipeline {
 public:
  /// Makes the pipeline. `name` is the program's, for errors. The interface of the entry point must be within the
  /// device's limits.
  static Result<std::unique_ptr<const Pipeline>> create(const std::shared_ptr<Context>& context,
                                                        const std::string& name, VkShaderModule shader,
                                                        const ShaderEntry& entry, VkPipelineCache cache);

  Pipeline(std::shared_ptr<Context> of, ShaderEntry declared)
      : context(std::move(of)), entry(std::move(declared)), takes(interface_of(entry.interface)) {}
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  const std::shared_ptr<Context> context;
  const ShaderEntry entry;
  const backend::GlslInterface takes;
  /// Owned by the context.
  const Context::Layout* layout = nullptr;
  VkPipeline handle = nullptr;
};

/// The pipelines of a program.
struct Pipelines {
  std::string name;
  /// At least one.
  std::vector<std::unique_ptr<const Pipeline>> all = {};
  /// The size of the SPIR-V and of the pipeline cache.
  std::size_t bytes = 0;
  /// The driver's pipeline cache, to be stored; empty if create() was given one, or if the driver provides none.
  std::vector<std::byte> cache_data = {};

  /// Makes the pipelines of entry points of a SPIR-V module.
  static Result<Pipelines> create(const std::shared_ptr<Context>& context, const std::string& name,
                                  std::span<const std::uint32_t> spirv, const std::vector<ShaderEntry>& entries,
                                  std::span<const std::byte> cache_data = {});
};

/// The format of binaries of a device, sealed as in seal_sections(): the SPIR-V, its entry points, the
/// driver's pipeline cache, the program's name.
constexpr std::uint32_t binary_format = 3;

/// The module of a program, or of one of its entry points.
class PipelineModule final : public Module {
 public:
  static std::unique_ptr<PipelineModule> of(Pipelines pipelines);
  /// `pipeline` is null if the program has several.
  PipelineModule(std::shared_ptr<const Pipelines> pipelines, const Pipeline* pipeline) noexcept
      : pipelines_(std::move(pipelines)), pipeline_(pipeline) {}

  /// Whether it has exactly one entry point, which the functions of vulkan::Module require.
  bool is_entry() const noexcept { return pipeline_ != nullptr; }
  std::size_t entry_count() const noexcept { return is_entry() ? 1 : pipelines_->all.size(); }

  VkPipeline pipeline() const noexcept override { return is_entry() ? pipeline_->handle : nullptr; }
  VkPipelineLayout layout() const noexcept override { return is_entry() ? pipeline_->layout->pipeline : nullptr; }
  VkDescriptorSetLayout set_layout(std::uint32_t set) const noexcept override {
    return is_entry() && set < pipeline_->layout->sets.size() ? pipeline_->layout->sets[set] : nullptr;
  }
  const std::string& name() const noexcept override { return pipelines_->name; }
  std::uint32_t buffers() const noexcept override { return is_entry() ? pipeline_->entry.interface.buffers() : 0; }
  std::uint32_t parameter_bytes() const noexcept override {
    return is_entry() ? pipeline_->entry.interface.parameter_bytes : 0;
  }
  std::size_t bytes() const noexcept override { return pipelines_->bytes; }
  std::vector<std::string> entries() const override;
  kiln::Module* entry(std::string_view name) noexcept override;
  const Context& context() const noexcept { return *pipelines_->all.front()->context; }
  /// The only entry point.
  const Pipeline& only() const noexcept { return *pipeline_; }

 private:
  std::shared_ptr<const Pipelines> pipelines_;
  const Pipeline* pipeline_;
  /// A module for each entry point, if there are several.
  std::vector<std::unique_ptr<PipelineModule>> entries_;
};

Result<Compiled> compile_program(const std::shared_ptr<Context>& context, const Shaderc& shaderc,
                                 const Request& request);

/// Loads a binary of compile_portable(): makes its pipelines. The result has a binary of the device's own. Fails
/// with load_failed if the device does not support the program.
Result<Compiled> adapt_program(const std::shared_ptr<Context>& context, const Binary& binary);

/// Passes a binary to the driver only if its checksum and its pipeline cache header match.
Result<std::unique_ptr<kiln::Module>> load_program(const std::shared_ptr<Context>& context, const Binary& binary);

/// A validated launch: its program and its buffers, downcast to the types of this backend.
struct Fitting {
  const Module& program;
  const Context::Layout& layout;
  Extent groups = {};
  /// Points into the launch. Each native object is one of Vulkan, and fits its resource.
  backend::GlslArguments arguments = {};
  /// The buffer of each of `arguments.bound`; null for values and native objects.
  std::vector<const DeviceBuffer*> buffers = {};
};

/// The program of a module. Fails with invalid_request if it is of another device or has several entry points.
Result<const PipelineModule*> program_of(const Context& context, const DeviceInfo& device,
                                         const kiln::Module& module);

/// Validates a launch: the module and the buffers belong to `context`, the arguments are those that the program
/// declares, offsets are aligned, and the number of groups is within the device's limits.
Result<Fitting> fit(const Context& context, const DeviceInfo& device, const kiln::Module& module,
                    const Launch& launch);

}  // namespace kiln::vulkan
