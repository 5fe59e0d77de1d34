#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <kiln/backend.hpp>

#include "backend/vulkan/context.hpp"
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

}  // namespace kiln::vulkan
