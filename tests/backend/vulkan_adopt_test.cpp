#include "backend/vulkan/loader.hpp"
#include "backend/vulkan_fixture.hpp"

namespace kiln {
namespace {

using fakes::vulkan_scale;

/// A device of the caller's own, made without Kiln's backend.
class VulkanAdopt : public fakes::VulkanTest {
 protected:
  void SetUp() override {
    VulkanTest::SetUp();
    loader_ = vulkan::open_loader().value();
    mine_.get_instance_proc_addr = loader_.get_instance_proc_addr;
    make_instance();
    const auto vk = vulkan::instance_functions(loader_.get_instance_proc_addr, mine_.instance).value();
    std::uint32_t count = 1;
    ASSERT_GE(vk.EnumeratePhysicalDevices(mine_.instance, &count, &mine_.physical), 0);
    make_device(vk);
  }
  void TearDown() override {
    const auto vk = vulkan::instance_functions(loader_.get_instance_proc_addr, mine_.instance).value();
    vulkan::device_functions(vk.GetDeviceProcAddr, mine_.device).value().DestroyDevice(mine_.device, nullptr);
    vk.DestroyInstance(mine_.instance, nullptr);
  }

  vulkan::Loader loader_;
  vulkan::Adopted mine_;

 private:
  void make_instance() {
    VkApplicationInfo application{};
    application.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO;
    application.apiVersion = VK_API_VERSION_1_1;
    VkInstanceCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
    info.pApplicationInfo = &application;
    const auto create =
        reinterpret_cast<PFN_vkCreateInstance>(loader_.get_instance_proc_addr(nullptr, "vkCreateInstance"));
    ASSERT_EQ(create(&info, nullptr, &mine_.instance), VK_SUCCESS);
  }
  void make_device(const vulkan::InstanceFunctions& vk) {
    const float priority = 1;
    VkDeviceQueueCreateInfo queues{};
    queues.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
    queues.queueCount = 1;
    queues.pQueuePriorities = &priority;
    VkDeviceCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
    info.queueCreateInfoCount = 1;
    info.pQueueCreateInfos = &queues;
    ASSERT_EQ(vk.CreateDevice(mine_.physical, &info, nullptr, &mine_.device), VK_SUCCESS);
    vulkan::device_functions(vk.GetDeviceProcAddr, mine_.device)
        .value()
        .GetDeviceQueue(mine_.device, 0, 0, &mine_.queue);
  }
};

TEST_F(VulkanAdopt, ProgramsRunOnTheCallersDeviceWhichOutlivesKilns) {
  {
    const auto device = vulkan::adopt(mine_, book_.log()).value();
    EXPECT_EQ(device->info().name, "vulkan:adopted");
    Cache cache(device, options());
    const Program program = cache.get(vulkan_scale(4)).value();
    Compiled compiled = device->compile(vulkan_scale(4)).value();
    EXPECT_TRUE(scales(*device, *compiled.module, 4, 1));
    EXPECT_NE(program.as<vulkan::Module>().pipeline(), nullptr);
  }
  const auto again = vulkan::adopt(mine_, book_.log()).value();
  EXPECT_TRUE(scales(*again, *again->compile(vulkan_scale(3)).value().module, 3, 1));
}

TEST_F(VulkanAdopt, FindsTheLoaderItself) {
  mine_.get_instance_proc_addr = nullptr;
  const auto device = vulkan::adopt(mine_, book_.log()).value();
  EXPECT_TRUE(scales(*device, *device->compile(vulkan_scale(3)).value().module, 3, 1));
}

TEST_F(VulkanAdopt, BinariesFitTheSameDeviceOpenedByKiln) {
  const auto device = vulkan::adopt(mine_, book_.log()).value();
  EXPECT_EQ(device->identity(), device_->identity());
  const auto loaded = device->load(device_->compile(vulkan_scale(7)).value().binary.value()).value();
  EXPECT_TRUE(scales(*device, *loaded, 7, 1));
}

TEST_F(VulkanAdopt, AQueueFamilyThatIsNotThereCannotBeAdopted) {
  mine_.queue_family = 77;
  const auto result = vulkan::adopt(mine_, book_.log());
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::invalid_request);
  EXPECT_TRUE(result.error().message().starts_with("there is no queue family 77 ")) << result.error().message();
}

TEST_F(VulkanAdopt, NothingCannotBeAdopted) {
  EXPECT_EQ(vulkan::adopt({}, book_.log()).error().code(), ErrorCode::invalid_request);
}

}  // namespace
}  // namespace kiln
