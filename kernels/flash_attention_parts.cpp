#include <algorithm>

#include "kernels/flash_attention.hpp"
#include "kernels/native.hpp"
#include "kernels/plan.hpp"

namespace kiln::kernels {
namespace {

// NaNs and infinities of a part are in its sum or total, even if its largest score is neither.
constexpr std::string_view attention_sum_source = R"(
#if VECTORS
#define VALUE float4
#define NOTHING make_float4(0.0f, 0.0f, 0.0f, 0.0f)
#else
#define VALUE float
#define NOTHING 0.0f
#endif

KERNEL {
  int elements = rows * width;
  for (int at = global_id_x; at < elements; at += GROUP_X * group_count_x) {
    int row = at / width;
    float most = -INFINITY;
    for (int part = 0; part < parts; ++part) most = fmax(most, totals[2 * (part * rows + row)]);
    if (most == -INFINITY) most = 0.0f;
    VALUE sum = NOTHING;
    float total = 0.0f;
    for (int part = 0; part < parts; ++part) {
      float score = totals[2 * (part * rows + row)];
      float by = score == -INFINITY ? 0.0f : EXP(score - most);
      sum += by * sums[part * elements + at];
      total += by * totals[2 * (part * rows + row) + 1];
    }
    result[at] = sum * (total == 0.0f ? 0.0f : 1.0f / total);
  }
}
)";

/// The most keys that one work item may process sequentially.
std::int64_t most_keys(const DeviceInfo& device, const FlashAttentionVariant& variant) {
  // With more keys, each addend is too small relative to the sum for f32.
  constexpr std::int64_t exact = 65536;
  if (!ends_long_loops(device)) return exact;
  // Half of the limit, as a safety margin.
  const std::int64_t block = variant.loop_steps(1) - variant.loop_steps(0);
  const std::int64_t blocks = (most_loop_steps / 2 - variant.loop_steps(0)) / block;
  return std::clamp<std::int64_t>(blocks * variant.keys, variant.keys, exact);
}

/// Enough parts to keep a large GPU busy, as long as each has enough keys.
std::int64_t parts_for_gpu(std::int64_t items, std::int64_t keys) {
  constexpr std::int64_t least_keys = 128;
  constexpr std::int64_t most = 64;
  // With so few keys, a second step costs more than it saves.
  if (keys < 8 * least_keys) return 1;
  return std::min({items_of_a_busy_gpu / items, keys / least_keys, most});
}

}  // namespace

FlashAttentionParts flash_attention_parts(const DeviceInfo& device, const FlashAttentionVariant& variant,
                                          std::int64_t tiles, std::int64_t keys, std::int64_t least) {
  std::int64_t parts = std::max(least, quotient_up(keys, most_keys(device, variant)));
  if (!device.software) parts = std::max(parts, parts_for_gpu(tiles * variant.items(), keys));
  if (parts == 1 || keys == 0) return {.count = 1, .keys = keys};
  const std::int64_t each = quotient_up(quotient_up(keys, parts), variant.keys) * variant.keys;
  return {.count = quotient_up(keys, each), .keys = each};
}

Kernel flash_attention_sum_kernel(bool vectors) {
  const Type type = vectors ? Type::f32x4 : Type::f32;
  return {.name = vectors ? "flash_attention_sum_v4" : "flash_attention_sum",
          .buffers = {{"sums", type}, {"totals"}, {"result", type, Access::write}},
          .scalars = {{"rows"}, {"width"}, {"parts"}},
          .group_size = {64, 1, 1},
          .parameters = {{"VECTORS", flag(vectors)}},
          .source = std::string(native_source) + std::string(attention_sum_source)};
}

}  // namespace kiln::kernels
