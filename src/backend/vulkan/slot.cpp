#include "backend/vulkan/slot.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "backend/launch_checks.hpp"
#include "backend/vulkan/module.hpp"
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
    KILN_TRY(check(vk->CreateQueryPool(context_.device, &info, nullptr, &pool), "creating timestamp queries"));
    pools_.push_back(pool);
  }
  const VkQueryPool pool = pools_[count_ / stamps_of_a_pool];
  const auto index = static_cast<std::uint32_t>(count_ % stamps_of_a_pool);
  // A queue that only copies cannot reset queries; the host can if the feature is enabled.
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

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view running = "running submitted work";
/// After this many parts, all work goes to the compute queue.
constexpr std::size_t most_parts = 8;

}  // namespace

Result<std::unique_ptr<Slot>> VulkanSlot::open(std::shared_ptr<Context> context, const DeviceInfo& device) {
  Context::Route route = context->share_queues();
  auto slot = std::make_unique<VulkanSlot>(std::move(context), device, std::move(route));
  KILN_TRY(slot->set_clocks());
  return std::unique_ptr<Slot>(std::move(slot));
}

VulkanSlot::~VulkanSlot() {
  drop_parts();
  if (given_up_) --route_.compute->stuck;
}

void VulkanSlot::drop_parts() {
  // A part may wait for the semaphore of another, so all parts must end before the first semaphore is destroyed.
  for (const auto& part : parts_) part->commands.reset();
  parts_.clear();
}

void VulkanSlot::leave_stuck_queue() {
  Context::Route other = context_->share_queues();
  // If all queues are stuck, or there is only one, keep the parts.
  if (other.compute->stuck > 0) return;
  drop_parts();
  route_ = std::move(other);
}

Queue* VulkanSlot::queue_of(Role role) const noexcept {
  switch (role) {
    case Role::upload: return route_.upload;
    case Role::compute: return route_.compute.get();
    case Role::download: return route_.download;
  }
  return nullptr;
}

Result<void> VulkanSlot::set_clocks() {
  for (const Role role : {Role::compute, Role::upload, Role::download}) {
    const Queue* queue = queue_of(role);
    if (queue == nullptr || !queue->clock.ticks() || queue->clock.set()) continue;
    // The first submission of a queue may start late, so measure twice.
    for (int round = 0; round < 2; ++round) {
      KILN_TRY(part_for(role));
      KILN_TRY(submit());
      KILN_TRY(wait());
    }
  }
  return {};
}

Result<std::span<std::byte>> VulkanSlot::allocate_staging(std::size_t bytes) {
  staging_.reset();
  staging_ = KILN_TRY(DeviceBuffer::allocate(context_, bytes, DeviceBuffer::Use::staging));
  return std::span(staging_->writable(), staging_->size());
}

Result<VulkanSlot::Part*> VulkanSlot::unused_part(Role role) {
  for (const auto& part : parts_)
    if (part->role == role && std::find(order_.begin(), order_.end(), part.get()) == order_.end())
      return part.get();
  Queue& queue = *queue_of(role);
  auto commands = KILN_TRY(Commands::create(context_, queue));
  auto part = std::make_unique<Part>(*context_, role, queue);
  VkSemaphoreCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO;
  KILN_TRY(check(context_->vk->CreateSemaphore(context_->device, &info, nullptr, &part->ended.handle), running));
  part->commands = std::move(commands);
  parts_.push_back(std::move(part));
  return parts_.back().get();
}

Result<VulkanSlot::Part*> VulkanSlot::part_for(Role role) {
  // The previous submission must end before its parts are recorded again.
  if (busy_) KILN_TRY(wait());
  if (order_.empty() && route_.compute->stuck > 0) leave_stuck_queue();
  if (queue_of(role) == nullptr || order_.size() >= most_parts) role = Role::compute;
  if (!order_.empty() && order_.back()->role == role) return order_.back();
  const auto part = KILN_TRY(unused_part(role));
  const auto commands = KILN_TRY(part->commands->open(running));
  part->stamps.reset();
  if (part->queue.clock.ticks()) KILN_TRY(part->stamps.write(commands));
  order_.push_back(part);
  return part;
}

Result<VulkanSlot::Part*> VulkanSlot::last_part() {
  return part_for(busy_ || order_.empty() ? Role::compute : order_.back()->role);
}

Result<void> VulkanSlot::note_piece(Part& part, bool work) {
  if (!part.queue.clock.ticks()) return {};
  const std::size_t before = part.stamps.count() - 1;
  if (work) {
    const auto commands = KILN_TRY(part.commands->open(running));
    KILN_TRY(part.stamps.write(commands));
  }
  part.pieces.push_back({before, part.stamps.count() - 1});
  return {};
}

Result<void> VulkanSlot::queue_nothing() { return note_piece(*KILN_TRY(last_part()), false); }

Result<void> VulkanSlot::queue_copy(const Copy& copy) {
  const bool uploads = copy.direction == Direction::upload;
  Part& part = *KILN_TRY(part_for(uploads ? Role::upload : Role::download));
  if (uploads)
    KILN_TRY(part.commands->copy(*staging_, copy.staged, copy.buffer, copy.offset, copy.bytes, running));
  else
    KILN_TRY(part.commands->copy(copy.buffer, copy.offset, *staging_, copy.staged, copy.bytes, running));
  return note_piece(part, true);
}

Result<void> VulkanSlot::launch(kiln::Module& module, const Launch& launch) {
  const auto fitted = KILN_TRY(fit(*context_, device_, module, launch));
  if (!backend::has_work(fitted.groups)) return queue_nothing();
  Part& part = *KILN_TRY(part_for(Role::compute));
  KILN_TRY(part.commands->launch(fitted, fmt::format("launching {}", fitted.program.name())));
  return note_piece(part, true);
}

Result<void> VulkanSlot::submit() {
  if (busy_) return {};
  ran_.clear();
  if (order_.empty()) return {};
  submitted_ = Clock::now();
  // The parts run one after the other.
  const Part* before = nullptr;
  for (const Part* part : order_) {
    Semaphores semaphores;
    if (before != nullptr) semaphores.wait = {&before->ended, 1};
    if (part != order_.back()) semaphores.signal = {&part->ended, 1};
    KILN_TRY(part->commands->submit(running, semaphores));
    before = part;
  }
  busy_ = true;
  return {};
}

Result<bool> VulkanSlot::finished() {
  if (!busy_) return true;
  const auto done = order_.back()->commands->finished(running);
  if (!done || !*done) return done;
  KILN_TRY(end());
  return true;
}

Result<void> VulkanSlot::wait() {
  if (!busy_) return {};
  KILN_TRY(order_.back()->commands->wait(running));
  return end();
}

Result<void> VulkanSlot::end() {
  const auto seen = Clock::now();
  busy_ = false;
  if (std::exchange(given_up_, false)) --route_.compute->stuck;
  bool told = true;
  for (Part* part : std::exchange(order_, {})) {
    // Earlier parts ended before the last one began, so this does not block.
    KILN_TRY(part->commands->wait(running));
    const std::vector<backend::Piece> pieces = std::exchange(part->pieces, {});
    const std::vector<std::uint64_t> stamps = part->stamps.read();
    told = told && !stamps.empty();
    if (!told) continue;
    part->queue.clock.learn(submitted_, stamps.front(), stamps.back(), seen);
    const std::vector<Ran> ran = part->queue.clock.ran(pieces, stamps);
    if (ran.empty()) continue;
    // The clocks of two queues differ slightly. Shift the part so that it does not begin before the previous part
    // ended.
    const auto early = ran_.empty() ? Clock::duration{} : ran_.back().end - ran.front().begin;
    for (const Ran& piece : ran)
      ran_.push_back(
          {piece.begin + std::max(early, Clock::duration{}), piece.end + std::max(early, Clock::duration{})});
  }
  if (!told) ran_.clear();
  return {};
}

}  // namespace kiln::vulkan
