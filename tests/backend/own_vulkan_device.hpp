#pragma once

#include <cstddef>

#include <kiln/vulkan.hpp>

#include "backend/vulkan/instance.hpp"

namespace kiln::fakes {

/// A VkDevice as an application makes it, without Kiln's backend; on the physical device that Kiln gives `number`.
/// Throws Failure where it cannot be made.
class OwnVulkanDevice {
 public:
  explicit OwnVulkanDevice(std::size_t number) {
    make_instance();
    const auto instance = vulkan::Instance::adopt(handles_.instance, loader_.get_instance_proc_addr).value();
    instance_functions_ = instance->vk;
    const vulkan::Physical physical = instance->devices().value().at(number);
    handles_.physical = physical.handle;
    handles_.queue_family = physical.compute_family.value();
    make_device();
  }
  ~OwnVulkanDevice() {
    device_functions_.DestroyDevice(handles_.device, nullptr);
    instance_functions_.DestroyInstance(handles_.instance, nullptr);
  }
  OwnVulkanDevice(const OwnVulkanDevice&) = delete;
  OwnVulkanDevice& operator=(const OwnVulkanDevice&) = delete;

  const vulkan::Adopted& handles() const noexcept { return handles_; }
  const vulkan::DeviceFunctions& vk() const noexcept { return device_functions_; }

 private:
  void make_instance() {
    VkApplicationInfo application{};
    application.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO;
    application.apiVersion = VK_API_VERSION_1_1;
    VkInstanceCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
    info.pApplicationInfo = &application;
    handles_.get_instance_proc_addr = loader_.get_instance_proc_addr;
    const auto create =
        reinterpret_cast<PFN_vkCreateInstance>(loader_.get_instance_proc_addr(nullptr, "vkCreateInstance"));
    vulkan::check(create(&info, nullptr, &handles_.instance), "making an instance").value();
  }
  void make_device() {
    const float priority = 1;
    VkDeviceQueueCreateInfo queues{};
    queues.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
    queues.queueFamilyIndex = handles_.queue_family;
    queues.queueCount = 1;
    queues.pQueuePriorities = &priority;
    VkDeviceCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
    info.queueCreateInfoCount = 1;
    info.pQueueCreateInfos = &queues;
    vulkan::check(instance_functions_.CreateDevice(handles_.physical, &info, nullptr, &handles_.device),
                  "making a device")
        .value();
    device_functions_ = vulkan::device_functions(instance_functions_.GetDeviceProcAddr, handles_.device).value();
    device_functions_.GetDeviceQueue(handles_.device, handles_.queue_family, 0, &handles_.queue);
  }

  vulkan::Loader loader_ = vulkan::open_loader().value();
  vulkan::Adopted handles_;
  vulkan::InstanceFunctions instance_functions_;
  vulkan::DeviceFunctions device_functions_;
};

}  // namespace kiln::fakes
