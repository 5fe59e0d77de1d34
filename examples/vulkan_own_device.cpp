// An application with a VkDevice of its own: Kiln adopts it, with a queue that the application leaves to Kiln.
#include <vulkan/vulkan.h>

#include <iostream>
#include <vector>

#include <kiln/cache.hpp>
#include <kiln/kernel.hpp>
#include <kiln/vulkan.hpp>

int main() try {
  const VkApplicationInfo application{
      VK_STRUCTURE_TYPE_APPLICATION_INFO, nullptr, nullptr, 0, nullptr, 0, VK_API_VERSION_1_1};
  const VkInstanceCreateInfo instance{
      VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, nullptr, 0, &application, 0, nullptr, 0, nullptr};
  kiln::vulkan::Adopted own;
  if (vkCreateInstance(&instance, nullptr, &own.instance) != VK_SUCCESS) return 77;
  std::uint32_t one = 1;
  if (vkEnumeratePhysicalDevices(own.instance, &one, &own.physical) < 0 || one == 0) return 77;
  const float priority = 1;
  const VkDeviceQueueCreateInfo queue{VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, nullptr, 0, 0, 1, &priority};
  const VkDeviceCreateInfo device{
      VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, nullptr, 0, 1, &queue, 0, nullptr, 0, nullptr, nullptr};
  if (vkCreateDevice(own.physical, &device, nullptr, &own.device) != VK_SUCCESS) return 77;
  vkGetDeviceQueue(own.device, 0, 0, &own.queue);

  auto adopted = kiln::vulkan::adopt(own).value();
  kiln::Cache cache(adopted);
  const kiln::Kernel squares = {.name = "squares",
                                .buffers = {{"d", kiln::Type::f32, kiln::Access::read_write}},
                                .source = "KERNEL { d[global_id_x] *= d[global_id_x]; }"};
  auto buffer = kiln::upload(*adopted, std::vector<float>(64, 3.0F)).value();
  kiln::Program program = cache.get(squares.request(*adopted).value()).value();
  adopted->launch(program.module(), squares.launch({1, 1, 1}, {buffer.get()}, {}).value()).value();
  std::cout << kiln::download<float>(*adopted, *buffer).value()[0] << '\n';
} catch (const kiln::Failure& failure) {
  std::cerr << failure.what() << '\n';
  return 1;
}
