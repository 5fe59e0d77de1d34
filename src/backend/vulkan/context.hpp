#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/clock.hpp"
#include "backend/vulkan/instance.hpp"
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

/// A VkDevice with the queues its work goes to: what modules and buffers keep alive. Safe for any number of
/// threads.
class Context {
 public:
  /// Where buffers lie: where the host can reach them, if there is such memory, or always behind a staging copy,
  /// which is then a part of its own in what a slot submits.
  enum class Reach { mapped, staged };

  /// A device of Kiln's own.
  static Result<std::shared_ptr<Context>> create(std::shared_ptr<const Instance> instance, const Physical& physical,
                                                 Reach reach = Reach::mapped);
  /// The caller's, which outlives this one.
  static Result<std::shared_ptr<Context>> adopt(std::shared_ptr<const Instance> instance, const Physical& physical,
                                                VkDevice device, VkQueue queue, std::uint32_t family);

  /// Queues of one family.
  struct Family {
    std::uint32_t number = 0;
    std::vector<VkQueue> queues = {};
  };
  /// Whose a device is, and what may be done with it.
  struct Terms {
    bool owned = false;
    /// Whether the host may make queries anew, and not only a queue that computes.
    bool host_resets_queries = false;
    Reach reach = Reach::mapped;
  };
  /// `compute` has one queue at least, `copy` two or none.
  Context(std::shared_ptr<const Instance> instance, const Physical& physical, VkDevice device,
          const Family& compute, const Family& copy, const DeviceFunctions& functions, Terms terms);
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
  /// The queues of a stream of work: that which computes, and those for its copies, which are then parts of their
  /// own in what is submitted; null where copies are among what computes.
  struct Route {
    std::shared_ptr<Queue> compute;
    Queue* upload = nullptr;
    Queue* download = nullptr;
  };
  /// For one more stream, until `compute` ends. Queues that compute take turns on a GPU, at some hundred
  /// microseconds a turn, so streams share one, as long as nothing is stuck in it. The context outlives it.
  Route share_queues() KILN_EXCLUDES(share_mutex_);

  const Physical physical;
  const VkDevice device;
  /// Those whose queues are used.
  const std::vector<std::uint32_t> families;
  const DeviceCalls vk;
  const Terms terms;

 private:
  Result<void> make_layout(Layout& layout, std::uint32_t buffers, std::uint32_t parameter_bytes,
                           std::string_view doing) const;

  const std::shared_ptr<const Instance> instance_;
  // One at least; their number does not change.
  std::deque<Queue> queues_;
  // Two, or none.
  std::deque<Queue> copy_queues_;
  base::Mutex share_mutex_;
  base::Mutex layouts_mutex_;
  /// By the number of buffers and the bytes of parameters.
  std::map<std::pair<std::uint32_t, std::uint32_t>, Layout> layouts_ KILN_GUARDED_BY(layouts_mutex_);
};

}  // namespace kiln::vulkan
