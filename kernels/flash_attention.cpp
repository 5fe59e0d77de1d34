#include "kernels/flash_attention.hpp"

#include <array>
#include <cmath>

#include "base/try.hpp"
#include "kernels/plan.hpp"
#include "kernels/tuned.hpp"

namespace kiln::kernels {
namespace {

Result<void> check(const Tensor& q, const Tensor& k, const Tensor& v) {
  for (const auto& [name, tensor] : {std::pair("q", &q), std::pair("k", &k), std::pair("v", &v)})
    if (tensor->shape().size() != 4)
      return unfit("flash_attention: {} has {} dimensions; it must have 4", name, tensor->shape().size());
  const auto has = [](const Tensor& tensor, std::size_t i) {
    constexpr std::array<const char*, 4> texts = {"a batch of {}", "{} heads", "{} keys", "a head dimension of {}"};
    return fmt::format(fmt::runtime(texts[i]), tensor.shape()[i]);
  };
  for (const std::size_t i : {0U, 1U, 3U})
    if (k.shape()[i] != q.shape()[i])
      return unfit("flash_attention: k has {} (dimension {}), but q has {}; they must be equal", has(k, i), i,
                   q.shape()[i]);
  for (std::size_t i = 0; i < 4; ++i)
    if (v.shape()[i] != k.shape()[i])
      return unfit("flash_attention: v has {} (dimension {}), but k has {}; they must be equal", has(v, i), i,
                   k.shape()[i]);
  if (q.shape()[3] > 256)
    return Error(
        ErrorCode::unsupported,
        fmt::format("flash_attention: q has a head dimension of {} (dimension 3); the limit is 256", q.shape()[3]));
  return {};
}

bool copies_asynchronously(const DeviceInfo& device) { return is_cuda_from(device, 80); }

/// The variant for few queries on a GPU, as in token-by-token generation: the time goes into reading keys and
/// values.
FlashAttentionVariant variant_for_few(const DeviceInfo& device, int head, std::int64_t queries) {
  const bool more = queries > 8;
  FlashAttentionVariant variant{.head = head,
                                .queries = more || head == 32 ? 16 : 8,
                                .keys = head == 256 ? 16 : 32,
                                .item_queries = 4,
                                .across = head == 32 ? 8 : 16};
  if (head == 128 && !more) variant.across = 32;
  switch (device.language) {
    case Language::cuda:
    case Language::hip: variant.unroll = 2; break;
    // OpenGL's compiler creates branches if it does not unroll, and has few registers for unrolling.
    case Language::glsl:
      variant.unroll = 16;
      if (head == 64 || head == 128) variant.keys = variant.across = 16;
      if (head == 256 && !more) variant.keys = variant.across = 32;
      break;
    default: break;
  }
  return variant;
}

}  // namespace

FlashAttentionVariant flash_attention_variant(const DeviceInfo& device, std::int64_t dimension,
                                              std::int64_t queries) {
  // For each class of head dimensions: a variant that fills a GPU, and one for 32 KiB of shared memory.
  constexpr std::array<std::array<FlashAttentionVariant, 2>, 4> classes = {{
      {{{.head = 32, .queries = 64, .keys = 64, .item_queries = 4, .across = 8},
        {.head = 32, .queries = 32, .keys = 32, .item_queries = 4, .across = 8}}},
      {{{.head = 64, .queries = 64, .keys = 64, .item_queries = 8, .across = 16},
        {.head = 64, .queries = 32, .keys = 32, .item_queries = 4, .across = 16}}},
      {{{.head = 128, .queries = 32, .keys = 32, .item_queries = 4, .across = 16},
        {.head = 128, .queries = 16, .keys = 32, .item_queries = 4, .across = 16}}},
      {{{.head = 256, .queries = 16, .keys = 16, .item_queries = 4, .across = 16},
        {.head = 256, .queries = 8, .keys = 16, .item_queries = 4, .across = 16}}},
  }};
  for (const auto& [large, small] : classes) {
    if (dimension > large.head) continue;
    if (!device.software && queries <= 16) {
      FlashAttentionVariant variant = variant_for_few(device, large.head, queries);
      variant.vectors = dimension % 4 == 0;
      if (variant.fits(device.limits)) return variant;
    }
    const bool fits = large.shared_bytes() <= device.limits.shared_bytes;
    FlashAttentionVariant variant = fits && !device.software ? large : small;
    variant.vectors = !device.software && dimension % 4 == 0;
    switch (device.language) {
      // A factor of four takes so many registers that a third fewer groups fit.
      case Language::cuda:
      case Language::hip: variant.unroll = 2; break;
      case Language::vulkan_glsl:
        variant.unroll = device.software ? 1 : 16;
        // Completely unrolled, the program is too long for the instruction cache if groups are at different places
        // in it.
        if (large.head == 64 && !device.software) {
          variant.unroll = 4;
          variant.item_queries = 4;
          variant.across = 8;
        }
        break;
      // OpenGL's compiler keeps fewer values in registers.
      case Language::glsl:
        variant.item_queries = 4;
        variant.unroll = device.software ? 1 : 16;
        break;
      case Language::opencl:
        // The result of tuning on one GPU.
        if (large.head == 64 && !device.software) {
          variant.queries = 32;
          variant.item_queries = 4;
        }
        break;
      default: break;
    }
    if (large.head == 64 && variant.vectors && copies_asynchronously(device)) {
      variant.asynchronous = true;
      variant.across = 8;
    }
    return variant;
  }
  return {};
}

bool FlashAttentionVariant::fits(const DeviceLimits& limits) const {
  const int quads = head / 4;
  const int all = static_cast<int>(items());
  // Work items must share queries, keys and the loading of both evenly.
  return item_queries % 4 == 0 && queries % item_queries == 0 && keys % across == 0 && quads % across == 0 &&
         queries * quads % all == 0 && keys * quads % all == 0 && shared_bytes() <= limits.shared_bytes &&
         items() <= limits.max_group_items && items() <= limits.max_group_size[0] &&
         (!asynchronous || (vectors && queries <= head));
}

namespace {

FlashAttentionVariant variant_of(const Variant& numbers, int head) {
  return {head,       numbers[0], numbers[1],     numbers[2], numbers[3], numbers[4] != 0,
          numbers[5], numbers[6], numbers[7] != 0};
}

std::string tuned_name(const FlashAttentionOptions& options) {
  return options.causal ? "flash_attention_causal" : "flash_attention";
}

}  // namespace

Tunable flash_attention_tunable(const DeviceInfo& device, const Shape& q, const Shape& k,
                                const FlashAttentionOptions& options) {
  const FlashAttentionVariant initial = flash_attention_variant(device, q[3], q[2]);
  Tunable tunable{
      .kernel = tuned_name(options),
      .sizes = {{"heads", q[0] * q[1]}, {"queries", q[2]}, {"keys", k[2]}, {"d", q[3]}},
      .parameters = {{"q", {8, 16, 32, 64, 128}},
                     {"k", {8, 16, 32, 64, 128}},
                     {"r", {4, 8, 16}},
                     {"x", {4, 8, 16, 32}},
                     {"v", {0, 1}},
                     {"u", {1, 2, 4, 16}},
                     {"b", device.language == Language::cuda ? std::vector<int>{0, 2, 3, 4} : std::vector<int>{0}},
                     {"async", copies_asynchronously(device) ? std::vector<int>{0, 1} : std::vector<int>{0}}},
      .initial = {initial.queries, initial.keys, initial.item_queries, initial.across, initial.vectors ? 1 : 0,
                  initial.unroll, initial.min_groups, initial.asynchronous ? 1 : 0},
      .inputs = {q, k, k}};
  tunable.fits = [limits = device.limits, dimension = q[3], head = initial.head](const Variant& numbers) {
    const FlashAttentionVariant variant = variant_of(numbers, head);
    return variant.items() >= 32 && variant.fits(limits) && (!variant.vectors || dimension % 4 == 0);
  };
  FlashAttentionOptions plain = options;
  plain.output = Type::f32;
  tunable.call = [plain, head = initial.head](const Variant& numbers, const std::vector<Tensor>& inputs) {
    const FlashAttentionVariant variant = variant_of(numbers, head);
    return call_of(inputs, numbers, [&](Runner on) {
      return flash_attention(on, inputs[0], inputs[1], inputs[2], plain, &variant);
    });
  };
  return with_constants(std::move(tunable));
}

namespace {

/// The variant that the plan's tuner chooses, or the default if it has none.
FlashAttentionVariant choose(Plan& plan, const Shape& q, const Shape& k, const FlashAttentionOptions& options) {
  const DeviceInfo& device = plan.device();
  const FlashAttentionVariant initial = flash_attention_variant(device, q[3], q[2]);
  if (!plan.tuned()) return initial;
  const std::array<std::int64_t, 4> sizes = {q[0] * q[1], q[2], k[2], q[3]};
  return variant_of(
      plan.choose(tuned_name(options), sizes, [&] { return flash_attention_tunable(device, q, k, options); }),
      initial.head);
}

}  // namespace

Result<Tensor> flash_attention(Runner on, const Tensor& q, const Tensor& k, const Tensor& v,
                               const FlashAttentionOptions& options, const FlashAttentionVariant* given,
                               std::int64_t least_parts) {
  auto plan = KILN_TRY(Plan::of("flash_attention", on, {{"q", &q}, {"k", &k}, {"v", &v}}));
  KILN_TRY(check(q, k, v));
  const std::int64_t heads = q.shape()[0] * q.shape()[1];
  const std::int64_t queries = q.shape()[2];
  const std::int64_t keys = k.shape()[2];
  const std::int64_t dimension = q.shape()[3];
  const FlashAttentionVariant variant = given != nullptr ? *given : choose(plan, q.shape(), k.shape(), options);
  const float scale = options.scale.value_or(1.0F / std::sqrt(static_cast<float>(dimension)));
  const auto q_place = plan.read(q);
  const auto k_place = plan.read(k);
  const auto v_place = plan.read(v);
  const auto result = plan.write(q.shape(), options.output);
  if (q.count() == 0) return std::move(plan).finish();
  const std::int64_t tiles = quotient_up(queries, variant.queries) * heads;
  const FlashAttentionParts parts = flash_attention_parts(plan.device(), variant, tiles, keys, least_parts);
  const bool divided = parts.count > 1;
  const std::int64_t rows = heads * queries;
  std::vector<Plan::Place> memory = {q_place, k_place, v_place, result};
  std::vector<Scalar> scalars = {
      number(heads), number(queries), number(keys), number(dimension), number(options.causal ? 1 : 0), scale};
  if (divided) {
    memory.back() = plan.scratch(parts.count * rows * dimension);
    memory.push_back(plan.scratch(parts.count * rows * 2));
    scalars.insert(scalars.end(), {number(parts.count), number(parts.keys)});
  }
  // By convention, causal attention counts half of the operations.
  const double scores = static_cast<double>(rows) * static_cast<double>(keys) * (options.causal ? 0.5 : 1);
  const auto of_result = static_cast<double>(q.count());
  const auto written = of_result * static_cast<double>(parts.count);
  plan.step(
      flash_attention_kernel(variant, divided), groups_for(tiles * parts.count), memory, scalars,
      {.flops = 4 * scores * static_cast<double>(dimension),
       .bytes = 4 * (of_result + written + 2 * static_cast<double>(k.count())),
       .loop_steps = pieces_each(tiles * parts.count) * variant.loop_steps(quotient_up(parts.keys, variant.keys))});
  if (divided) {
    const Kernel sum = flash_attention_sum_kernel(variant.vectors);
    const std::int64_t width = dimension / (variant.vectors ? 4 : 1);
    const std::int64_t pieces = quotient_up(rows * width, sum.group_size[0]);
    plan.step(sum, groups_for(pieces), {memory[3], memory[4], result},
              {number(rows), number(width), number(parts.count)},
              {.flops = 2 * written,
               .bytes = 4 * (of_result + written),
               .loop_steps = pieces_each(pieces) * (2 * parts.count + 3)});
  }
  return std::move(plan).finish();
}

}  // namespace kiln::kernels

namespace kiln {

Result<Tensor> flash_attention(Runner on, const Tensor& q, const Tensor& k, const Tensor& v,
                               const FlashAttentionOptions& options) {
  return kernels::flash_attention(on, q, k, v, options, nullptr);
}

}  // namespace kiln
