#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "backend/clock.hpp"
#include "backend/vulkan/loader.hpp"
#include "base/mutex.hpp"

namespace kiln::vulkan {

/// A VkQueue, which one thread may use at a time, and what its timestamps mean. Safe for any number of threads.
class Queue {
 public:
  Queue(const DeviceCalls& functions, VkQueue handle, std::uint32_t of_family, double tick,
        std::uint32_t timestamp_bits) noexcept
      : family(of_family), clock(tick, timestamp_bits), vk_(functions), handle_(handle) {}

  /// Hands commands to the queue, which begins with them after `before` and signals `after` and the fence when they
  /// are done; either semaphore may be null. `doing` is what they are for, as in "launching gemm".
  Result<void> submit(VkCommandBuffer commands, VkSemaphore before, VkSemaphore after, VkFence fence,
                      std::string_view doing) KILN_EXCLUDES(mutex_);
  /// Waits until the queue has nothing to do.
  void wait_idle() KILN_EXCLUDES(mutex_);

  const std::uint32_t family;
  backend::Clock clock;
  /// How many streams of work go to it; see Context::share_queues().
  std::atomic<int> streams = 0;
  /// How many of them were given up, with work in it that may never end.
  std::atomic<int> stuck = 0;

 private:
  const DeviceCalls& vk_;
  base::Mutex mutex_;
  const VkQueue handle_ KILN_GUARDED_BY(mutex_);
};

}  // namespace kiln::vulkan
