#include <deque>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "backend/launch_checks.hpp"
#include "backend/vulkan/commands.hpp"
#include "backend/vulkan/device.hpp"
#include "backend/vulkan/module.hpp"
#include "base/try.hpp"

namespace kiln::vulkan {
namespace {

std::string launching(const Fitting& fitted) { return fmt::format("launching {}", fitted.program.name()); }

/// Records launches into the caller's command buffer.
class RecordingStream final : public Stream {
 public:
  RecordingStream(std::shared_ptr<Context> context, DeviceInfo info, VkCommandBuffer commands)
      : context_(std::move(context)), info_(std::move(info)), recorder_(context_) {
    recorder_.record_into(commands);
  }

  Result<void> launch(kiln::Module& module, const Launch& launch) override {
    const auto fitted = KILN_TRY(fit(*context_, info_, module, launch));
    if (!backend::has_work(fitted.groups)) return {};
    recorder_.barrier();
    KILN_TRY(recorder_.launch(fitted, launching(fitted)));
    recorder_.barrier(VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT);
    return {};
  }
  void hold(std::shared_ptr<const void> thing) override { held_.push_back(std::move(thing)); }

 private:
  const std::shared_ptr<Context> context_;
  const DeviceInfo info_;
  std::vector<std::shared_ptr<const void>> held_;
  Recorder recorder_;
};

class CallersQueueStream final : public QueueStream {
 public:
  /// `own` is the queue, unless it is the first one of the context.
  CallersQueueStream(std::shared_ptr<Context> context, DeviceInfo info, std::unique_ptr<Queue> own)
      : context_(std::move(context)),
        info_(std::move(info)),
        own_(std::move(own)),
        queue_(own_ != nullptr ? *own_ : context_->first_queue()) {}

  Result<void> launch(kiln::Module& module, const Launch& launch) override {
    const auto fitted = KILN_TRY(fit(*context_, info_, module, launch));
    if (!backend::has_work(fitted.groups)) return {};
    const auto batch = KILN_TRY(recorded());
    if (batch->commands->has_failed())
      return Error(ErrorCode::invalid_request,
                   fmt::format("{}: the last submit() failed; call it again before further launches",
                               fitted.program.name()));
    return batch->commands->launch(fitted, launching(fitted));
  }

  Result<void> submit(const Submission& submission) override {
    const Semaphores semaphores{submission.wait, submission.signal};
    if (recorded_ != nullptr && recorded_->commands->has_work()) {
      KILN_TRY(recorded_->commands->submit(submitting, semaphores));
      submitted_.push_back(std::move(recorded_));
      only_fence_is_left_ = true;
    }
    if (submission.fence != nullptr || !only_fence_is_left_)
      KILN_TRY(
          queue_.submit(nullptr, only_fence_is_left_ ? Semaphores{} : semaphores, submission.fence, submitting));
    only_fence_is_left_ = false;
    return {};
  }

  void hold(std::shared_ptr<const void> thing) override {
    collect();
    Batch* last = recorded_ != nullptr ? recorded_.get() : !submitted_.empty() ? submitted_.back().get() : nullptr;
    // Without any work, there is nothing to wait for.
    if (last != nullptr) last->held.push_back(std::move(thing));
  }

 private:
  static constexpr std::string_view submitting = "submitting launches";

  /// Launches that are submitted together. Destruction waits for them, and then lets go of what they hold.
  struct Batch {
    std::vector<std::shared_ptr<const void>> held = {};
    std::unique_ptr<Commands> commands = nullptr;
  };

  /// Lets go of what ended submissions hold. Submissions end in order. After an error, none counts as ended.
  void collect() {
    while (!submitted_.empty()) {
      const auto finished = submitted_.front()->commands->finished(submitting);
      if (!finished || !*finished) return;
      submitted_.front()->held.clear();
      idle_.push_back(std::move(submitted_.front()));
      submitted_.pop_front();
    }
  }

  /// The batch that is being recorded.
  Result<Batch*> recorded() {
    if (recorded_ != nullptr) return recorded_.get();
    collect();
    if (idle_.empty()) {
      auto batch = std::make_unique<Batch>();
      batch->commands = KILN_TRY(Commands::create(context_, queue_));
      recorded_ = std::move(batch);
    } else {
      recorded_ = std::move(idle_.back());
      idle_.pop_back();
    }
    return recorded_.get();
  }

  const std::shared_ptr<Context> context_;
  const DeviceInfo info_;
  const std::unique_ptr<Queue> own_;
  Queue& queue_;
  std::deque<std::unique_ptr<Batch>> submitted_;
  std::vector<std::unique_ptr<Batch>> idle_;
  /// Set while a submission is under way, and if only its fence could not be submitted.
  bool only_fence_is_left_ = false;
  std::unique_ptr<Batch> recorded_;
};

Result<const VulkanDevice*> device_of(const Device& device) {
  if (const auto* own = dynamic_cast<const VulkanDevice*>(&device)) return own;
  return Error(ErrorCode::invalid_request, fmt::format("{} is not a Vulkan device", device.info().name));
}

}  // namespace

Result<std::unique_ptr<Stream>> stream(Device& device, VkCommandBuffer commands) {
  const auto* own = KILN_TRY(device_of(device));
  if (commands == nullptr) return Error(ErrorCode::invalid_request, "the command buffer is null");
  return std::unique_ptr<Stream>(std::make_unique<RecordingStream>(own->context(), own->info(), commands));
}

Result<std::unique_ptr<QueueStream>> stream(Device& device, VkQueue queue, std::uint32_t queue_family) {
  const auto* own = KILN_TRY(device_of(device));
  const std::shared_ptr<Context>& context = own->context();
  if (context->terms.owned)
    return Error(
        ErrorCode::invalid_request,
        fmt::format("{} has no queue of the caller's; open the device with vulkan::adopt()", device.info().name));
  if (queue == nullptr) return Error(ErrorCode::invalid_request, "the queue is null");
  // Buffers of Kiln belong to one queue family.
  if (const std::uint32_t family = context->families.front(); queue_family != family)
    return Error(ErrorCode::invalid_request,
                 fmt::format("the queue is of family {}; the device was adopted with a queue of family {}",
                             queue_family, family));
  std::unique_ptr<Queue> other;
  if (!context->first_queue().is(queue)) other = std::make_unique<Queue>(context->vk, queue, queue_family, 0, 0);
  return std::unique_ptr<QueueStream>(
      std::make_unique<CallersQueueStream>(context, device.info(), std::move(other)));
}

}  // namespace kiln::vulkan
