#pragma once

#include <memory>
#include <string_view>

#include "backend/vulkan/instance.hpp"
#include "backend/vulkan/loader.hpp"
#include "base/mutex.hpp"

namespace kiln::vulkan {

/// A VkDevice with the queue its work goes to: what modules and buffers keep alive. Safe for any number of threads.
class Context {
 public:
  /// Where buffers lie: where the host can reach them, if there is such memory, or always behind a staging copy.
  enum class Reach { mapped, staged };

  /// A device of Kiln's own.
  static Result<std::shared_ptr<Context>> create(std::shared_ptr<const Instance> instance, const Physical& physical,
                                                 Reach reach = Reach::mapped);
  /// The caller's, which outlives this one.
  static Result<std::shared_ptr<Context>> adopt(std::shared_ptr<const Instance> instance, const Physical& physical,
                                                VkDevice device, VkQueue queue, std::uint32_t family);

  Context(std::shared_ptr<const Instance> instance, const Physical& physical, VkDevice device, VkQueue queue,
          std::uint32_t family, const DeviceFunctions& functions, bool owned, Reach reach);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// Hands commands to the queue; the fence is signalled when they are done.
  Result<void> submit(VkCommandBuffer commands, VkFence fence, std::string_view doing) KILN_EXCLUDES(queue_mutex_);
  /// Waits until the queue has nothing to do.
  void wait_idle() KILN_EXCLUDES(queue_mutex_);

  const Physical physical;
  const VkDevice device;
  const std::uint32_t family;
  const DeviceFunctions vk;
  const Reach reach;

 private:
  const std::shared_ptr<const Instance> instance_;
  const bool owned_;
  base::Mutex queue_mutex_;
  const VkQueue queue_ KILN_GUARDED_BY(queue_mutex_);
};

}  // namespace kiln::vulkan
