#include "exec/slot_memory.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace kiln::exec {
namespace {

/// Times that others are taken before an idle buffer is dropped.
constexpr std::uint64_t patience = 256;

/// Few different sizes, so that jobs of about the same size share buffers: at most a quarter more than asked for.
std::size_t rounded(std::size_t bytes) {
  constexpr std::size_t smallest = 4096;
  if (bytes <= smallest) return smallest;
  const std::size_t step = std::bit_floor(bytes) / 4;
  return bytes + (step - 1) < bytes ? bytes : (bytes + step - 1) / step * step;
}

}  // namespace

Result<std::unique_ptr<Buffer>> SlotMemory::take(std::size_t bytes) {
  ++uses_;
  const std::size_t size = rounded(bytes);
  const auto found = std::find_if(idle_.begin(), idle_.end(), [=](const Idle& idle) {
    return idle.buffer->size() == size || idle.buffer->size() == bytes;
  });
  if (found == idle_.end()) {
    auto allocated = device_.allocate(size);
    return allocated || size == bytes ? std::move(allocated) : device_.allocate(bytes);
  }
  auto buffer = std::move(found->buffer);
  idle_.erase(found);
  return buffer;
}

void SlotMemory::give_back(std::unique_ptr<Buffer> buffer) {
  idle_.push_back({std::move(buffer), uses_});
  std::erase_if(idle_, [this](const Idle& idle) { return uses_ - idle.used > patience; });
}

bool SlotMemory::clear() noexcept {
  const bool any = !idle_.empty();
  idle_.clear();
  return any;
}

}  // namespace kiln::exec
