#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <kiln/vulkan.hpp>

#include "backend/vulkan/context.hpp"
#include "backend/vulkan/memory.hpp"

namespace kiln::vulkan {

/// The descriptor sets of launches, from pools that grow in number and are kept. Used by one thread at a time.
class Descriptors {
 public:
  explicit Descriptors(const Context& context) noexcept : context_(context) {}
  ~Descriptors();
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;

  /// A set that names these buffers, until all are taken back. `doing` is what it is for, as in "launching gemm".
  Result<VkDescriptorSet> describe(const Module& module, std::span<const DeviceBuffer* const> buffers,
                                   std::string_view doing);
  /// Takes all sets back; the device uses none of them any more.
  Result<void> reset(std::string_view doing);

 private:
  struct Pool {
    VkDescriptorPool handle = nullptr;
    std::uint32_t descriptors = 0;
    /// What is left of its sets and descriptors.
    std::uint32_t sets_left = 0;
    std::uint32_t descriptors_left = 0;
  };
  /// A pool with room for one more set.
  Result<Pool*> with_room(std::uint32_t descriptors, std::string_view doing);

  const Context& context_;
  std::vector<Pool> pools_;
};

}  // namespace kiln::vulkan
