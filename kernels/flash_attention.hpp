#pragma once

#include <string>

#include <kiln/kernels/kernels.hpp>

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
  /// At most so many steps of loops a work item takes for a tile of queries and so many blocks of keys.
  std::int64_t loop_steps(std::int64_t blocks) const;
  /// As in "flash_attention_d64_q64_k64_r8_x16_v4_u2".
  std::string name() const;
};

FlashAttentionVariant flash_attention_variant(const DeviceInfo& device, std::int64_t dimension,
                                              std::int64_t queries);
Tunable flash_attention_tunable(const DeviceInfo& device, const Shape& q, const Shape& k,
                                const FlashAttentionOptions& options);
/// With `divided`, for keys in parts.
Kernel flash_attention_kernel(const FlashAttentionVariant& variant, bool divided);
/// What makes the result of the parts; with `vectors`, four elements at once.
Kernel flash_attention_sum_kernel(bool vectors);

/// Among how many groups the keys of a tile of queries are divided, and how many each of them has but the last.
struct FlashAttentionParts {
  std::int64_t count = 1;
  std::int64_t keys = 0;
};
/// So many that sums stay exact and no loop is too long for the device, that a GPU has something to do where there
/// are few tiles, as when a text is generated token by token, and `least` as far as there are blocks of keys.
FlashAttentionParts flash_attention_parts(const DeviceInfo& device, const FlashAttentionVariant& variant,
                                          std::int64_t tiles, std::int64_t keys, std::int64_t least = 1);

/// flash_attention() by a variant of the caller's choice, with the keys in `least_parts` parts or more.
Result<Tensor> flash_attention(Runner on, const Tensor& q, const Tensor& k, const Tensor& v,
                               const FlashAttentionOptions& options, const FlashAttentionVariant* variant,
                               std::int64_t least_parts = 1);

}  // namespace kiln::kernels
