#include "backend/vulkan/module.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "backend/launch_checks.hpp"
#include "backend/sections.hpp"
#include "backend/vulkan/spirv.hpp"
#include "base/try.hpp"

namespace kiln::vulkan {
namespace {

Error beyond(const std::string& name, const std::string& what, std::uint64_t most) {
  return Error(ErrorCode::unsupported, fmt::format("{} {}; the device allows at most {}", name, what, most));
}

template <class Handle>
class Owned {
 public:
  using Destroy = void (*)(VkDevice, Handle, const VkAllocationCallbacks*);
  Owned(const Context& context, Destroy destroy) : device_(context.device), destroy_(destroy) {}
  ~Owned() {
    if (handle_ != nullptr) destroy_(device_, handle_, nullptr);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  Handle get() const noexcept { return handle_; }
  Handle* receive() noexcept { return &handle_; }

 private:
  VkDevice device_;
  Destroy destroy_;
  Handle handle_ = nullptr;
};

/// The data of a pipeline cache; empty if the driver does not return it.
std::vector<std::byte> data_of(const Context& context, VkPipelineCache cache) {
  std::vector<std::byte> data;
  VkResult read = VK_INCOMPLETE;
  for (int attempt = 0; attempt < 3 && read == VK_INCOMPLETE; ++attempt) {
    std::size_t size = 0;
    if (context.vk->GetPipelineCacheData(context.device, cache, &size, nullptr) != VK_SUCCESS) return {};
    data.resize(size);
    read = context.vk->GetPipelineCacheData(context.device, cache, &size, data.data());
    data.resize(std::min(size, data.size()));
  }
  return read == VK_SUCCESS ? data : std::vector<std::byte>();
}

}  // namespace

Result<void> check_limits(const Physical& physical, const std::string& name, const ShaderInterface& interface) {
  const VkPhysicalDeviceLimits& limits = physical.properties.limits;
  if (interface.shared_bytes > limits.maxComputeSharedMemorySize)
    return beyond(name, fmt::format("uses {} bytes of shared memory in a work group", interface.shared_bytes),
                  limits.maxComputeSharedMemorySize);
  std::uint64_t items = 1;
  for (std::size_t i = 0; i < 3; ++i) {
    if (interface.group_size[i] > limits.maxComputeWorkGroupSize[i])
      return beyond(name, fmt::format("has work groups of {} items in dimension {}", interface.group_size[i], i),
                    limits.maxComputeWorkGroupSize[i]);
    items *= interface.group_size[i];
    if (items > limits.maxComputeWorkGroupInvocations)
      return beyond(name,
                    fmt::format("has work groups of {}x{}x{} items", interface.group_size[0],
                                interface.group_size[1], interface.group_size[2]),
                    limits.maxComputeWorkGroupInvocations);
  }
  const std::uint32_t buffers =
      std::min(limits.maxPerStageDescriptorStorageBuffers, limits.maxDescriptorSetStorageBuffers);
  if (interface.buffers > buffers)
    return beyond(name, fmt::format("takes {} storage buffers", interface.buffers), buffers);
  if (interface.parameter_bytes > limits.maxPushConstantsSize)
    return beyond(name, fmt::format("declares {} bytes of parameters", interface.parameter_bytes),
                  limits.maxPushConstantsSize);
  return {};
}

Result<void> check_cache_header(const Physical& physical, std::span<const std::byte> data) {
  const auto refuse = [](std::string_view why) {
    return Error(ErrorCode::load_failed, fmt::format("the pipeline cache in the binary {}", why));
  };
  VkPipelineCacheHeaderVersionOne header{};
  static_assert(sizeof header == 32);
  if (data.size() < sizeof header) return refuse("is too short");
  std::memcpy(&header, data.data(), sizeof header);
  if (header.headerSize != sizeof header) return refuse("has an invalid header");
  if (header.headerVersion != VK_PIPELINE_CACHE_HEADER_VERSION_ONE) return refuse("has an unknown version");
  if (header.vendorID != physical.properties.vendorID || header.deviceID != physical.properties.deviceID)
    return refuse("was made on another device");
  if (std::memcmp(header.pipelineCacheUUID, physical.properties.pipelineCacheUUID, VK_UUID_SIZE) != 0)
    return refuse("was made by another driver");
  return {};
}

Result<Pipeline::Made> Pipeline::create(std::shared_ptr<Context> owner, const std::string& name,
                                        std::span<const std::uint32_t> spirv, const ShaderInterface& interface,
                                        std::span<const std::byte> cache_data) {
  const Context& context = *owner;
  Owned<VkPipelineCache> cache(context, context.vk->DestroyPipelineCache);
  VkPipelineCacheCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO;
  info.initialDataSize = cache_data.size();
  info.pInitialData = cache_data.data();
  const auto doing = fmt::format("preparing {}", name);
  KILN_TRY(check(context.vk->CreatePipelineCache(context.device, &info, nullptr, cache.receive()), doing));
  auto pipeline = std::make_unique<Pipeline>(std::move(owner), name, interface);
  auto layout = KILN_TRY(pipeline->context->layout(interface.buffers, interface.parameter_bytes, doing));
  pipeline->layout = layout;
  KILN_TRY(pipeline->make_pipeline(spirv, cache.get()));
  std::vector<std::byte> made;
  if (cache_data.empty()) made = data_of(context, cache.get());
  pipeline->bytes = spirv.size_bytes() + cache_data.size() + made.size();
  return Made{std::move(pipeline), std::move(made)};
}

Result<void> Pipeline::make_pipeline(std::span<const std::uint32_t> spirv, VkPipelineCache cache) {
  const auto doing = fmt::format("preparing {}", name);
  const DeviceCalls& vk = context->vk;
  Owned<VkShaderModule> shader(*context, vk->DestroyShaderModule);
  VkShaderModuleCreateInfo code{};
  code.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO;
  code.codeSize = spirv.size_bytes();
  code.pCode = spirv.data();
  KILN_TRY(check(vk->CreateShaderModule(context->device, &code, nullptr, shader.receive()), doing));
  VkComputePipelineCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
  info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.module = shader.get();
  info.stage.pName = "main";
  info.layout = layout.pipeline;
  return check(vk->CreateComputePipelines(context->device, cache, 1, &info, nullptr, &handle), doing);
}

Pipeline::~Pipeline() { context->vk->DestroyPipeline(context->device, handle, nullptr); }

Result<Compiled> compile_program(const std::shared_ptr<Context>& context, const Shaderc& shaderc,
                                 const Request& request) {
  auto spirv = KILN_TRY(shaderc.compile(request));
  const auto interface = read_spirv(spirv);
  if (!interface)
    return Error(
        interface.error().code() == ErrorCode::unsupported ? ErrorCode::invalid_request : ErrorCode::compile_failed,
        fmt::format("{} cannot be run: {}", request.name(), interface.error().message()));
  KILN_TRY(check_limits(context->physical, request.name(), *interface));
  auto made = KILN_TRY(Pipeline::create(context, request.name(), spirv, *interface));
  Compiled compiled{.module = std::make_unique<PipelineModule>(std::move(made.pipeline))};
  if (check_cache_header(context->physical, made.cache_data))
    compiled.binary =
        Binary{binary_format, backend::seal_sections({std::as_bytes(std::span(spirv)), to_bytes(*interface),
                                                      made.cache_data, backend::as_section(request.name())})};
  return compiled;
}

Result<std::unique_ptr<kiln::Module>> load_program(const std::shared_ptr<Context>& context, const Binary& binary) {
  if (binary.format != binary_format)
    return Error(ErrorCode::load_failed,
                 fmt::format("Vulkan devices do not support binary format {:#x}", binary.format));
  const auto sections = backend::unseal_sections(binary.bytes, 4);
  if (!sections) return Error(ErrorCode::load_failed, "the binary is damaged: its checksum does not match");
  const std::string name(backend::as_text((*sections)[3]));
  const auto cache = (*sections)[2];
  // The checksum matches, so the stored interface is that of the SPIR-V.
  const auto interface = interface_from((*sections)[1]);
  if (!interface) return Error(ErrorCode::load_failed, fmt::format("{}: the binary is damaged", name));
  if (auto ok = check_limits(context->physical, name, *interface); !ok)
    return Error(ErrorCode::load_failed, ok.error().message());
  if (auto ok = check_cache_header(context->physical, cache); !ok)
    return Error(ErrorCode::load_failed, fmt::format("{}: {}", name, ok.error().message()));
  auto made = KILN_TRY(Pipeline::create(context, name, spirv_words((*sections)[0]), *interface, cache));
  return std::unique_ptr<kiln::Module>(std::make_unique<PipelineModule>(std::move(made.pipeline)));
}

Result<Fitting> fit(const Context& context, const DeviceInfo& device, const kiln::Module& module,
                    const Launch& launch) {
  const auto* program = dynamic_cast<const PipelineModule*>(&module);
  if (program == nullptr || &program->context() != &context)
    return backend::foreign_program(program != nullptr ? program->name() : "the program", device.name);
  const auto refuse = [](std::string why) { return Error(ErrorCode::invalid_request, std::move(why)); };
  KILN_TRY(backend::check_groups(launch, device.limits, program->name()));
  if (launch.buffers.size() != program->buffers())
    return refuse(fmt::format("{} declares {} buffers; {} were given", program->name(), program->buffers(),
                              launch.buffers.size()));
  if (launch.parameters.size() != program->parameter_bytes())
    return refuse(fmt::format("{} declares {} bytes of parameters; {} were given", program->name(),
                              program->parameter_bytes(), launch.parameters.size()));
  auto buffers = KILN_TRY(backend::own_buffers<DeviceBuffer>(launch, context, device.name, program->name()));
  return Fitting{*program, std::move(buffers)};
}

}  // namespace kiln::vulkan
