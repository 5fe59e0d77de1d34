// An application with a VkDevice of its own: Kiln adopts it, with a queue that the application leaves to Kiln.
#include <vulkan/vulkan.h>

#include <iostream>
#include <vector>

#include <kiln/cache.hpp>
#include <kiln/kernel.hpp>
#include <kiln/vulkan.hpp>

int main() try {
  const VkApplicationInfo application{.apiVersion = VK_API_VERSION_1_1};
  const VkInstanceCreateInfo with_version{.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                          .pApplicationInfo = &application};
  kiln::vulkan::Adopted own;
  if (vkCreateInstance(&with_version, nullptr, &own.instance) != VK_SUCCESS) return 77;
  std::uint32_t one = 1;
  if (vkEnumeratePhysicalDevices(own.instance, &one, &own.physical) < 0 || one == 0) return 77;
  const float priority = 1;
  const VkDeviceQueueCreateInfo queue{
      .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueCount = 1, .pQueuePriorities = &priority};
  const VkDeviceCreateInfo with_queue{
      .sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, .queueCreateInfoCount = 1, .pQueueCreateInfos = &queue};
  if (vkCreateDevice(own.physical, &with_queue, nullptr, &own.device) != VK_SUCCESS) return 77;
  vkGetDeviceQueue(own.device, 0, 0, &own.queue);

  auto adopted = kiln::vulkan::adopt(own).value();
  kiln::Cache cache(adopted);
  const kiln::Kernel squares = {.name = "squares",
                                .buffers = {{"d", kiln::Type::f32, kiln::Access::read_write}},
                                .group_size = {4, 1, 1},
                                .source = "KERNEL { d[global_id_x] *= d[global_id_x]; }"};
  auto buffer = kiln::upload(*adopted, std::vector<float>{1, 2, 3, 4}).value();
  kiln::Program program = cache.get(squares.request(*adopted).value()).value();
  adopted->launch(program.module(), squares.launch({1, 1, 1}, {buffer.get()}, {}).value()).value();
  for (float value : kiln::download<float>(*adopted, *buffer).value()) std::cout << value << ' ';
} catch (const kiln::Failure& failure) {
  std::cerr << failure.what() << '\n';
  return 1;
}
