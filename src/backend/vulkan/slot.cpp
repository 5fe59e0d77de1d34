#include "backend/vulkan/slot.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "backend/own_buffer.hpp"
#include "backend/staged.hpp"
#include "backend/vulkan/launch.hpp"

namespace kiln::vulkan {
namespace {

constexpr std::string_view running = "running the work of a slot";

}  // namespace

Result<std::unique_ptr<Slot>> VulkanSlot::open(std::shared_ptr<Context> context, const DeviceInfo& device) {
  auto queue = context->share_queue();
  auto commands = Commands::create(context, *queue);
  if (!commands) return std::move(commands).error();
  auto slot = std::make_unique<VulkanSlot>(std::move(context), device, std::move(queue));
  slot->commands_ = std::move(*commands);
  if (auto ok = slot->set_clock(); !ok) return std::move(ok).error();
  return std::unique_ptr<Slot>(std::move(slot));
}

Result<void> VulkanSlot::set_clock() {
  if (!queue_->clock.ticks() || queue_->clock.set()) return {};
  // A queue's first submission may take long to begin.
  for (int round = 0; round < 2; ++round) {
    if (auto ok = open_commands(); !ok) return ok;
    if (auto ok = submit(); !ok) return ok;
    if (auto ok = wait(); !ok) return ok;
  }
  return {};
}

Result<std::span<std::byte>> VulkanSlot::staging(std::size_t bytes) {
  if (staging_ == nullptr || staging_->size() < bytes) {
    if (commands_->in_use()) return backend::staging_in_use();
    staging_.reset();
    auto made = DeviceBuffer::allocate(context_, bytes, DeviceBuffer::Use::staging);
    if (!made) return std::move(made).error();
    staging_ = std::move(*made);
  }
  return std::span(staging_->writable(), staging_->size());
}

Result<const DeviceBuffer*> VulkanSlot::fitting(const Buffer& buffer, std::size_t offset, std::size_t staged,
                                                std::size_t bytes) const {
  if (auto ok = backend::check_staged(staged, bytes, staging_ != nullptr ? staging_->size() : 0); !ok)
    return std::move(ok).error();
  return backend::own_buffer<DeviceBuffer>(buffer, *context_, device_.name, bytes, offset);
}

Result<void> VulkanSlot::open_commands() {
  // Those before have ended before anything is written anew.
  if (busy_)
    if (auto ok = wait(); !ok) return ok;
  const bool first = !commands_->in_use();
  const auto commands = commands_->open(running);
  if (!commands) return Error(commands.error());
  if (!first || !queue_->clock.ticks()) return {};
  stamps_.reset();
  return stamps_.write(*commands);
}

Result<void> VulkanSlot::note_piece(bool work) {
  if (!queue_->clock.ticks()) return {};
  const std::size_t before = stamps_.count() - 1;
  if (work) {
    const auto commands = commands_->open(running);
    if (!commands) return Error(commands.error());
    if (auto ok = stamps_.write(*commands); !ok) return ok;
  }
  pieces_.push_back({before, stamps_.count() - 1});
  return {};
}

Result<void> VulkanSlot::upload(const Buffer& to, std::size_t offset, std::size_t staged, std::size_t bytes) {
  const auto buffer = fitting(to, offset, staged, bytes);
  if (!buffer) return Error(buffer.error());
  if (auto ok = open_commands(); !ok) return ok;
  if (bytes > 0)
    if (auto ok = commands_->copy(*staging_, staged, **buffer, offset, bytes, running); !ok) return ok;
  return note_piece(bytes > 0);
}

Result<void> VulkanSlot::launch(kiln::Module& module, const Launch& launch) {
  const auto fitted = fit(*context_, device_, module, launch);
  if (!fitted) return Error(fitted.error());
  if (auto ok = open_commands(); !ok) return ok;
  const bool work = std::find(launch.groups.begin(), launch.groups.end(), 0U) == launch.groups.end();
  if (work) {
    const std::string doing = fmt::format("launching {}", fitted->program.name());
    if (auto ok = commands_->launch(fitted->program, fitted->buffers, launch, doing); !ok) return ok;
  }
  return note_piece(work);
}

Result<void> VulkanSlot::download(const Buffer& from, std::size_t offset, std::size_t staged, std::size_t bytes) {
  const auto buffer = fitting(from, offset, staged, bytes);
  if (!buffer) return Error(buffer.error());
  if (auto ok = open_commands(); !ok) return ok;
  if (bytes > 0)
    if (auto ok = commands_->copy(**buffer, offset, *staging_, staged, bytes, running); !ok) return ok;
  return note_piece(bytes > 0);
}

Result<void> VulkanSlot::submit() {
  if (busy_) return {};
  ran_.clear();
  if (!commands_->in_use()) return {};
  submitted_ = std::chrono::steady_clock::now();
  if (auto ok = commands_->submit(running); !ok) return ok;
  busy_ = true;
  return {};
}

Result<bool> VulkanSlot::finished() {
  if (!busy_) return true;
  auto done = commands_->finished(running);
  if (done && *done) read_times();
  return done;
}

Result<void> VulkanSlot::wait() {
  if (!busy_) return {};
  if (auto ok = commands_->wait(running); !ok) return ok;
  read_times();
  return {};
}

void VulkanSlot::read_times() {
  const auto seen = std::chrono::steady_clock::now();
  busy_ = false;
  const std::vector<backend::Piece> pieces = std::exchange(pieces_, {});
  const std::vector<std::uint64_t> stamps = stamps_.read();
  if (stamps.empty()) return;
  queue_->clock.learn(submitted_, stamps.front(), stamps.back(), seen);
  ran_ = queue_->clock.ran(pieces, stamps);
}

}  // namespace kiln::vulkan
