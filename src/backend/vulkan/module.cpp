#include "backend/vulkan/module.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "backend/launch_checks.hpp"
#include "backend/sections.hpp"
#include "backend/vulkan/spirv.hpp"
#include "backend/vulkan/spirv_program.hpp"
#include "base/try.hpp"

namespace kiln::vulkan {
namespace {

Error beyond(const std::string& name, const std::string& what, std::uint64_t most, std::string_view as = "") {
  return Error(ErrorCode::unsupported,
               fmt::format("{} {}; the device allows at most {}{}{}", name, what, most, as.empty() ? "" : " ", as));
}

/// The values of specialisation constants that a request gave.
class Specialisation {
 public:
  explicit Specialisation(const std::vector<SpecConstant>& constants) {
    for (const SpecConstant& constant : constants) {
      // Several constants of the source may have the same id.
      if (!constant.is_given || (!entries_.empty() && entries_.back().constantID == constant.id)) continue;
      entries_.push_back({constant.id, static_cast<std::uint32_t>(values_.size() * sizeof values_[0]),
                          std::size_t{constant.bits} / 8});
      values_.push_back(constant.value);
    }
    info_.mapEntryCount = static_cast<std::uint32_t>(entries_.size());
    info_.pMapEntries = entries_.data();
    info_.dataSize = values_.size() * sizeof values_[0];
    info_.pData = values_.data();
  }
  Specialisation(const Specialisation&) = delete;
  Specialisation& operator=(const Specialisation&) = delete;

  /// Null if there are none.
  const VkSpecializationInfo* info() const noexcept { return entries_.empty() ? nullptr : &info_; }

 private:
  std::vector<VkSpecializationMapEntry> entries_;
  std::vector<std::uint64_t> values_;
  VkSpecializationInfo info_ = {};
};

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

/// Checks a call that hands SPIR-V to the driver, for the program `name`.
Result<void> check_taken(VkResult result, const std::string& name) {
  switch (result) {
    // Drivers return one of these for a program that they cannot compile.
    case VK_ERROR_UNKNOWN:
    case VK_ERROR_INVALID_SHADER_NV:
    case VK_ERROR_INITIALIZATION_FAILED:
      return Error(ErrorCode::compile_failed, fmt::format("{} does not compile: the driver refuses its SPIR-V ({})",
                                                          name, result_name(result)));
    default: return check(result, fmt::format("preparing {}", name));
  }
}

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
  KILN_TRY(backend::check_group_size(name, interface.group_size, interface.shared_bytes, physical.limits()));
  using Kind = backend::GlslResource::Kind;
  std::array<std::uint64_t, descriptor_types> counts = {};
  std::uint64_t all = 0;
  for (const backend::GlslResource& resource : interface.resources) {
    counts[descriptor_type(resource.kind)] += resource.count;
    all += resource.count;
    if (resource.place.set >= limits.maxBoundDescriptorSets)
      return beyond(name, fmt::format("declares the {}", describe(resource)), limits.maxBoundDescriptorSets - 1,
                    "as number of a set");
    const std::uint64_t most = resource.kind == Kind::uniform_buffer   ? limits.maxUniformBufferRange
                               : resource.kind == Kind::storage_buffer ? limits.maxStorageBufferRange
                                                                       : resource.bytes;
    if (resource.bytes > most)
      return beyond(name, fmt::format("declares the {} of {} bytes", describe(resource), resource.bytes), most);
  }
  const std::uint64_t combined = counts[VK_DESCRIPTOR_TYPE_COMBINED_IMAGE_SAMPLER];
  struct Bound {
    std::string_view what;
    std::uint64_t count;
    std::uint32_t of_stage;
    std::uint32_t of_sets;
  };
  const Bound bounds[] = {
      {"storage buffers", counts[VK_DESCRIPTOR_TYPE_STORAGE_BUFFER], limits.maxPerStageDescriptorStorageBuffers,
       limits.maxDescriptorSetStorageBuffers},
      {"uniform buffers", counts[VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER], limits.maxPerStageDescriptorUniformBuffers,
       limits.maxDescriptorSetUniformBuffers},
      {"storage images", counts[VK_DESCRIPTOR_TYPE_STORAGE_IMAGE] + counts[VK_DESCRIPTOR_TYPE_STORAGE_TEXEL_BUFFER],
       limits.maxPerStageDescriptorStorageImages, limits.maxDescriptorSetStorageImages},
      {"sampled images",
       counts[VK_DESCRIPTOR_TYPE_SAMPLED_IMAGE] + counts[VK_DESCRIPTOR_TYPE_UNIFORM_TEXEL_BUFFER] + combined,
       limits.maxPerStageDescriptorSampledImages, limits.maxDescriptorSetSampledImages},
      {"samplers", counts[VK_DESCRIPTOR_TYPE_SAMPLER] + combined, limits.maxPerStageDescriptorSamplers,
       limits.maxDescriptorSetSamplers},
      {"resources", all, limits.maxPerStageResources, limits.maxPerStageResources},
  };
  for (const Bound& bound : bounds)
    if (const std::uint32_t most = std::min(bound.of_stage, bound.of_sets); bound.count > most)
      return beyond(name, fmt::format("takes {} {}", bound.count, bound.what), most);
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

Result<Pipelines> Pipelines::create(const std::shared_ptr<Context>& context, const std::string& name,
                                    std::span<const std::uint32_t> spirv, const std::vector<ShaderEntry>& entries,
                                    std::span<const std::byte> cache_data) {
  const DeviceCalls& vk = context->vk;
  const auto doing = fmt::format("preparing {}", name);
  Owned<VkPipelineCache> cache(*context, vk->DestroyPipelineCache);
  VkPipelineCacheCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO;
  info.initialDataSize = cache_data.size();
  info.pInitialData = cache_data.data();
  KILN_TRY(check(vk->CreatePipelineCache(context->device, &info, nullptr, cache.receive()), doing));
  Owned<VkShaderModule> shader(*context, vk->DestroyShaderModule);
  VkShaderModuleCreateInfo code{};
  code.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO;
  code.codeSize = spirv.size_bytes();
  code.pCode = spirv.data();
  KILN_TRY(check_taken(vk->CreateShaderModule(context->device, &code, nullptr, shader.receive()), name));
  Pipelines made{.name = name};
  for (const ShaderEntry& entry : entries)
    made.all.push_back(KILN_TRY(Pipeline::create(context, name, shader.get(), entry, cache.get())));
  if (cache_data.empty()) made.cache_data = data_of(*context, cache.get());
  made.bytes = spirv.size_bytes() + cache_data.size() + made.cache_data.size();
  return made;
}

Result<std::unique_ptr<const Pipeline>> Pipeline::create(const std::shared_ptr<Context>& context,
                                                         const std::string& name, VkShaderModule shader,
                                                         const ShaderEntry& entry, VkPipelineCache cache) {
  const auto doing = fmt::format("preparing {}", name);
  auto pipeline = std::make_unique<Pipeline>(context, entry);
  pipeline->layout = KILN_TRY(context->layout(entry.interface.resources, entry.interface.parameter_bytes, doing));
  const Specialisation constants(entry.interface.constants);
  VkComputePipelineCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
  info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.module = shader;
  info.stage.pName = entry.name.c_str();
  info.stage.pSpecializationInfo = constants.info();
  info.layout = pipeline->layout->pipeline;
  KILN_TRY(check_taken(
      context->vk->CreateComputePipelines(context->device, cache, 1, &info, nullptr, &pipeline->handle), name));
  return std::unique_ptr<const Pipeline>(std::move(pipeline));
}

backend::GlslInterface interface_of(const ShaderInterface& declared) {
  return {.resources = declared.resources,
          .members = declared.members,
          .parameter_bytes = declared.parameter_bytes,
          .group_size = declared.group_size};
}

Pipeline::~Pipeline() { context->vk->DestroyPipeline(context->device, handle, nullptr); }

std::unique_ptr<PipelineModule> PipelineModule::of(Pipelines pipelines) {
  const auto shared = std::make_shared<const Pipelines>(std::move(pipelines));
  if (shared->all.size() == 1) return std::make_unique<PipelineModule>(shared, shared->all[0].get());
  auto module = std::make_unique<PipelineModule>(shared, nullptr);
  for (const auto& pipeline : shared->all)
    module->entries_.push_back(std::make_unique<PipelineModule>(shared, pipeline.get()));
  return module;
}

std::vector<std::string> PipelineModule::entries() const {
  std::vector<std::string> names;
  for (const auto& pipeline : pipelines_->all)
    if (pipeline_ == nullptr || pipeline.get() == pipeline_) names.push_back(pipeline->entry.name);
  return names;
}

kiln::Module* PipelineModule::entry(std::string_view name) noexcept {
  if (pipeline_ != nullptr) return pipeline_->entry.name == name ? this : nullptr;
  for (const auto& module : entries_)
    if (module->pipeline_->entry.name == name) return module.get();
  return nullptr;
}

namespace {

/// Makes the pipelines of a program that the device supports.
Result<Compiled> make_program(const std::shared_ptr<Context>& context, const std::string& name,
                              const ShaderModule& module) {
  for (const ShaderEntry& entry : module.entries) KILN_TRY(check_limits(context->physical, name, entry.interface));
  auto made = KILN_TRY(Pipelines::create(context, name, module.words, module.entries));
  std::optional<Binary> binary;
  if (check_cache_header(context->physical, made.cache_data))
    binary = Binary{binary_format,
                    backend::seal_sections({std::as_bytes(std::span(module.words)), to_bytes(module.entries),
                                            made.cache_data, backend::as_section(name)})};
  made.cache_data = {};
  return Compiled{PipelineModule::of(std::move(made)), std::move(binary)};
}

/// Fails with unsupported if the device does not have what the SPIR-V needs.
Result<void> check_spirv(const Context& context, const std::string& name, std::span<const std::uint32_t> words) {
  const std::uint32_t most = spirv_version_of(context.physical.usable_version);
  if (words.size() < 2 || words[1] > most)
    return Error(ErrorCode::unsupported,
                 fmt::format("{} is in SPIR-V of a later version than 1.{}, the latest that the device takes", name,
                             most >> 8 & 0xff));
  if (const auto& enabled = context.terms.capabilities) return check_capabilities(name, words, *enabled);
  return {};
}

/// What the error of a program that was made elsewhere is for a cache.
Error as_load_failure(const Error& error) {
  const bool is_program_at_fault =
      error.code() == ErrorCode::compile_failed || error.code() == ErrorCode::unsupported;
  return is_program_at_fault ? Error(ErrorCode::load_failed, error.message(), error.log()) : error;
}

}  // namespace

Result<Compiled> compile_program(const std::shared_ptr<Context>& context, const Shaderc& shaderc,
                                 const Request& request) {
  const auto module = KILN_TRY(shader_module(shaderc, request, context->physical.usable_version));
  if (request.language() == Language::spirv) KILN_TRY(check_spirv(*context, request.name(), module.words));
  return make_program(context, request.name(), module);
}

Result<Compiled> adapt_program(const std::shared_ptr<Context>& context, const Binary& binary) {
  const auto program = KILN_TRY(portable_program(binary));
  if (auto ok = check_spirv(*context, program.name, program.module.words); !ok) return as_load_failure(ok.error());
  auto made = make_program(context, program.name, program.module);
  if (!made) return as_load_failure(made.error());
  return made;
}

Result<std::unique_ptr<kiln::Module>> load_program(const std::shared_ptr<Context>& context, const Binary& binary) {
  if (binary.format != binary_format)
    return Error(ErrorCode::load_failed,
                 fmt::format("Vulkan devices do not support binary format {:#x}", binary.format));
  const auto sections = backend::unseal_sections(binary.bytes, 4);
  if (!sections) return Error(ErrorCode::load_failed, "the binary is damaged: its checksum does not match");
  const std::string name(backend::as_text((*sections)[3]));
  const auto cache = (*sections)[2];
  // The checksum matches, so the stored entry points are those of the SPIR-V.
  const auto entries = entries_from((*sections)[1]);
  if (!entries) return Error(ErrorCode::load_failed, fmt::format("{}: the binary is damaged", name));
  for (const ShaderEntry& entry : *entries)
    if (auto ok = check_limits(context->physical, name, entry.interface); !ok) return as_load_failure(ok.error());
  if (auto ok = check_cache_header(context->physical, cache); !ok)
    return Error(ErrorCode::load_failed, fmt::format("{}: {}", name, ok.error().message()));
  auto made = Pipelines::create(context, name, spirv_words((*sections)[0]), *entries, cache);
  if (!made) return as_load_failure(made.error());
  return std::unique_ptr<kiln::Module>(PipelineModule::of(std::move(*made)));
}

namespace {

/// Checks an argument of a resource that is not a buffer's range. `where()` returns the program and the resource.
template <class Where>
Result<void> check_object(const Argument& argument, const backend::GlslResource& resource, Where where) {
  const auto refuse = [&](std::string_view why) {
    return Error(ErrorCode::invalid_request, fmt::format("{} {}", where(), why));
  };
  if (const auto* value = argument.as<Argument::Value>()) {
    if (value->bytes().size() <= max_uniform_value) return {};
    return refuse(fmt::format("has {} bytes; a value can have at most {}, so give a buffer", value->bytes().size(),
                              max_uniform_value));
  }
  const auto& object = *argument.as<NativeObject>();
  switch (object.kind) {
    case NativeObject::Kind::vk_image:
    case NativeObject::Kind::vk_texture:
    case NativeObject::Kind::vk_sampler:
    case NativeObject::Kind::vk_texel_buffer: break;
    default: return refuse("is an image or a sampler of another API");
  }
  if (object.handle == 0 || (object.kind == NativeObject::Kind::vk_texture && object.sampler == 0))
    return refuse("has a null handle");
  if (resource.kind == backend::GlslResource::Kind::image &&
      object.numbers[0] != static_cast<std::uint32_t>(VK_IMAGE_LAYOUT_GENERAL))
    return refuse(fmt::format("has the layout {}; a program writes images only in VK_IMAGE_LAYOUT_GENERAL",
                              object.numbers[0]));
  return {};
}

template <class Where>
Result<const DeviceBuffer*> buffer_of(const Argument::Range& range, const backend::GlslResource& resource,
                                      const Context& context, const std::string& device, Where where) {
  const auto* buffer = KILN_TRY(backend::own_argument<DeviceBuffer>(range, context, device, where));
  const VkPhysicalDeviceLimits& limits = context.physical.properties.limits;
  const std::uint64_t alignment = resource.kind == backend::GlslResource::Kind::uniform_buffer
                                      ? limits.minUniformBufferOffsetAlignment
                                      : limits.minStorageBufferOffsetAlignment;
  const std::uint64_t begin = buffer->base() + range.offset;
  if (begin % alignment != 0)
    return Error(
        ErrorCode::invalid_request,
        fmt::format("{} begins at byte {}; the device requires a multiple of {}", where(), begin, alignment));
  if (range.offset >= buffer->accessible_bytes())
    return Error(ErrorCode::invalid_request,
                 fmt::format("{} begins at the end of a buffer of {} bytes", where(), buffer->size()));
  return buffer;
}

}  // namespace

Result<const PipelineModule*> program_of(const Context& context, const DeviceInfo& device,
                                         const kiln::Module& module) {
  const auto* program = dynamic_cast<const PipelineModule*>(&module);
  if (program == nullptr || &program->context() != &context)
    return backend::foreign_program(program != nullptr ? program->name() : "the program", device.name);
  if (!program->is_entry()) return backend::no_entry_chosen(program->name(), program->entry_count());
  return program;
}

Result<Fitting> fit(const Context& context, const DeviceInfo& device, const kiln::Module& module,
                    const Launch& launch) {
  const auto* program = KILN_TRY(program_of(context, device, module));
  const backend::GlslInterface& takes = program->only().takes;
  Fitting fitted{.program = *program, .layout = *program->only().layout};
  fitted.groups = KILN_TRY(backend::check_extents(program->name(), takes, launch, device.limits, "Vulkan"));
  fitted.arguments = KILN_TRY(backend::assign(program->name(), takes, launch));
  for (const auto& [resource, element, argument] : fitted.arguments.bound) {
    // Formatted only for an error.
    const auto where = [&] { return fmt::format("{}: the {}", program->name(), describe(*resource, element)); };
    const auto* range = argument->as<Argument::Range>();
    if (range == nullptr) KILN_TRY(check_object(*argument, *resource, where));
    fitted.buffers.push_back(range != nullptr ? KILN_TRY(buffer_of(*range, *resource, context, device.name, where))
                                              : nullptr);
  }
  return fitted;
}

}  // namespace kiln::vulkan
