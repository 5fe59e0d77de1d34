#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/vulkan/instance.hpp"
#include "backend/vulkan/loader.hpp"
#include "backend/vulkan/queue.hpp"
#include "base/mutex.hpp"

namespace kiln::vulkan {

/// A VkDevice with the queues its work goes to: what modules and buffers keep alive. Safe for any number of
/// threads.
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

  Context(std::shared_ptr<const Instance> instance, const Physical& physical, VkDevice device,
          const std::vector<VkQueue>& queues, std::uint32_t family, const DeviceFunctions& functions, bool owned,
          Reach reach);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// How a program's arguments lie; the same for all programs that take as many.
  struct Layout {
    VkDescriptorSetLayout set = nullptr;
    VkPipelineLayout pipeline = nullptr;
  };
  /// That for storage buffers 0 … buffers-1 in set 0 and so many bytes of push constants, which is made once and
  /// lives as long as the context. `doing` is what it is for, as in "preparing gemm".
  Result<Layout> layout(std::uint32_t buffers, std::uint32_t parameter_bytes, std::string_view doing)
      KILN_EXCLUDES(layouts_mutex_);

  /// The queue of work that is waited for.
  Queue& first_queue() noexcept { return queues_.front(); }
  /// The queue with the fewest streams of work, for one more until this ends: work of one queue hardly overlaps,
  /// and waits for what is stuck in it. The context outlives it.
  std::shared_ptr<Queue> share_queue() KILN_EXCLUDES(share_mutex_);

  const Physical physical;
  const VkDevice device;
  const std::uint32_t family;
  const DeviceFunctions vk;
  const Reach reach;

 private:
  Result<void> make_layout(Layout& layout, std::uint32_t buffers, std::uint32_t parameter_bytes,
                           std::string_view doing) const;

  const std::shared_ptr<const Instance> instance_;
  const bool owned_;
  // One at least; their number does not change.
  std::deque<Queue> queues_;
  base::Mutex share_mutex_;
  base::Mutex layouts_mutex_;
  /// By the number of buffers and the bytes of parameters.
  std::map<std::pair<std::uint32_t, std::uint32_t>, Layout> layouts_ KILN_GUARDED_BY(layouts_mutex_);
};

}  // namespace kiln::vulkan
