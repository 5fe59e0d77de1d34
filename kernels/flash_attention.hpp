#pragma once

#include <string>

#include <kiln/kernels/kernels.hpp>

namespace kiln::kernels {

/// A variant of the attention kernel. A group computes `queries` queries and loops over the keys in blocks of
/// `keys`. A work item handles `item_queries` queries, a multiple of four, together with `across` - 1 others.
struct FlashAttentionVariant {
  /// The largest head dimension: 32, 64, 128 or 256.
  int head = 64;
  int queries = 32;
  int keys = 32;
  int item_queries = 4;
  int across = 16;
  /// Whether to read and write four elements at a time; requires a head dimension that is a multiple of four.
  bool vectors = false;
  /// Unroll factor of the loops over keys and dimensions: 1, 2, 4 or 16. In OpenGL and Vulkan, 16 unrolls them
  /// completely.
  int unroll = 1;
  /// See Kernel::min_groups.
  int min_groups = 0;
  /// Whether to copy values while keys are in use. Requires CUDA, `vectors`, and `queries` not greater than `head`.
  bool asynchronous = false;

  std::uint32_t items() const { return static_cast<std::uint32_t>(queries / item_queries * across); }
  std::uint64_t shared_bytes() const;
  /// Whether the parameters are consistent and the device can run the variant.
  bool fits(const DeviceLimits& limits) const;
  /// An upper bound for the loop iterations of a work item, for a tile of queries and `blocks` blocks of keys.
  std::int64_t loop_steps(std::int64_t blocks) const;
  /// For example "flash_attention_d64_q64_k64_r8_x16_v4_u2".
  std::string name() const;
};

FlashAttentionVariant flash_attention_variant(const DeviceInfo& device, std::int64_t dimension,
                                              std::int64_t queries);
Tunable flash_attention_tunable(const DeviceInfo& device, const Shape& q, const Shape& k,
                                const FlashAttentionOptions& options);
/// With `divided`, computes partial results for parts of the keys.
Kernel flash_attention_kernel(const FlashAttentionVariant& variant, bool divided);
/// Combines the partial results; with `vectors`, four elements at a time.
Kernel flash_attention_sum_kernel(bool vectors);

/// How the keys of a tile of queries are divided among groups: the number of parts, and the keys per part. The last
/// part may have fewer.
struct FlashAttentionParts {
  std::int64_t count = 1;
  std::int64_t keys = 0;
};
/// Chooses the number of parts so that sums stay accurate, loops stay within the device's limit, and a GPU is busy
/// even with few tiles, as in token-by-token generation. At least `least` parts, as far as there are blocks of
/// keys.
FlashAttentionParts flash_attention_parts(const DeviceInfo& device, const FlashAttentionVariant& variant,
                                          std::int64_t tiles, std::int64_t keys, std::int64_t least = 1);

/// flash_attention() with a given variant (the default if null), and the keys in at least `least_parts` parts.
Result<Tensor> flash_attention(Runner on, const Tensor& q, const Tensor& k, const Tensor& v,
                               const FlashAttentionOptions& options, const FlashAttentionVariant* variant,
                               std::int64_t least_parts = 1);

}  // namespace kiln::kernels
