#include "backend/own_vulkan_device.hpp"
#include "backend/vulkan_fixture.hpp"

namespace kiln {
namespace {

using fakes::vulkan_scale;

class VulkanAdopt : public fakes::VulkanTest {
 protected:
  const fakes::OwnVulkanDevice own_{0};
  vulkan::Adopted mine_ = own_.handles();
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

TEST_F(VulkanAdopt, SlotsShareTheOneQueue) {
  const auto device = vulkan::adopt(mine_, book_.log()).value();
  auto first = device->open_slot().value();
  const auto second = device->open_slot().value();
  EXPECT_TRUE(passes_through(*first, *device));
  EXPECT_TRUE(passes_through(*second, *device));
  first.reset();
  EXPECT_TRUE(passes_through(*second, *device));
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
