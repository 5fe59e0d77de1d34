#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/vulkan/context.hpp"

namespace kiln::vulkan {

/// Timestamps that a queue writes among its work, in query pools that grow in number and are kept. Used by one
/// thread at a time.
class Stamps {
 public:
  explicit Stamps(const Context& context) noexcept : context_(context) {}
  ~Stamps();
  Stamps(const Stamps&) = delete;
  Stamps& operator=(const Stamps&) = delete;

  /// Begins anew; the device writes none of them any more.
  void reset() noexcept { count_ = 0; }
  /// Has the device write down when all the work before has ended.
  Result<void> write(VkCommandBuffer commands);
  std::size_t count() const noexcept { return count_; }
  /// All of them, after the work has ended; empty where the driver does not tell.
  std::vector<std::uint64_t> read() const;

 private:
  const Context& context_;
  std::vector<VkQueryPool> pools_;
  std::size_t count_ = 0;
};

}  // namespace kiln::vulkan
