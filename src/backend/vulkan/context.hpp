#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <kiln/vulkan.hpp>
#include <spirv/unified1/spirv.hpp11>

#include "backend/clock.hpp"
#include "backend/glsl_arguments.hpp"
#include "backend/vulkan/instance.hpp"
#include "backend/vulkan/loader.hpp"
#include "base/mutex.hpp"

namespace kiln::vulkan {

/// How many types of descriptors programs use; they are numbered from 0 on.
constexpr std::size_t descriptor_types = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER + 1;
VkDescriptorType descriptor_type(backend::GlslResource::Kind kind) noexcept;

/// What a submission waits for and signals.
struct Semaphores {
  std::span<const Semaphore> wait = {};
  std::span<const Semaphore> signal = {};
};

/// A VkQueue, with a mutex because Vulkan allows only one thread at a time, and the clock of its timestamps.
/// Thread-safe.
class Queue {
 public:
  Queue(const DeviceCalls& functions, VkQueue handle, std::uint32_t of_family, double tick,
        std::uint32_t timestamp_bits) noexcept
      : family(of_family), clock(tick, timestamp_bits), vk_(functions), handle_(handle) {}

  /// Submits commands, or nothing if they are null. Signals the fence at their end, and at that of all earlier
  /// submissions. `doing` names the operation in errors, as in "launching gemm".
  Result<void> submit(VkCommandBuffer commands, const Semaphores& semaphores, VkFence fence, std::string_view doing)
      KILN_EXCLUDES(mutex_);
  /// Waits for all submitted work.
  void wait_idle() KILN_EXCLUDES(mutex_);
  bool is(VkQueue handle) KILN_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    return handle_ == handle;
  }

  const std::uint32_t family;
  backend::Clock clock;
  /// The number of streams that use the queue; see Context::share_queues().
  std::atomic<int> streams = 0;
  /// The number of streams that were given up: their work in the queue may never end. See Slot::give_up().
  std::atomic<int> stuck = 0;

 private:
  const DeviceCalls& vk_;
  base::Mutex mutex_;
  const VkQueue handle_ KILN_GUARDED_BY(mutex_);
};

/// A VkDevice and its queues. Modules, buffers and slots share ownership of it. Thread-safe.
class Context {
 public:
  /// mapped: buffers are in memory that the host can access, if there is any. staged: the host always accesses
  /// buffers through staging copies, and the copies of a slot are separate parts of its submissions.
  enum class Reach { mapped, staged };

  /// Creates a VkDevice that the context owns.
  static Result<std::shared_ptr<Context>> create(std::shared_ptr<const Instance> instance, const Physical& physical,
                                                 Reach reach = Reach::mapped);
  /// Uses the caller's VkDevice, which must outlive the context.
  static Result<std::shared_ptr<Context>> adopt(std::shared_ptr<const Instance> instance, const Physical& physical,
                                                VkDevice device, VkQueue queue, std::uint32_t family);

  /// Queues of one family.
  struct Family {
    std::uint32_t number = 0;
    std::vector<VkQueue> queues = {};
  };
  /// Ownership and options of a device.
  struct Terms {
    bool owned = false;
    /// Whether the host can reset queries. If not, only a compute queue can.
    bool host_resets_queries = false;
    Reach reach = Reach::mapped;
    /// The capabilities of SPIR-V that programs can use. Unknown if the caller created the device.
    std::optional<std::vector<spv::Capability>> capabilities = {};
  };
  /// `compute` must have at least one queue, `copy` two or none.
  Context(std::shared_ptr<const Instance> instance, const Physical& physical, VkDevice device,
          const Family& compute, const Family& copy, const DeviceFunctions& functions, const Terms& terms);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// The layout of a program's arguments. Programs with the same resources and parameter bytes share it.
  struct Layout {
    /// At least that of set 0. Sets without resources are empty.
    std::vector<VkDescriptorSetLayout> sets = {};
    VkPipelineLayout pipeline = nullptr;
    /// The numbers of descriptors of each type.
    std::array<std::uint32_t, descriptor_types> descriptors = {};
  };
  /// The layout for these resources, sorted by set and binding, and `parameter_bytes` bytes of push constants. It
  /// is made once and lives as long as the context. `doing` names the operation in errors, as in "preparing gemm".
  Result<const Layout*> layout(std::span<const backend::GlslResource> resources, std::uint32_t parameter_bytes,
                               std::string_view doing) KILN_EXCLUDES(layouts_mutex_);

  /// The queue for synchronous work.
  Queue& first_queue() noexcept { return queues_.front(); }
  /// The queues of a stream, which is the work of one slot. Copies on `upload` and `download` are separate parts of
  /// a submission. If these are null, copies go to `compute` together with the launches.
  struct Route {
    std::shared_ptr<Queue> compute;
    Queue* upload = nullptr;
    Queue* download = nullptr;
  };
  /// The queues for one more stream, until `compute` is destroyed. The context must outlive the route. A GPU
  /// switches between compute queues, in turns of some hundred microseconds, so streams share a queue as long as no
  /// work is stuck in it.
  Route share_queues() KILN_EXCLUDES(share_mutex_);

  const Physical physical;
  const VkDevice device;
  /// The families whose queues are used.
  const std::vector<std::uint32_t> families;
  const DeviceCalls vk;
  const Terms terms;

 private:
  /// The descriptors of one binding.
  struct Slot {
    std::uint32_t set = 0;
    std::uint32_t binding = 0;
    VkDescriptorType type = {};
    std::uint32_t count = 0;
    auto operator<=>(const Slot&) const = default;
  };
  Result<void> make_layout(Layout& layout, std::span<const Slot> slots, std::uint32_t parameter_bytes,
                           std::string_view doing) const;

  const std::shared_ptr<const Instance> instance_;
  // At least one; the number does not change.
  std::deque<Queue> queues_;
  // Two, or none.
  std::deque<Queue> copy_queues_;
  base::Mutex share_mutex_;
  base::Mutex layouts_mutex_;
  std::map<std::pair<std::vector<Slot>, std::uint32_t>, Layout> layouts_ KILN_GUARDED_BY(layouts_mutex_);
};

}  // namespace kiln::vulkan
