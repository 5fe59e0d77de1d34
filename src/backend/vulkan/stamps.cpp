#include "backend/vulkan/stamps.hpp"

#include <algorithm>

#include "base/try.hpp"

namespace kiln::vulkan {
namespace {

constexpr std::size_t stamps_of_a_pool = 32;

}  // namespace

Stamps::~Stamps() {
  for (const VkQueryPool pool : pools_) context_.vk->DestroyQueryPool(context_.device, pool, nullptr);
}

Result<void> Stamps::write(VkCommandBuffer commands) {
  const DeviceCalls& vk = context_.vk;
  if (count_ == pools_.size() * stamps_of_a_pool) {
    VkQueryPoolCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO;
    info.queryType = VK_QUERY_TYPE_TIMESTAMP;
    info.queryCount = stamps_of_a_pool;
    VkQueryPool pool = nullptr;
    KILN_TRY(check(vk->CreateQueryPool(context_.device, &info, nullptr, &pool), "making timestamps"));
    pools_.push_back(pool);
  }
  const VkQueryPool pool = pools_[count_ / stamps_of_a_pool];
  const auto index = static_cast<std::uint32_t>(count_ % stamps_of_a_pool);
  // A queue that only copies cannot make them anew, the host can where the device lets it.
  if (index == 0 && context_.terms.host_resets_queries)
    vk->ResetQueryPool(context_.device, pool, 0, stamps_of_a_pool);
  else if (index == 0)
    vk->CmdResetQueryPool(commands, pool, 0, stamps_of_a_pool);
  vk->CmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, pool, index);
  ++count_;
  return {};
}

std::vector<std::uint64_t> Stamps::read() const {
  std::vector<std::uint64_t> stamps(count_);
  for (std::size_t done = 0; done < count_;) {
    const std::size_t some = std::min(count_ - done, stamps_of_a_pool);
    if (context_.vk->GetQueryPoolResults(context_.device, pools_[done / stamps_of_a_pool], 0,
                                         static_cast<std::uint32_t>(some), some * sizeof stamps[0], &stamps[done],
                                         sizeof stamps[0], VK_QUERY_RESULT_64_BIT) != VK_SUCCESS)
      return {};
    done += some;
  }
  return stamps;
}

}  // namespace kiln::vulkan
