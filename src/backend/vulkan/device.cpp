#include "backend/vulkan/device.hpp"

#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "backend/launch_checks.hpp"
#include "backend/source_text.hpp"
#include "backend/vulkan/memory.hpp"
#include "backend/vulkan/module.hpp"
#include "backend/vulkan/slot.hpp"
#include "backend/vulkan/spirv_program.hpp"
#include "base/try.hpp"

namespace kiln::vulkan {
namespace {

using FoundShaderc = Result<std::shared_ptr<const Shaderc>>;

DeviceInfo describe(const Physical& physical, std::string name, const FoundShaderc& shaderc) {
  return {.name = std::move(name),
          .identity = physical.identity(shaderc ? (*shaderc)->version() : ""),
          .uuid = physical.uuid,
          .language = Language::vulkan_glsl,
          .limits = physical.limits(),
          .traits = physical.traits,
          .software = physical.software(),
          .problem = physical.problem(),
          .compiler_problem = shaderc ? "" : shaderc.error().message()};
}

/// What VulkanDevice::accepts() returns for portable programs.
constexpr unsigned portable_rank = 1;

}  // namespace

template <class Work>
Result<void> VulkanDevice::with_commands(Work work) {
  auto commands = KILN_TRY(idle_commands_.borrow([&] { return SyncCommands::create(context_); }));
  Result<void> done = work(*commands);
  if (!done) commands.discard();
  return done;
}

Result<Compiled> VulkanDevice::compile(const Request& request) {
  if (shaderc_ == nullptr) {
    KILN_TRY(backend::check_language(request, {Language::vulkan_glsl, Language::spirv}));
    return Error(ErrorCode::unsupported, fmt::format("{} cannot be compiled on {}: {}", request.name(), info_.name,
                                                     info_.compiler_problem));
  }
  return compile_program(context_, *shaderc_, request);
}

unsigned VulkanDevice::accepts(const Identity& target) const {
  const unsigned own = Device::accepts(target);
  if (own != 0) return portable_rank + own;
  return is_portable(target) ? portable_rank : 0;
}

Result<Compiled> VulkanDevice::adapt(const Identity& target, const Binary& binary) {
  return is_portable(target) ? adapt_program(context_, binary) : Device::adapt(target, binary);
}

Result<std::unique_ptr<kiln::Module>> VulkanDevice::load(const Binary& binary) {
  return load_program(context_, binary);
}

Result<std::unique_ptr<Buffer>> VulkanDevice::allocate(std::size_t bytes) {
  auto buffer = KILN_TRY(DeviceBuffer::allocate(context_, bytes, DeviceBuffer::Use::storage));
  return std::unique_ptr<Buffer>(std::move(buffer));
}

Result<void> VulkanDevice::write(Buffer& buffer, std::span<const std::byte> bytes, std::size_t offset) {
  const auto own = KILN_TRY(backend::own_buffer<DeviceBuffer>(buffer, *context_, info_.name, bytes.size(), offset));
  if (bytes.empty()) return {};
  if (std::byte* mapped = own->writable(); mapped != nullptr) {
    std::memcpy(mapped + offset, bytes.data(), bytes.size());
    return {};
  }
  return with_commands([&](SyncCommands& commands) { return commands.write(*own, bytes, offset); });
}

Result<void> VulkanDevice::read(const Buffer& buffer, std::span<std::byte> bytes, std::size_t offset) {
  const auto own = KILN_TRY(backend::own_buffer<DeviceBuffer>(buffer, *context_, info_.name, bytes.size(), offset));
  if (bytes.empty()) return {};
  if (const std::byte* mapped = own->readable(); mapped != nullptr) {
    std::memcpy(bytes.data(), mapped + offset, bytes.size());
    return {};
  }
  return with_commands([&](SyncCommands& commands) { return commands.read(*own, bytes, offset); });
}

Result<void> VulkanDevice::launch(kiln::Module& module, const Launch& launch) {
  const auto fitted = KILN_TRY(fit(*context_, info_, module, launch));
  return with_commands([&](SyncCommands& commands) { return commands.launch(fitted); });
}

Result<std::vector<Parameter>> VulkanDevice::parameters(kiln::Module& module) {
  const auto* program = KILN_TRY(program_of(*context_, info_, module));
  return backend::parameters_of(program->only().takes);
}

Result<std::unique_ptr<Slot>> VulkanDevice::open_slot() { return VulkanSlot::open(context_, info_); }

Result<std::unique_ptr<Buffer>> wrap(Device& device, VkBuffer buffer, std::size_t bytes, std::size_t offset) {
  const auto* own = dynamic_cast<const VulkanDevice*>(&device);
  if (own == nullptr)
    return Error(ErrorCode::invalid_request, fmt::format("{} is not a Vulkan device", device.info().name));
  if (buffer == nullptr || bytes == 0)
    return Error(ErrorCode::invalid_request, "a null buffer, or no bytes of one, cannot be wrapped");
  // The driver tells the memory that a buffer needs, which may be a little more than its size.
  const Context& context = *own->context();
  VkMemoryRequirements needs{};
  context.vk->GetBufferMemoryRequirements(context.device, buffer, &needs);
  if (offset > needs.size || bytes > needs.size - offset)
    return Error(ErrorCode::invalid_request,
                 fmt::format("{} bytes from byte {} on exceed the buffer, which has at most {} bytes", bytes,
                             offset, needs.size));
  return std::unique_ptr<Buffer>(std::make_unique<DeviceBuffer>(own->context(), buffer, bytes, offset));
}

std::vector<DeviceInfo> list_vulkan_devices(const Log&) {
  const auto nothing = [](const Error& why) {
    return std::vector<DeviceInfo>{{.name = "vulkan",
                                    .identity = {.api = "vulkan"},
                                    .language = Language::vulkan_glsl,
                                    .problem = why.message()}};
  };
  const auto instance = Instance::create();
  if (!instance) return nothing(instance.error());
  const auto devices = (*instance)->devices();
  if (!devices) return nothing(devices.error());
  const auto shaderc = Shaderc::find();
  std::vector<DeviceInfo> infos;
  for (const Physical& physical : *devices)
    infos.push_back(describe(physical, fmt::format("vulkan:{}", infos.size()), shaderc));
  return infos;
}

Result<std::shared_ptr<Device>> open_vulkan_device(std::size_t number, const Log& log) {
  return open_vulkan_device(number, log, Context::Reach::mapped);
}

Result<std::shared_ptr<Device>> open_vulkan_device(std::size_t number, const Log& log, Context::Reach reach) {
  auto instance = KILN_TRY(Instance::create());
  const auto devices = KILN_TRY(instance->devices());
  const std::string name = fmt::format("vulkan:{}", number);
  if (number >= devices.size())
    return Error(ErrorCode::no_device, fmt::format("there is no {}; Vulkan has {} device{} here, counted from 0",
                                                   name, devices.size(), devices.size() == 1 ? "" : "s"));
  const Physical& physical = devices[number];
  if (const std::string problem = physical.problem(); !problem.empty())
    return Error(ErrorCode::no_device, fmt::format("{}: {}", name, problem));
  const auto shaderc = Shaderc::find();
  auto context = Context::create(std::move(instance), physical, reach);
  if (!context) return Error(context.error().code(), fmt::format("{}: {}", name, context.error().message()));
  DeviceInfo info = describe(physical, name, shaderc);
  log.debug(fmt::format("opened {}: {}, {}", name, info.identity.device, info.identity.driver));
  return std::shared_ptr<Device>(
      std::make_shared<VulkanDevice>(std::move(*context), shaderc ? *shaderc : nullptr, std::move(info)));
}

Result<std::shared_ptr<Device>> adopt(const Adopted& adopted, const Log& log) {
  if (adopted.instance == nullptr || adopted.physical == nullptr || adopted.device == nullptr ||
      adopted.queue == nullptr)
    return Error(ErrorCode::invalid_request,
                 "a Vulkan device cannot be adopted without its instance, physical device, device and queue");
  auto instance = KILN_TRY(Instance::adopt(adopted.instance, adopted.get_instance_proc_addr));
  const Physical physical = instance->describe(adopted.physical);
  if (const std::string problem = physical.problem(); !problem.empty())
    return Error(ErrorCode::unsupported, problem);
  if (adopted.queue_family >= physical.families.size())
    return Error(ErrorCode::invalid_request,
                 fmt::format("there is no queue family {} on {}, which has {}, counted from 0",
                             adopted.queue_family, physical.properties.deviceName, physical.families.size()));
  if (!physical.families[adopted.queue_family].computes)
    return Error(ErrorCode::invalid_request,
                 fmt::format("queue family {} of {} does not support compute; use family {}", adopted.queue_family,
                             physical.properties.deviceName, *physical.compute_family));
  const auto shaderc = Shaderc::find();
  auto context =
      KILN_TRY(Context::adopt(std::move(instance), physical, adopted.device, adopted.queue, adopted.queue_family));
  DeviceInfo info = describe(physical, "vulkan:adopted", shaderc);
  log.debug(fmt::format("adopted {}, {}", info.identity.device, info.identity.driver));
  return std::shared_ptr<Device>(
      std::make_shared<VulkanDevice>(std::move(context), shaderc ? *shaderc : nullptr, std::move(info)));
}

}  // namespace kiln::vulkan
