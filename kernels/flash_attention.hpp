#pragma once

#include <string>

#include <kiln/kernels.hpp>

namespace kiln::kernels {

/// One of the forms of the attention kernel: a group takes `queries` queries and goes through the keys `keys` at a
/// time, a work item has `item_queries` of its queries, a multiple of four, and shares each of them with `across` -
/// 1 others.
struct FlashAttentionVariant {
  /// The largest head dimension it takes: 32, 64, 128 or 256.
  int head = 64;
  int queries = 32;
  int keys = 32;
  int item_queries = 4;
  int across = 16;
  /// Whether four elements are read and written at once: the head dimension is a multiple of four.
  bool vectors = false;
  /// How many rounds of the loops over keys and dimensions are unrolled: 1, 2, 4 or 16; in OpenGL and Vulkan, 16
  /// is for all of them.
  int unroll = 1;
  /// As Kernel::min_groups.
  int min_groups = 0;
  /// Whether values are copied while keys are used: on CUDA, by four elements, and with no more queries than
  /// `head`.
  bool asynchronous = false;

  std::uint32_t items() const { return static_cast<std::uint32_t>(queries / item_queries * across); }
  std::uint64_t shared_bytes() const;
  /// Whether its numbers go together and a device can run it.
  bool fits(const DeviceLimits& limits) const;
  /// As in "flash_attention_d64_q64_k64_r8_x16_v4_u2".
  std::string name() const;
};

FlashAttentionVariant flash_attention_variant(const DeviceInfo& device, std::int64_t dimension);
Tunable flash_attention_tunable(const DeviceInfo& device, const Shape& q, const Shape& k,
                                const FlashAttentionOptions& options);
Kernel flash_attention_kernel(const FlashAttentionVariant& variant);

/// flash_attention() by a variant of the caller's choice.
Result<Tensor> flash_attention(Runner on, const Tensor& q, const Tensor& k, const Tensor& v,
                               const FlashAttentionOptions& options, const FlashAttentionVariant* variant);

}  // namespace kiln::kernels
